"""From what a person typed to the way to a board; a lab is not needed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from labctl.cli.lab import connect_board, lab_of
from labctl.cli.root import Invocation
from labctl.config.lab import LabFile, find_lab_root
from labctl.config.names import did_you_mean
from labctl.errors import ConfigError, NotAuthorised
from labctl.hdc import Consent
from labctl.transport import Transport, boot_id, connect, wait_until_ready

_ANSWER_SECONDS = 10.0
#: How long somebody may take to walk to the board.
_AUTHORISE_SECONDS = 600.0


@dataclass(frozen=True)
class Choice:
    """What the group's options said."""

    invocation: Invocation
    target: str | None
    server: str | None
    key_file: Path | None
    wait_authorised: bool

    def lab(self) -> LabFile | None:
        """The lab, if there is one here. Raises ConfigError when it is wrong."""
        if self.invocation.lab is None and find_lab_root(Path.cwd()) is None:
            return None
        return lab_of(self.invocation)

    @contextmanager
    def connected(self) -> Iterator[Transport]:
        """The way to the board that is meant; the first operation opens it.

        With ``--wait-authorised`` the board has accepted this host. Raises ConfigError, LinkError.
        """
        with self._transport() as transport:
            if self.wait_authorised:
                _wait_for_consent(transport)
            yield transport

    def _transport(self) -> Transport:
        if self.server is not None:
            if self.target is None:
                raise ConfigError(
                    "no board is named", hint="name its key: labctl hdc --server … -t KEY …"
                )
            return connect("hdc", link="server", key=self.target, server=self.server)
        lab = self.lab()
        if lab is not None and (self.target is None or self.target in lab.lab.boards):
            return connect_board(
                lab.board(self.target), key_file=self.key_file, consent=self._consent()
            )
        if self.target is None:
            raise ConfigError(
                "no board is named, and there is no lab here",
                hint="name one: labctl hdc -t HOST:PORT …, or with --server its key",
            )
        if ":" in self.target:
            return connect(
                "hdc", address=self.target, key_file=self.key_file, consent=self._consent()
            )
        near = did_you_mean(self.target, lab.lab.boards) if lab else ""
        raise ConfigError(
            f"no board {self.target!r}{near}",
            hint="-t takes a board of the lab, HOST:PORT of a board's hdcd, or a key together with"
            " --server HOST:PORT",
        )

    def _consent(self) -> Consent:
        if not self.wait_authorised:
            return Consent()
        return Consent(_AUTHORISE_SECONDS, lambda what: click.echo(f"waiting: {what}", err=True))


def _wait_for_consent(transport: Transport) -> None:
    try:
        boot_id(transport, timeout=_ANSWER_SECONDS)
    except NotAuthorised as error:
        click.echo(f"{error.message}; {error.hint}; waiting for that", err=True)
        wait_until_ready(transport, timeout=_AUTHORISE_SECONDS)
