"""``devices.yaml``: the boards of a lab, how they are reached, and the hosts that build for them.

The folder that holds the file is the lab. Nothing here says what a board can do: that is asked of
the board.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from labctl.config.names import did_you_mean, listed, unknown
from labctl.config.power import Meter
from labctl.config.quantities import Duration, Size
from labctl.config.target import target_names
from labctl.config.types import (
    BoardPath,
    Endpoint,
    HdcKey,
    HostPath,
    Line,
    Name,
    SshAddress,
    Word,
    split_endpoint,
)
from labctl.config.yaml.document import LAB_ROOT, StrictModel, load, refuse, refuse_all
from labctl.errors import ConfigError

FILE_NAME = "devices.yaml"
WORKDIR = "/data/local/tmp/labctl"
#: Where the hdc server of this host listens when nobody tells it otherwise.
HDC_SERVER = "127.0.0.1:8710"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class HdcTcpTransport(StrictModel):
    """A board reached over OpenHarmony's hdc, straight at its hdc daemon on TCP."""

    kind: Literal["hdc"]
    """How the board is reached."""
    link: Literal["tcp"]
    """`tcp`: straight to the board's hdc daemon; no `hdc` program is needed on this host."""
    address: Endpoint
    """Where the board's hdc daemon listens, HOST:PORT."""
    key_file: HostPath | None = None
    """The host key to show to a locked board; otherwise ~/.harmony/hdckey, else labctl's own."""

    @field_validator("key_file")
    @classmethod
    def _key_file_in_the_lab(cls, key_file: str | None, info: ValidationInfo) -> str | None:
        root = (info.context or {}).get(LAB_ROOT)
        return key_file if key_file is None or root is None else str(Path(root) / key_file)

    @property
    def host(self) -> str:
        """The host part of the address."""
        return split_endpoint(self.address)[0]

    @property
    def port(self) -> int:
        """The port part of the address."""
        return split_endpoint(self.address)[1]

    @property
    def place(self) -> str:
        """Where the board is, for people."""
        return self.address


class HdcServerTransport(StrictModel):
    """A board reached over OpenHarmony's hdc, through an hdc server: on a USB cable, say."""

    kind: Literal["hdc"]
    """How the board is reached."""
    link: Literal["server"]
    """`server`: through an hdc server that runs, or that the `hdc` program on PATH starts."""
    key: HdcKey
    """The board's key, as `hdc list targets` shows it: a serial number, or IPv4:PORT."""
    server: Endpoint = HDC_SERVER
    """Where the server listens, HOST:PORT."""
    private: bool = False
    """Whether labctl runs a server of its own for the board, instead of `server`."""

    @property
    def is_cabled(self) -> bool:
        """Whether the board is on a cable: one server of its host has them all."""
        return ":" not in self.key

    @model_validator(mode="after")
    def _one_server(self) -> Self:
        if self.private and "server" in self.model_fields_set:
            raise refuse("a private server listens where it likes: drop this", "server")
        return self

    @property
    def place(self) -> str:
        """Where the board is, for people."""
        return self.key


class LocalTransport(StrictModel):
    """This host itself, as if it were a board."""

    kind: Literal["local"]
    """How the board is reached."""

    @property
    def place(self) -> str:
        """Where the board is, for people."""
        return self.kind


def _known_kind(transport: object) -> object:
    if isinstance(transport, dict) and transport.get("kind") == "ssh":
        raise refuse("boards over ssh are not in this version; use hdc or local", "kind")
    return transport


HdcTransport = Annotated[HdcTcpTransport | HdcServerTransport, Field(discriminator="link")]
Transport = Annotated[
    HdcTransport | LocalTransport, Field(discriminator="kind"), BeforeValidator(_known_kind)
]


class Limits(StrictModel):
    """What a board is given at most."""

    max_time: Duration | None = None
    """The longest that one run may take on this board; the smaller of this and the recipe's."""
    storage: Size | None = None
    """The most that labctl keeps in the board's workdir."""


