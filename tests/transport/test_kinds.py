"""Kinds of transport: a lab asks a model about itself, and takes one that labctl does not know."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_type_hints

import pytest
from third_party import write_package

import labctl
from labctl.config.lab import Lab, find_lab, lab_model
from labctl.config.transport import TransportConfig
from labctl.config.yaml.document import parse
from labctl.errors import ConfigError, HostError
from labctl.transport.base import OpenOptions, Transport, rules
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig
from labctl.transport.local import LocalConfig
from labctl.transport.ssh.config import SshConfig
from labctl.transport.ssh.transport import SshTransport
from labctl.transport.testing import ScriptedTransport

PACKAGE = Path(labctl.__file__).parent
#: A library below the transports, with asyncio's of the same name.
BELOW = {"transport", "adb", "hdc"}
#: `labctl hdc list` shows the lab's boards over hdc: that kind is what it is asked for.
#: A model of an installed package is checked.
ALLOWED = {
    ("cli/hdc/listing.py", "board.transport.kind == 'hdc'"),
    ("config/transport_plugins.py", "issubclass(candidate, TransportConfig)"),
}
KINDS = {get_args(get_type_hints(config)["kind"])[0] for config in TRANSPORTS}


def subclasses(base: type) -> Iterator[type]:
    """A class, and all that are made from it."""
    yield base
    for one in base.__subclasses__():
        yield from subclasses(one)


CLASSES = {
    one.__name__
    for base in (Transport, TransportConfig)
    for one in subclasses(base)
    if one.__module__.startswith("labctl.")
}


def probes(tree: ast.AST) -> Iterator[str]:
    """Code that looks at which kind of transport it has, instead of asking it."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                found = _names(kinds) & CLASSES
            case ast.MatchClass(cls=kinds):
                found = _names(kinds) & CLASSES
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[asked, *_]):
                found = _names(asked) & {"transport"}
            case ast.Compare(left=left, comparators=others):
                found = _compared(left, *others)
            case ast.Match(subject=subject, cases=cases):
                found = _compared(subject, *(case.pattern for case in cases))
            case _:
                continue
        if found:
            yield ast.unparse(node)


def _names(node: ast.AST) -> set[str]:
    return {
        part.id if isinstance(part, ast.Name) else part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Name | ast.Attribute)
    }


def _compared(*sides: ast.AST) -> set[str]:
    """The kinds, or the classes, that are compared."""
    named: set[str] = set().union(*(_names(side) for side in sides))
    texts = {
        part.value
        for side in sides
        for part in ast.walk(side)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    }
    return (texts & KINDS if "kind" in named else set()) | (
        named & CLASSES if "type" in named else set()
    )


def test_no_floor_above_looks_at_the_kind_of_a_transport() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), code)
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in BELOW
        for code in probes(ast.parse(path.read_text()))
    }
    assert found == ALLOWED


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(board.transport, HdcServerConfig)",
        "isinstance(link, transport.LocalTransport | None)",
        "type(board.transport) is LocalConfig",
        "board.transport.kind == 'local'",
        "kind in ('ssh', 'hdc')",
        "getattr(self.transport, 'link', None)",
        "match transport:\n    case SshConfig(host=host):\n        pass",
        "match board.transport.kind:\n    case 'ssh':\n        pass",
    ],
)
def test_a_look_at_the_kind_would_be_seen(line: str) -> None:
    assert list(probes(ast.parse(line)))


def test_all_classes_of_transports_are_known() -> None:
    assert {one.__name__ for one in TRANSPORTS} | {"HdcTransport", SshTransport.__name__} <= CLASSES
    assert {"hdc", "adb", "ssh", "local"} == KINDS


def test_each_kind_answers_for_itself() -> None:
    def answers(way: TransportConfig) -> tuple[bool, bool, int | None, str | None]:
        return way.is_this_host, way.is_on_this_host, way.port_on_this_host, way.attached_to

    usb = HdcServerConfig(key="x")
    far = HdcServerConfig(key="x", ssh=SshConfig(host="lab2", user="me"))
    assert answers(LocalConfig()) == (True, True, None, None)
    assert answers(HdcTcpConfig(address="localhost:5555")) == (False, True, 5555, None)
    assert answers(HdcTcpConfig(address="10.0.0.1:5555")) == (False, False, None, None)
    assert answers(usb) == (False, False, None, None)
    assert answers(far) == (False, False, None, "me@lab2")
    assert answers(SshConfig(host="pi")) == (False, False, None, None)
    assert usb.restart_problem() is None
    assert "not through `ssh`" in (far.restart_problem() or "")
    assert "only a board with `link: server`" in (LocalConfig().restart_problem() or "")
    for way, why in (
        (LocalConfig(), "there is no hdc server on the way to this board"),
        (HdcServerConfig(key="x", private=True), "restarted whenever it hangs"),
    ):
        with pytest.raises(HostError, match=why):
            way.end_server(1)


