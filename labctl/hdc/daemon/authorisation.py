"""Hosts that a locked board accepts, by hdc's keys."""

from collections.abc import Iterable

from labctl.daemon import authorisation
from labctl.daemon.authorisation import Mode
from labctl.hdc.keys import Scheme, fingerprint


class Authorisation(authorisation.Authorisation):
    """The lock of a board with hdcd; hosts prove in ``scheme`` that they own a key (PEM)."""

    def __init__(
        self, mode: Mode = "accept-known", known: Iterable[str] = (), scheme: Scheme = Scheme.PSS
    ):
        super().__init__(mode, map(fingerprint, known))
        self.scheme = scheme
