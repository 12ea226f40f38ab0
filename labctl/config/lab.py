"""``devices.yaml``: the boards of a lab, how they are reached, and the hosts that build for them.

The folder with the file is the lab. Facts about boards are not in the file, but read from the
board.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, reduce
from itertools import combinations
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from labctl.config.console import Console
from labctl.config.health import HealthChecks
from labctl.config.power import Meter
from labctl.config.quotas import Quota
from labctl.config.switches import Switches
from labctl.config.target import target_names
from labctl.config.transport import TransportConfig, kind_of
from labctl.config.types import (
    BoardPath,
    DatabaseUrl,
    Line,
    Name,
    RunTime,
    Size,
    StoreUrl,
    check_database_url,
)
from labctl.config.web import Web
from labctl.config.webhooks import Webhook
from labctl.config.yaml.document import Document, StrictModel, refuse, refuse_all
from labctl.config.yaml.loader import Value
from labctl.errors import ConfigError
from labctl.suggestions import did_you_mean, listed, unknown
from labctl.text_types import LAB_ROOT, HostPath, SshAddress, Word

FILE_NAME = "devices.yaml"
WORKDIR = "/data/local/tmp/labctl"
#: Environment variable that names the database, so that no file contains its password.
DATABASE_VARIABLE = "LABCTL_DATABASE"
#: PostgreSQL takes 63 characters; ``labctl_`` comes before a lab's name.
_LONGEST_SCHEMA = 56


class Limits(StrictModel):
    """Upper limits for a board."""

    max_time: RunTime | None = None
    """Longest time of one run on this board; the smaller of this and the recipe's limit applies."""
    storage: Size | None = None
    """Largest number of bytes that labctl keeps in the board's workdir."""


class Board(StrictModel):
    """One board."""

    model_config = ConfigDict(arbitrary_types_allowed=True)  # defined on a higher floor

    target: Name
    """Machine type of the board: a folder of toolchains/."""
    transport: TransportConfig
    """Way in which commands and files reach the board."""
    workdir: BoardPath = WORKDIR
    """The folder on the board that belongs to labctl: absolute; for a board that is on this host
    (local, or at a loopback address) it may begin at the lab's folder instead."""
    tags: tuple[Name, ...] = ()
    """Words that select boards."""
    host: Name | None = None
    """Name of the lab host that the board is attached to: its `labctl worker` runs the board's
    jobs. By default any host that reaches the board: a failed contact from another host does not
    count as an attempt."""
    limits: Limits = Limits()
    """Limits of what the board receives."""
    shares: tuple[Name, ...] = ()
    """Things that it shares with other boards, by their names in `shared_limits`."""
    power: Meter | None = None
    """Power meter of the board, for the energy of each trial."""
    console: Console | None = None
    """Serial console of the board: its log is kept with each run."""
    switches: Switches = Switches()
    """Ways to bring the board back when it fails."""
    untrusted: bool = False
    """True if unreviewed recipes and programs may run on it, for example from a pull request; its
    numbers never serve as a baseline."""
    description: Line | None = None
    """Description for people: location of the board, special properties."""

    _name: str = PrivateAttr("")

    @property
    def name(self) -> str:
        """Name of the board: its key in devices.yaml."""
        return self._name

    @field_validator("workdir", mode="before")
    @classmethod
    def _workdir_in_the_lab(cls, workdir: object, info: ValidationInfo) -> object:
        """Make a relative workdir absolute if the board uses this host's folders."""
        root = (info.context or {}).get(LAB_ROOT)
        transport = info.data.get("transport")
        on_this_host = transport is not None and transport.is_on_this_host
        relative = isinstance(workdir, str) and not workdir.startswith("/")
        return f"{root}/{workdir}" if root and on_this_host and relative else workdir

    @model_validator(mode="after")
    def _transport_fits(self) -> Self:
        if problem := self.transport.problem():
            raise refuse(problem[1], "transport", problem[0])
        if self.transport.needs_workdir and "workdir" not in self.model_fields_set:
            kind = self.transport.kind
            raise refuse(f"a board of `kind: {kind}` needs its own workdir", "workdir")
        if self.switches.restart_hdc and (why := self.transport.restart_problem()):
            raise refuse(f"must be false: {why}", "switches", "restart_hdc")
        if self.switches.console and self.console is None:
            raise refuse("needs the board's `console`", "switches", "console")
        return self