class Board(StrictModel):
    """One board."""

    target: Name
    """What is built for the board: a folder of toolchains/."""
    transport: Transport
    """How commands and files reach the board."""
    workdir: BoardPath = WORKDIR
    """The folder on the board that belongs to labctl: absolute; for a board that is on this host
    (local, or at a loopback address) it may begin at the lab's folder instead."""
    tags: tuple[Name, ...] = ()
    """Words to choose boards by."""
    limits: Limits = Limits()
    """What the board is given at most."""
    power: Meter | None = None
    """The meter of what it draws, for the energy of each trial."""
    description: Line | None = None
    """For people: where the board stands, what is special about it."""

    _name: str = PrivateAttr("")

    @property
    def name(self) -> str:
        """Its key in devices.yaml."""
        return self._name

    @field_validator("workdir", mode="before")
    @classmethod
    def _workdir_in_the_lab(cls, workdir: object, info: ValidationInfo) -> object:
        """Make a relative workdir absolute where this host's folders are the board's too."""
        root = (info.context or {}).get(LAB_ROOT)
        transport = info.data.get("transport")
        on_this_host = isinstance(transport, LocalTransport) or (
            isinstance(transport, HdcTcpTransport) and transport.host in _LOOPBACK
        )
        relative = isinstance(workdir, str) and not workdir.startswith("/")
        return f"{root}/{workdir}" if root and on_this_host and relative else workdir

    @model_validator(mode="after")
    def _local_has_workdir(self) -> Self:
        if self.transport.kind == "local" and "workdir" not in self.model_fields_set:
            raise refuse("a local board needs a workdir of its own on this host", "workdir")
        return self


class BuildHost(StrictModel):
    """A host that builds, reached over ssh."""

    address: SshAddress
    """HOST or HOST:PORT."""
    user: Word | None = None
    """The user to log in as; otherwise what ssh's own configuration says."""
    key: HostPath | None = None
    """The private key's file; otherwise the ssh agent and the default keys."""
    known_hosts: HostPath | None = None
    """The file with the host's public key; otherwise ssh's own `~/.ssh/known_hosts`."""
    jump: Name | None = None
    """Another build host to go through."""
    workdir: BoardPath = "/tmp/labctl"  # noqa: S108 - on the remote host; made with mode 0700
    """The folder on the host that belongs to labctl; made with mode 0700."""
    jobs: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Compilers at once; otherwise from the host's cores and free memory."""
    keep_trees: bool = False
    """Keep compiled trees, so that a further tool costs little; otherwise nothing of a build stays
    on the host but the source's archive."""
    description: Line | None = None
    """For people."""


