"""Failures of an endpoint that may pass, and refusals that will not."""

from labctl.errors import HostError, ProgramFailed


class TryAgain(HostError):
    """The server is busy, failing or out of reach: worth another attempt.

    ``retry_after_s``: seconds to wait first, if the server named them. ``attempts``: number of
    attempts made. ``status`` is HTTP's; 0: there was none.
    """

    status: int = 0
    retry_after_s: float | None = None
    attempts: int = 1


class Refused(ProgramFailed):
    """The server understood a request and refused it: a retry is useless.

    ``status`` is HTTP's; ``said``: the server's own words.
    """

    status: int = 0
    said: str = ""
