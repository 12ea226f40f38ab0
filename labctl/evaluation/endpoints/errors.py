"""Temporary failures of an endpoint, and final refusals."""

from labctl.errors import HostError, ProgramFailed


class TryAgain(HostError):
    """The server is busy, failing or out of reach: retry.

    ``retry_after_s``: seconds to wait first, if the server named them. ``attempts``: number of
    attempts made. ``status``: of HTTP; 0: no answer.
    """

    status: int = 0
    retry_after_s: float | None = None
    attempts: int = 1


class Refused(ProgramFailed):
    """The server understood a request and refused it: a retry is useless.

    ``status``: of HTTP; ``said``: the server's own words.
    """

    status: int = 0
    said: str = ""