@dataclass(frozen=True, kw_only=True)
class SerialConfig(TransportConfig):
    """A board on a serial line: a kind of somebody else."""

    __pydantic_config__: ClassVar[dict[str, Any]] = rules()
    needs_workdir: ClassVar[bool] = True

    kind: Literal["serial"] = "serial"
    """Way to reach the board."""
    device: str
    """File of the line."""

    @property
    def location(self) -> str:
        """The line."""
        return self.device

    def problem(self) -> tuple[str, str] | None:
        """Refuse what is no device."""
        return None if self.device.startswith("/dev/") else ("device", "is no device")

    def open(self, options: OpenOptions | None = None) -> ScriptedTransport:
        """Return a board that says yes."""
        return ScriptedTransport("yes\n", label=f"serial {self.device}")


SERIAL = """\
boards:
  old:
    target: rk3568
    transport: {kind: serial, device: /dev/ttyUSB0}
    workdir: /data/labctl
  new:
    target: rk3568
    transport: {kind: hdc, link: tcp, address: "127.0.0.1:5555"}
"""


def serial_lab(text: str) -> Lab:
    return parse(text, lab_model((*TRANSPORTS, SerialConfig)), "devices.yaml")


def test_a_kind_of_somebody_else_needs_no_edit() -> None:
    board = serial_lab(SERIAL).board("old")
    assert isinstance(board.transport, SerialConfig)
    assert (board.transport.kind, board.transport.location) == ("serial", "/dev/ttyUSB0")
    with board.transport.open() as link:
        assert link.run("true", timeout=1).text == "yes\n"
    assert not board.transport.is_this_host


SERIAL_PACKAGE = """\
from test_kinds import SerialConfig

TRANSPORTS = (SerialConfig,)
"""


def test_a_package_brings_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of another package, which fails when it is imported, is not asked for."""
    (tmp_path / "devices.yaml").write_text(SERIAL)
    with pytest.raises(ConfigError, match=r"boards\.old\.transport\.kind"):
        find_lab(tmp_path, TRANSPORTS)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    write_package(tmp_path / "site", "rs232", SERIAL_PACKAGE, name="serial", offers="transports")
    write_package(tmp_path / "site", "gpib", "1 / 0", name="gpib", offers="transports")
    assert find_lab(tmp_path, TRANSPORTS).board("old").transport.location == "/dev/ttyUSB0"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("TRANSPORTS = (str,)", "rs232:TRANSPORTS is not a tuple of TransportConfigs"),
        (
            "from labctl.transport.local import LocalConfig\nTRANSPORTS = (LocalConfig,)",
            "the kind of rs232:TRANSPORTS is not 'serial'",
        ),
    ],
)
def test_a_package_that_does_not_fit_is_named(
    code: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "devices.yaml").write_text(SERIAL)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "rs232", raising=False)
    write_package(tmp_path / "site", "rs232", code, name="serial", offers="transports")
    with pytest.raises(ConfigError) as caught:
        find_lab(tmp_path, TRANSPORTS)
    told = f"the transport 'serial' of rs232 0.1 cannot be used: {problem}"
    assert caught.value.message == told


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("/dev/ttyUSB0", "ttyUSB0"), "4:39: boards.old.transport.device: is no device"),
        (("device: /dev", "line: /dev"), "4:31: boards.old.transport.line: unknown key"),
        (
            ("    workdir: /data/labctl\n", ""),
            "2:3: boards.old.workdir: a board of `kind: serial` needs its own workdir",
        ),
        (
            ("  new:", "    switches: {restart_hdc: true}\n  new:"),
            "6:29: boards.old.switches.restart_hdc: must be false: only a board with `link:",
        ),
    ],
)
def test_its_mistakes_are_told_with_their_place(change: tuple[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        serial_lab(SERIAL.replace(*change))
    assert problem in caught.value.message