class Lab(StrictModel):
    """Everything in a devices.yaml."""

    lab: Name | None = None
    """What the lab is called in leases and reports; otherwise the name of its folder."""
    default_board: Name | None = None
    """The board that commands take when none is named."""
    boards: dict[Name, Board]
    """The boards, by name."""
    build_hosts: dict[Name, BuildHost] = Field(default_factory=dict)
    """Hosts that build, by name."""

    def model_post_init(self, _context: Any, /) -> None:
        """Tell each board its name."""
        for name, board in self.boards.items():
            board._name = name

    @model_validator(mode="after")
    def _names_exist(self, info: ValidationInfo) -> Self:
        problems: list[tuple[tuple[str, ...], str]] = []
        if self.default_board is not None and self.default_board not in self.boards:
            problems.append((("default_board",), unknown("board", self.default_board, self.boards)))
        for name, host in self.build_hosts.items():
            if host.jump is not None and (host.jump == name or host.jump not in self.build_hosts):
                what = unknown("other build host", host.jump, set(self.build_hosts) - {name})
                problems.append((("build_hosts", name, "jump"), what))
            elif name in (way := self._way_through(name))[1:]:
                what = f"goes round in a circle: {' -> '.join(way)}"
                problems.append((("build_hosts", name, "jump"), what))
        problems += self._unknown_targets(info)
        if problems:
            raise refuse_all(problems)
        return self

    def _way_through(self, name: str) -> list[str]:
        """The build hosts on the way to one, itself first; with a circle, one of them twice."""
        way: list[str] = []
        step: str | None = name
        while step is not None and step not in way:
            way.append(step)
            host = self.build_hosts.get(step)
            step = None if host is None else host.jump
        return way if step is None else [*way, step]

    def _unknown_targets(self, info: ValidationInfo) -> Iterator[tuple[tuple[str, ...], str]]:
        root = (info.context or {}).get(LAB_ROOT)
        if root is None:
            return  # targets of the lab's own are not known
        known = target_names(Path(root))
        for name, board in self.boards.items():
            if board.target not in known:
                yield ("boards", name, "target"), unknown("target", board.target, known)

    @model_validator(mode="after")
    def _ways_differ(self) -> Self:
        seen: dict[tuple[str, str, int], str] = {}
        for name, board in self.boards.items():
            match board.transport:
                case HdcTcpTransport(address=endpoint):
                    way, told = _way("tcp", endpoint), "address"
                case HdcServerTransport(key=key, server=endpoint, private=private):
                    way = (key, "", 0) if private else _way(key, endpoint)
                    told = "key"
                case LocalTransport():
                    continue
            if way in seen:
                what = f"board '{seen[way]}' has this {told} too"
                raise refuse(what, "boards", name, "transport", told)
            seen[way] = name
        return self

    @model_validator(mode="after")
    def _one_server_has_the_cables(self) -> Self:
        """Two servers of one host would fight over the boards on its cables."""
        first: tuple[str, tuple[str, int] | None] | None = None
        for name, board in self.boards.items():
            way = board.transport
            if not isinstance(way, HdcServerTransport) or not way.is_cabled:
                continue
            host, port = split_endpoint(way.server)
            if host not in _LOOPBACK:
                continue
            server = None if way.private else ("", port)
            if first is None:
                first = name, server
            elif server != first[1]:
                what = f"board '{first[0]}' is on a cable of this host too, with another server"
                raise refuse(what, "boards", name, "transport", "key")
        return self

    def board(self, name: str | None = None) -> Board:
        """The board of that name; without one, the default board or the only one.

        Raises ConfigError with the nearest name, or with all of them.
        """
        if name is None:
            name = self.default_board
        if name is None:
            if len(self.boards) == 1:
                return next(iter(self.boards.values()))
            raise ConfigError(
                f"no board is named, and {FILE_NAME} has no default_board",
                hint=f"name one with --board: {self._known()}",
            )
        if name not in self.boards:
            raise ConfigError(
                f"no board {name!r} in {FILE_NAME}{did_you_mean(name, self.boards)}",
                hint=f"it knows {self._known()}",
            )
        return self.boards[name]

    def _known(self) -> str:
        return listed(self.boards) if self.boards else "no boards yet"


def _way(what: str, endpoint: str) -> tuple[str, str, int]:
    host, port = split_endpoint(endpoint)
    return what, host.lower(), port


@dataclass(frozen=True)
class LabFile:
    """A lab and its folder."""

    root: Path
    lab: Lab

    @property
    def name(self) -> str:
        """What the lab is called."""
        return self.lab.lab or self.root.name or "lab"

    @property
    def path(self) -> Path:
        """Its devices.yaml."""
        return self.root / FILE_NAME

    def board(self, name: str | None = None) -> Board:
        """As ``Lab.board``."""
        return self.lab.board(name)


def find_lab_root(start: Path) -> Path | None:
    """The nearest folder, from ``start`` upwards, that holds a devices.yaml."""
    here = start.resolve()
    return next((d for d in (here, *here.parents) if (d / FILE_NAME).is_file()), None)


def find_lab(start: Path) -> LabFile:
    """The lab that ``start`` is in. Raises ConfigError when there is none, or it is wrong."""
    root = find_lab_root(start)
    if root is None:
        raise ConfigError(
            f"no {FILE_NAME} in {start.resolve()} or a folder above it",
            hint="write a first one: `labctl init`, or name the lab's folder: `labctl --lab DIR …`",
        )
    return LabFile(root, load(root / FILE_NAME, Lab, context={LAB_ROOT: root}))
