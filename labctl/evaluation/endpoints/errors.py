"""Failures of an endpoint that may pass."""

from labctl.errors import HostError


class TryAgain(HostError):
    """The server is busy, in trouble or out of reach: worth another attempt.

    ``retry_after_s``: seconds to wait before, where the server tells.
    """

    retry_after_s: float | None = None
