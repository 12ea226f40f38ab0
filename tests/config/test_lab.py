import re
from pathlib import Path

import pytest

from labctl.config.init_files import VIRTUAL_BOARD_FOLDER, devices_yaml
from labctl.config.lab import Lab, find_lab, lab_model
from labctl.config.power import CommandMeter, HttpMeter
from labctl.config.yaml.document import parse
from labctl.errors import ConfigError
from labctl.text_types import LAB_ROOT
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig
from labctl.virtual import sandbox

TWO_BOARDS = """\
boards:
  rk1:
    target: rk3568
    transport: {kind: hdc, link: tcp, address: "192.168.1.20:5555"}
    limits: {max_time: 2h, storage: 20GB}
  rk2:
    target: rk3568
    transport: {kind: hdc, link: tcp, address: "192.168.1.21:5555"}
    workdir: /data/labctl/
build_hosts:
  arm: {address: build.example.org, user: ci}
"""


SERVED_BOARDS = """\
boards:
  rk1:
    target: rk3568
    transport: {kind: hdc, link: server, key: aaa}
  rk2:
    target: rk3568
    transport: {kind: hdc, link: server, key: bbb}
"""


def lab(text: str) -> Lab:
    return parse(text, lab_model(TRANSPORTS), "devices.yaml", context={LAB_ROOT: "/lab"})


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        lab(text)
    return caught.value.message


def board(**keys: str) -> str:
    """A devices.yaml with one board, whose keys are on lines 3 and on."""
    lines = {"target": "rk3568", "transport": "{kind: local}", "workdir": "/tmp/x"} | keys
    return "boards:\n  rk1:\n" + "".join(f"    {key}: {value}\n" for key, value in lines.items())


def test_boards_and_their_defaults() -> None:
    found = lab(TWO_BOARDS)
    rk1, rk2 = found.board("rk1"), found.board("rk2")
    assert (rk1.name, rk1.workdir, rk2.workdir) == ("rk1", "/data/local/tmp/labctl", "/data/labctl")
    assert (rk1.limits.max_time, rk1.limits.storage) == (7200, 20 * 10**9)
    assert isinstance(rk1.transport, HdcTcpConfig)
    assert rk1.transport.address == "192.168.1.20:5555"


def test_a_workdir_may_begin_at_the_lab_when_the_board_is_on_this_host() -> None:
    for address in ("127.0.0.1:5555", "localhost:1", "[::1]:5555"):
        here = f'{{kind: hdc, link: tcp, address: "{address}"}}'
        assert lab(board(transport=here, workdir="a/b")).board().workdir == "/lab/a/b"
    assert lab(board(workdir="a/b")).board().workdir == "/lab/a/b"


def test_boards_behind_a_server() -> None:
    found = lab(SERVED_BOARDS).boards
    served = found["rk1"].transport
    assert isinstance(served, HdcServerConfig)
    assert served.open().label == "hdc server 127.0.0.1:8710 aaa"
    for way in ('server: "lab2:8710", trust_network: true', "ssh: {host: lab2}"):
        elsewhere = lab(SERVED_BOARDS.replace("bbb", f"aaa, {way}")).board("rk2").transport
        assert elsewhere.location == "aaa"  # another server's board
    on_tcp = SERVED_BOARDS.replace("bbb", "'10.0.0.1:5555', private: true")
    own = lab(on_tcp).board("rk2").transport
    assert isinstance(own, HdcServerConfig)
    assert own.private


def test_meters_of_power() -> None:
    command = lab(board(power='{kind: command, command: ["./m.py", "-1"], unit: mW}')).board().power
    assert isinstance(command, CommandMeter)
    assert (command.folder, command.interval, command.timeout) == (Path("/lab"), 1, 2)
    assert (command.location, command.command) == ("command m.py", ("./m.py", "-1"))
    for address, place in {
        "http://192.168.1.30/cm?user=a&password=b": "http 192.168.1.30",
        "http://localhost:8080": "http localhost:8080",
        "http://[fd00::2]/x": "http [fd00::2]",
    }.items():
        keys = f"{{kind: http, address: '{address}', field: a.0.b, unit: Wh, interval: 250ms}}"
        http = lab(board(power=keys)).board().power
        assert isinstance(http, HttpMeter)
        assert (http.location, http.interval) == (place, 0.25)


