"""The connection to the board that a person named; a lab is not needed.

With an address or key, the lab's configuration is not imported.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from labctl.cli.output import note
from labctl.cli.root import Invocation
from labctl.errors import AccessDenied, ConfigError, NotAuthorised
from labctl.hdc.host.handshake import Consent
from labctl.transport.base import OpenOptions, Transport
from labctl.transport.hdc import HDC_SERVER, HdcServerConfig, HdcTcpConfig

if TYPE_CHECKING:
    from labctl.config.lab import Board, LabFile

_ANSWER_SECONDS = 10.0
#: Time (s) for somebody to walk to the board.
_AUTHORISE_SECONDS = 600.0


@dataclass(frozen=True)
class Choice:
    """Options of the group."""

    invocation: Invocation
    board: str | None
    server: str | None
    key_file: Path | None
    wait_authorised: bool

    def lab(self) -> "LabFile | None":
        """Return the lab; None if there is no lab here. Raises ConfigError if the lab is wrong."""
        from labctl.cli.lab import lab_of
        from labctl.config.lab import find_lab_root

        if self.invocation.lab is None and find_lab_root(Path.cwd()) is None:
            return None
        return lab_of(self.invocation)

    @contextmanager
    def connected(self, *, agent_hashes: bool = False) -> Iterator[Transport]:
        """Yield the transport to the chosen board; the first operation opens it.

        With ``--wait-authorised``, waits until the board accepts this host. With ``agent_hashes``,
        the agent hashes files, if the board is in the lab and has this labctl's agent.
        Raises ConfigError, LinkError.
        """
        with self._transport() as transport:
            if self.wait_authorised:
                _wait_for_consent(transport)
            if agent_hashes:
                self._let_agent_hash(transport)
            yield transport

    @property
    def key(self) -> str:
        """Return hdc's name of the board: its address or key. Raises ConfigError."""
        if self.board is None or self._is_address or self._server is not None:
            return self.board or ""
        return self._of_lab[1].transport.location

    @cached_property
    def _server(self) -> str | None:
        """The hdc server to use: the named server, or this host's server if it knows the key."""
        if self.server is not None or self.board is None or self._is_address:
            return self.server
        lab = self.lab()
        if lab is not None and self.board in lab.lab.boards:
            return None
        return HDC_SERVER if _is_known_here(self.board) else None

    def _transport(self) -> Transport:
        if self._server is not None:
            if self.board is None:
                raise ConfigError(
                    "no board is named", hint="name its key: labctl hdc --server … -t KEY …"
                )
            return HdcServerConfig(key=self.board, server=self._server).open()
        options = OpenOptions(key_file=self.key_file, consent=self._consent())
        if self.board is not None and self._is_address:
            return HdcTcpConfig(address=self.board).open(options)
        from labctl.cli.lab import connect_board

        _, board = self._of_lab
        return connect_board(board, options)

    @property
    def _is_address(self) -> bool:
        return ":" in (self.board or "")  # a name in a lab has no colon

    def _let_agent_hash(self, transport: Transport) -> None:
        """Hash files by the agent, if the right agent for the board is known."""
        if self._server is not None or self._is_address:
            return
        from labctl.deploy.plan import agent_hash

        lab, board = self._of_lab
        transport.use_hash(agent_hash(transport, board.workdir, board.target, lab.root))

    @cached_property
    def _of_lab(self) -> "tuple[LabFile, Board]":
        """The lab and the chosen board. Raises ConfigError."""
        from labctl.suggestions import did_you_mean

        lab = self.lab()
        if lab is not None and (self.board is None or self.board in lab.lab.boards):
            return lab, lab.board(self.board)
        if self.board is None:
            raise ConfigError(
                "no board given, and no lab here",
                hint="name one: labctl hdc -t HOST:PORT …, or with --server its key",
            )
        near = did_you_mean(self.board, lab.lab.boards) if lab else ""
        raise ConfigError(
            f"no board {self.board!r}{near}",
            hint="-t takes a board of the lab, HOST:PORT of a board's hdcd, or a key that the hdc"
            f" server at {HDC_SERVER}, or at --server HOST:PORT, knows",
        )

    def _consent(self) -> Consent:
        if not self.wait_authorised:
            return Consent()
        return Consent(_AUTHORISE_SECONDS, lambda what: click.echo(f"waiting: {what}", err=True))


def note_unprotected(server: str) -> None:
    """Warn if the server is on another host: hdc protects no connection. Raises ConfigError."""
    from labctl.text_types import is_on_loopback
    from labctl.transport.base import address_of

    address_of(server, "an hdc server")
    if not is_on_loopback(server):
        note(
            f"warning: the hdc server at {server} is not protected: hdc has neither password nor"
            " encryption; use a server on loopback, or an ssh tunnel"
        )


def _is_known_here(key: str) -> bool:
    """Return True if this host's hdc server runs, or can be started, and knows the key.

    Raises LinkError if something else listens there.
    """
    from labctl.text_types import split_endpoint
    from labctl.transport.hdc_server.shared import attached_boards

    boards = attached_boards(*split_endpoint(HDC_SERVER), timeout=_ANSWER_SECONDS)
    return any(board.key == key for board in boards)


def _wait_for_consent(transport: Transport) -> None:
    from labctl.transport.readiness import boot_id, wait_until_ready

    try:
        boot_id(transport, timeout=_ANSWER_SECONDS)
    except AccessDenied:
        raise  # another request would ask again on the board's screen
    except NotAuthorised as error:
        click.echo(f"{error.message}; {error.hint}; waiting for that", err=True)
        wait_until_ready(transport, timeout=_AUTHORISE_SECONDS)
