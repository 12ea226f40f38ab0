"""Failures of an endpoint that may pass, and refusals that will not."""

from labctl.errors import HostError, ProgramFailed


class TryAgain(HostError):
    """The server is busy, in trouble or out of reach: worth another attempt.

    ``retry_after_s``: seconds to wait before, where the server tells. ``attempts``: how many were
    made before it was given up.
    """

    retry_after_s: float | None = None
    attempts: int = 1


class Refused(ProgramFailed):
    """The server understood a request and refuses it: it would again. ``status`` is HTTP's."""

    status: int = 0