@pytest.mark.parametrize("host", ["0.0.0.0", "999.1.1.1", "[::]", "[::g]", "10.0.0.1:0", "[1.2]"])
def test_addresses_of_meters_that_cannot_be(host: str) -> None:
    message = refusal(board(power=f"{{kind: http, address: 'http://{host}/', field: x, unit: W}}"))
    assert message.startswith("devices.yaml:6:34: boards.rk1.power.address: ")


def test_an_ipv6_address() -> None:
    transport = (
        lab(board(transport='{kind: hdc, link: tcp, address: "[fe80::1]:5555"}')).board().transport
    )
    assert isinstance(transport, HdcTcpConfig)
    assert transport.open().label == "hdc tcp fe80::1:5555"


def test_the_only_board_needs_no_name() -> None:
    assert lab(board()).board().name == "rk1"


def test_the_default_board_needs_no_name() -> None:
    assert lab("default_board: rk2\n" + TWO_BOARDS).board().name == "rk2"


def test_two_boards_need_a_name() -> None:
    with pytest.raises(ConfigError, match="no board is named") as caught:
        lab(TWO_BOARDS).board()
    assert caught.value.hint == "name one with --board: rk1 or rk2"


def test_an_unknown_board() -> None:
    with pytest.raises(ConfigError) as caught:
        lab(TWO_BOARDS).board("rk3")
    assert caught.value.message.startswith("no board 'rk3' in devices.yaml (did you mean 'rk")
    assert caught.value.hint == "it knows rk1 or rk2"