class BuildHost(StrictModel):
    """A host that builds, reached over ssh."""

    address: SshAddress
    """HOST or HOST:PORT."""
    user: Word | None = None
    """User name; by default the one of ssh's configuration."""
    key: HostPath | None = None
    """File of the private key; by default the keys of the ssh agent and the default keys."""
    known_hosts: HostPath | None = None
    """File with the host's public key; by default `~/.ssh/known_hosts`."""
    jump: Name | None = None
    """Another build host, used as jump host."""
    workdir: BoardPath = "/tmp/labctl"  # noqa: S108 - on the remote host; made with mode 0700
    """The folder on the host that belongs to labctl; made with mode 0700."""
    jobs: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of compilers at the same time; by default derived from the host's cores and free
    memory."""
    keep_trees: bool = False
    """Keep compiled trees, so that a further tool builds fast; by default only the source's archive
    stays on the host."""
    description: Line | None = None
    """Description for people."""


class Lab(StrictModel):
    """Content of a devices.yaml."""

    lab: Name | None = None
    """Name of the lab in leases and reports; by default the name of its folder."""
    default_board: Name | None = None
    """Board for commands that do not name a board."""
    database: DatabaseUrl | None = Field(default=None, repr=False)
    """URL of a PostgreSQL for the index and the lab's state, postgresql://USER@HOST/DATABASE; needs
    `lab`. The environment variable LABCTL_DATABASE wins. By default files in the lab's folder."""
    store: StoreUrl | None = None
    """Shared store of the lab's hosts, for files: a folder that all of them see,
    s3://BUCKET/PREFIX, or https://HOST/PATH. Keys come from the environment. By default each host
    keeps its own."""
    shared_limits: dict[Name, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """Number of jobs that may use a shared thing at once, such as a USB bus or this host's CPU.
    Boards and plans of batches refer to its name."""
    boards: dict[Name, Board]
    """The boards, by name."""
    build_hosts: dict[Name, BuildHost] = Field(default_factory=dict)
    """Hosts that build, by name."""
    web: Web = Web()
    """The dashboard, `labctl serve`."""
    webhooks: dict[Name, Webhook] = Field(default_factory=dict)
    """Chats and servers to which events are reported, by name."""
    health: HealthChecks = HealthChecks()
    """Health checks of the boards."""
    quotas: dict[Word, Quota] = Field(default_factory=dict)
    """Limits on a user's use of the boards, by the user's name; `default`: every other user."""

    def model_post_init(self, _context: Any, /) -> None:
        """Give each board its name."""
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
        for name, board in self.boards.items():
            for index, shared in enumerate(board.shares):
                if shared not in self.shared_limits:
                    path = ("boards", name, "shares", str(index))
                    problems.append((path, unknown("shared limit", shared, self.shared_limits)))
        problems += self._unknown_targets(info)
        if problems:
            raise refuse_all(problems)
        return self

    def _way_through(self, name: str) -> list[str]:
        """Return a build host and its jump hosts, in order; in a circle, one of them twice."""
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
            return  # the lab's own targets are not known
        known = target_names(Path(root))
        for name, board in self.boards.items():
            if board.target not in known:
                yield ("boards", name, "target"), unknown("target", board.target, known)

    @model_validator(mode="after")
    def _ways_differ(self) -> Self:
        for (before, first), (name, second) in combinations(self.boards.items(), 2):
            if clash := second.transport.clash(first.transport, before):
                raise refuse(clash[1], "boards", name, "transport", clash[0])
        return self

    def is_anywhere(self, name: str) -> bool:
        """Return True if a board may be at any host: other boards name a host, but it does not."""
        board = self.boards.get(name)
        return board is not None and not board.host and any(b.host for b in self.boards.values())

    def board(self, name: str | None = None) -> Board:
        """Return the board with this name; without a name, the default board or the only board.

        Raises ConfigError with the nearest name, or with all names.
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

    @property
    def only_target(self) -> str | None:
        """Target of all boards; None without boards, or if they have several."""
        targets = {board.target for board in self.boards.values()}
        return targets.pop() if len(targets) == 1 else None

    def _known(self) -> str:
        return listed(self.boards) if self.boards else "no boards yet"


@cache
def lab_model(transports: tuple[type[TransportConfig], ...]) -> type[Lab]:
    """Return the model of a devices.yaml whose boards are reached by these ``transports``."""
    kinds: dict[str, list[type[TransportConfig]]] = {}
    for transport in transports:
        kinds.setdefault(kind_of(transport), []).append(transport)
    ways = [
        Annotated[_one_of(same), Field(discriminator="link")] if len(same) > 1 else same[0]
        for same in kinds.values()
    ]
    way: Any = Annotated[_one_of(ways), Field(discriminator="kind")]
    board: Any = create_model(
        "Board",
        __base__=Board,
        __doc__=Board.__doc__,
        transport=(way, Field(description=Board.model_fields["transport"].description)),
    )
    return create_model(
        "Lab",
        __base__=Lab,
        __doc__=Lab.__doc__,
        boards=(dict[Name, board], Field(description=Lab.model_fields["boards"].description)),
    )


def _one_of(types: Iterable[Any]) -> Any:
    """Return the union of types that are known only at run time."""
    return reduce(or_, types)


@dataclass(frozen=True)
class LabFile:
    """A lab and its folder."""

    root: Path
    lab: Lab
    lease_seconds: float = 60.0  # a lease or an attempt ends after this without renewal

    @property
    def name(self) -> str:
        """Name of the lab."""
        return self.lab.lab or self.root.name or "lab"

    @property
    def database(self) -> str | None:
        """URL of its PostgreSQL (may hold a password), or None. Raises ConfigError.

        Labs in one database differ by their names, so a folder's name is not enough. A lab without
        a devices.yaml uses its own files.
        """
        named = self.lab.lab is not None or self.path.is_file()
        url = (os.environ.get(DATABASE_VARIABLE) if named else None) or self.lab.database
        if url is None:
            return None
        try:
            check_database_url(url)
        except ValueError as error:
            raise ConfigError(f"{DATABASE_VARIABLE} {error}") from None
        if self.lab.lab is None or len(self.lab.lab) > _LONGEST_SCHEMA:
            raise ConfigError(
                f"a lab in a database needs its own name, of at most {_LONGEST_SCHEMA}"
                " characters, by which hosts share it",
                hint=f"add a line to {self.path}: `lab: NAME`",
            )
        return url

    @property
    def path(self) -> Path:
        """Path of its devices.yaml."""
        return self.root / FILE_NAME

    def board(self, name: str | None = None) -> Board:
        """Return a board, as :meth:`Lab.board` does."""
        return self.lab.board(name)


def find_lab_root(start: Path) -> Path | None:
    """Return the nearest folder from ``start`` upwards that has a devices.yaml, or None."""
    here = start.resolve()
    return next((d for d in (here, *here.parents) if (d / FILE_NAME).is_file()), None)


def find_lab(start: Path, transports: tuple[type[TransportConfig], ...]) -> LabFile:
    """Return the lab that contains ``start``; its boards are reached by ``transports``.

    Other kinds of transport can come from installed packages. Raises ConfigError if there is no
    lab, or it is wrong.
    """
    root = find_lab_root(start)
    if root is None:
        raise ConfigError(
            f"no {FILE_NAME} in {start.resolve()} or a folder above it",
            hint="write a first one: `labctl init`, or name the lab's folder: `labctl --lab DIR …`",
        )
    document = Document.read(root / FILE_NAME)
    if others := _kinds(document.value) - {kind_of(one) for one in transports}:
        from labctl.config.transport_plugins import installed_transports  # slow, seldom needed

        transports = (*transports, *installed_transports(others))
    return LabFile(root, document.validated(lab_model(transports), context={LAB_ROOT: root}))


def _kinds(value: Value) -> set[str]:
    """Return the kinds of transport that a devices.yaml names; it may be wrong in any way."""
    found = set[str]()
    boards = value.get("boards") if isinstance(value, dict) else None
    for board in boards.values() if isinstance(boards, dict) else ():
        way = board.get("transport") if isinstance(board, dict) else None
        kind = way.get("kind") if isinstance(way, dict) else None
        found |= {kind} if isinstance(kind, str) else set()
    return found