BAD_LABS = {
    "target": (
        board(target="rk3569"),
        "3:13: boards.rk1.target: no target 'rk3569' (did you mean 'rk3568'?)",
    ),
    "default_board": (
        "default_board: rk3\n" + board(),
        "1:16: default_board: no board 'rk3' (did you mean 'rk1'?)",
    ),
    "same address": (
        TWO_BOARDS.replace(".21", ".20"),
        "8:48: boards.rk2.transport.address: board 'rk1' has this address too",
    ),
    "name": (
        board().replace("rk1", "RK 1"),
        (
            "2:3: boards.'RK 1': must be a-z, 0-9, '-' and '_' (at most 63), beginning with a"
            " letter or digit, not 'RK 1'"
        ),
    ),
    "link": (
        board(transport="{kind: hdc, link: usb, key: x}"),
        "4:34: boards.rk1.transport.link: must be tcp or server, not 'usb'",
    ),
    "link left out": (
        board(transport="{kind: hdc, key: x}"),
        "4:16: boards.rk1.transport: the key 'link' is required",
    ),
    "address through a server": (
        board(transport="{kind: hdc, link: server, key: x, address: 'x:1'}"),
        (
            "4:50: boards.rk1.transport.address: unknown key; known here: key, kind, link, private,"
            " server, ssh, trust_network"
        ),
    ),
    "key of digits": (
        board(transport="{kind: hdc, link: server, key: 700100}"),
        "4:47: boards.rk1.transport.key: must be text, not 700100; put it in quotes",
    ),
    "long key": (
        board(transport=f"{{kind: hdc, link: server, key: {'x' * 33}}}"),
        (
            "4:47: boards.rk1.transport.key: must be a key from `hdc list targets`: 1 to 32"
            f" characters, no blanks, not '{'x' * 33}'"
        ),
    ),
    "any key": (
        board(transport="{kind: hdc, link: server, key: any}"),
        (
            "4:47: boards.rk1.transport.key: 'any' is not a board's key: to hdc it means any"
            " connected board"
        ),
    ),
    "key with a host's name": (
        board(transport="{kind: hdc, link: server, key: 'lab2:5555'}"),
        (
            "4:47: boards.rk1.transport.key: must be IPv4:PORT such as 192.168.1.20:5555: hdc looks"
            " up no names, not 'lab2:5555'"
        ),
    ),
    "key with no port": (
        board(transport="{kind: hdc, link: server, key: '10.0.0.1:99999'}"),
        (
            "4:47: boards.rk1.transport.key: must be HOST:PORT such as 192.168.1.20:5555, not"
            " '10.0.0.1:99999'"
        ),
    ),
    "private server at an address": (
        board(transport="{kind: hdc, link: server, key: x, private: true, server: 'x:1'}"),
        ("4:73: boards.rk1.transport.server: a private server listens where it likes: drop this"),
    ),
    "server on another host": (
        board(transport="{kind: hdc, link: server, key: x, server: 'lab2:8710'}"),
        (
            "4:58: boards.rk1.transport.server: is on another host, and hdc has neither password"
            " nor encryption: let labctl make a tunnel (`ssh: {host: lab2}` in place of this), or"
            " say that everybody on the way is trusted (`trust_network: true`)"
        ),
    ),
    "server beyond the end of a tunnel": (
        board(transport="{kind: hdc, link: server, key: x, server: 'b:8710', ssh: {host: a}}"),
        (
            "4:58: boards.rk1.transport.server: must be on that host's loopback (127.0.0.1:8710):"
            " hdc has no password"
        ),
    ),
    "tunnel to a port that TCP does not have": (
        board(transport="{kind: hdc, link: server, key: x, ssh: {host: a, port: 70000}}"),
        "4:55: boards.rk1.transport.ssh: port must be from 1 to 65535",
    ),
    "tunnel to a private server": (
        board(transport="{kind: hdc, link: server, key: x, private: true, ssh: {host: a}}"),
        "4:70: boards.rk1.transport.ssh: a private server is on this host: drop this",
    ),
    "restart of a server behind a tunnel": (
        board(
            transport="{kind: hdc, link: server, key: x, ssh: {host: a}}",
            switches="{restart_hdc: true}",
        ),
        (
            "6:29: boards.rk1.switches.restart_hdc: must be false: an hdc server is restarted on"
            " its own host, not through `ssh`"
        ),
    ),
    "commands for a console that is not there": (
        board(switches="{console: [[reboot]]}"),
        "6:25: boards.rk1.switches.console: needs the board's `console`",
    ),
    "a command with a character that a terminal obeys": (
        board(switches='{console: [[echo, "a\\x03b"]]}'),
        (
            "6:26: boards.rk1.switches.console[0]: must have no control characters: a terminal"
            " obeys them"
        ),
    ),
    "a console that is no port": (
        board(console="{device: ttyUSB0}"),
        (
            "6:23: boards.rk1.console.device: must be /dev/NAME, socket://HOST:PORT or"
            " rfc2217://HOST:PORT, such as /dev/ttyUSB0, not 'ttyUSB0'"
        ),
    ),
    "same key at one server behind tunnels": (
        SERVED_BOARDS.replace("aaa", "aaa, ssh: {host: a}").replace(
            "bbb", "aaa, ssh: {host: a, user: me}"
        ),
        "7:47: boards.rk2.transport.key: board 'rk1' has this key too",
    ),
    "cables of one host on two servers": (
        SERVED_BOARDS.replace("bbb", 'bbb, server: "localhost:8711"'),
        (
            "7:47: boards.rk2.transport.key: board 'rk1' is on a cable of this host too, with"
            " another server"
        ),
    ),
    "cables of one host on a private server": (
        SERVED_BOARDS.replace("bbb", "bbb, private: true"),
        (
            "7:47: boards.rk2.transport.key: board 'rk1' is on a cable of this host too, with"
            " another server"
        ),
    ),
    "same key": (
        SERVED_BOARDS.replace("bbb", "aaa"),
        "7:47: boards.rk2.transport.key: board 'rk1' has this key too",
    ),
    "ssh without workdir": (
        "boards:\n  rk1: {target: rk3568, transport: {kind: ssh, host: x}}",
        "2:3: boards.rk1.workdir: a board of `kind: ssh` needs its own workdir",
    ),
    "ssh address": (
        board(transport="{kind: ssh, host: 'x:22'}"),
        (
            "4:34: boards.rk1.transport.host: must be a host's name or address, without a port,"
            " not 'x:22'"
        ),
    ),
    "ssh address with a port": (
        board(transport="{kind: ssh, host: '192.168.1.20:2222'}"),
        (
            "4:34: boards.rk1.transport.host: must be a host's name or address, without a port,"
            " not '192.168.1.20:2222'"
        ),
    ),
    "ssh address that is no IPv6 address": (
        board(transport="{kind: ssh, host: 'fe80::1::2'}"),
        (
            "4:34: boards.rk1.transport.host: must be a host's name or address, without a port,"
            " not 'fe80::1::2'"
        ),
    ),
    "one ssh address, with the usual port and with none": (
        board(transport="{kind: ssh, host: x}")
        + board(transport="{kind: ssh, host: x, port: 22}").replace("boards:\n  rk1", "  rk2"),
        "8:34: boards.rk2.transport.host: board 'rk1' has this host and port too",
    ),
    "ssh port": (
        board(transport="{kind: ssh, host: x, port: 70000}"),
        "4:43: boards.rk1.transport.port: must be from 1 to 65535",
    ),
    "ssh hop": (
        board(transport="{kind: ssh, host: x, proxy_jump: 'a@b@c'}"),
        (
            "4:49: boards.rk1.transport.proxy_jump: must be [USER@]HOST[:PORT] such as"
            " me@gate.example.org:2222, not 'a@b@c'"
        ),
    ),
    "port": (
        board(transport="{kind: hdc, link: tcp, address: '192.168.1.20:70000'}"),
        (
            "4:48: boards.rk1.transport.address: must be HOST:PORT such as 192.168.1.20:5555,"
            " not '192.168.1.20:70000'"
        ),
    ),
    "percent": (
        board(workdir="/data/%s"),
        (
            "5:14: boards.rk1.workdir: must not contain '%': a path with one can crash the"
            " board's hdc daemon"
        ),
    ),
    "relative workdir": (
        board(workdir="data", transport="{kind: hdc, link: tcp, address: 'rk1:5555'}"),
        "5:14: boards.rk1.workdir: must be an absolute path below / on the board, not 'data'",
    ),
    "root workdir": (
        board(workdir="//"),
        "5:14: boards.rk1.workdir: must be an absolute path below / on the board, not '//'",
    ),
    "upward workdir": (
        board(workdir="/data/../etc"),
        "5:14: boards.rk1.workdir: must not contain the steps '.' and '..'",
    ),
    "local without workdir": (
        "boards:\n  rk1: {target: rk3568, transport: {kind: local}}",
        "2:3: boards.rk1.workdir: a board of `kind: local` needs its own workdir",
    ),
    "power of a program that is not named": (
        board(power="{kind: command, command: [], unit: W}"),
        ("6:37: boards.rk1.power.command: must have at least 1 entry"),
    ),
    "power in a unit that is none": (
        board(power="{kind: command, command: [meter], unit: A}"),
        "6:52: boards.rk1.power.unit: must be W, mW, J, Wh or kWh, not 'A'",
    ),
    "power asked for too often": (
        board(power="{kind: command, command: [meter], unit: W, interval: 10ms}"),
        "6:65: boards.rk1.power.interval: must be from 100ms to 60s, not '10ms'",
    ),
    "power of a host on the internet": (
        board(power="{kind: http, address: 'http://8.8.8.8/x', field: x, unit: W}"),
        (
            "6:34: boards.rk1.power.address: must be in this network: a private or loopback"
            " address, not 'http://8.8.8.8/...'"
        ),
    ),
    "power of a host by name": (
        board(power="{kind: http, address: 'http://plug.example.org/x', field: x, unit: W}"),
        (
            "6:34: boards.rk1.power.address: must be an address such as"
            " http://192.168.1.30/status, by number, not 'http://plug.example.org/...'"
        ),
    ),
    "power with a password": (
        board(power="{kind: http, address: 'http://me:pw@10.0.0.1/x', field: x, unit: W}"),
        (
            "6:34: boards.rk1.power.address: must be an address such as"
            " http://192.168.1.30/status, by number, not 'http://...'"
        ),
    ),
    "power of no number": (
        board(power="{kind: http, address: 'http://10.0.0.1/x', unit: W}"),
        "6:5: boards.rk1.power.field: this key is required",
    ),
    "jump": (
        TWO_BOARDS + "  two: {address: a, jump: amr}\n",
        "12:27: build_hosts.two.jump: no other build host 'amr' (did you mean 'arm'?)",
    ),
    "jump in a circle": (
        TWO_BOARDS + "  two: {address: a, jump: three}\n  three: {address: a, jump: two}\n",
        (
            "12:27: build_hosts.two.jump: goes round in a circle: two -> three -> two\n"
            "devices.yaml:13:29: build_hosts.three.jump: goes round in a circle:"
            " three -> two -> three"
        ),
    ),
    "misspelt key": (
        board(taget="rk3568"),
        "6:5: boards.rk1.taget: unknown key (did you mean 'target'?)",
    ),
    "no boards written": (
        "boards:\n",
        "1:8: boards: must be a mapping, but nothing is written here",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD_LABS.values(), ids=BAD_LABS.keys())
def test_bad_lab(text: str, message: str) -> None:
    assert refusal(text) == f"devices.yaml:{message}"


def test_the_lab_is_the_nearest_folder_above(tmp_path: Path) -> None:
    (tmp_path / "devices.yaml").write_text(TWO_BOARDS)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    found = find_lab(below, TRANSPORTS)
    assert (found.root, found.name) == (tmp_path, tmp_path.name)
    assert found.board("rk1").target == "rk3568"


def test_no_lab(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no devices\.yaml in .* or a folder above it") as caught:
        find_lab(tmp_path, TRANSPORTS)
    assert "labctl init" in (caught.value.hint or "")


def test_the_first_devices_yaml_is_valid_with_and_without_boards_found() -> None:
    virtual = lab(devices_yaml()).board()
    assert (virtual.name, virtual.workdir) == (
        "virtual",
        "/lab/virtual-board/data/local/tmp/labctl",
    )
    found = lab(
        devices_yaml(
            {
                "rk1": {"link": "server", "key": "7001005458323933328a01ce1c2f3900"},
                "rk2": {"link": "tcp", "address": "192.168.1.20:5555"},
            }
        )
    )
    assert found.board().name == "rk1"
    assert set(found.boards) == {"rk1", "rk2"}
    assert [found.boards[name].transport.location for name in ("rk1", "rk2")] == [
        "7001005458323933328a01ce1c2f3900",
        "192.168.1.20:5555",
    ]


@pytest.mark.parametrize(
    "workdir", ["/tmp/ü b/labctl", '/tmp/"a\\b/labctl', "/tmp/\U0001f600/labctl"]
)
def test_a_workdir_that_was_found_is_written_as_it_is(workdir: str) -> None:
    board = {"link": "tcp", "address": "127.0.0.1:5556", "workdir": workdir}
    assert lab(devices_yaml({"vb": board})).board("vb").workdir == workdir


def test_the_virtual_board_keeps_its_files_where_the_first_devices_yaml_says() -> None:
    workdir = Path("/lab", VIRTUAL_BOARD_FOLDER) / sandbox.WORKDIR
    assert lab(devices_yaml()).board("virtual").workdir == str(workdir)


def test_the_example_boards_of_the_first_devices_yaml_are_valid() -> None:
    text = re.sub(r"(?m)^  # (rk\d:|  )", r"  \1", devices_yaml())
    assert lab(text).board("rk1").tags == ("dayu200",)
    assert lab(text).board("rk2").transport.location == "192.168.1.20:5555"
