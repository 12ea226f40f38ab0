import pytest

from labctl.errors import ConfigError
from labctl.transport import HdcTransport, LocalTransport, connect
from labctl.transport.paths import check_remote_path


def test_kinds() -> None:
    assert isinstance(connect("local"), LocalTransport)
    board = connect("hdc", link="tcp", address="127.0.0.1:5555")
    assert isinstance(board, HdcTransport)
    assert board.label == "hdc tcp 127.0.0.1:5555"
    assert connect("hdc", address="[::1]:5555").label == "hdc tcp ::1:5555"


@pytest.mark.parametrize(
    ("kind", "link", "address"),
    [
        ("usb", "tcp", ""),
        ("hdc", "usb", "1.2.3.4:5"),
        ("hdc", "tcp", ""),
        ("hdc", "tcp", "1.2.3.4"),
        ("hdc", "tcp", ":5555"),
        ("hdc", "tcp", "1.2.3.4:port"),
        ("hdc", "tcp", "1.2.3.4:0"),
        ("hdc", "tcp", "1.2.3.4:65536"),
        ("hdc", "tcp", "1.2.3.4:٣"),
    ],
)
def test_what_names_no_board_is_refused(kind: str, link: str, address: str) -> None:
    with pytest.raises(ConfigError):
        connect(kind, link=link, address=address)


def test_boards_behind_a_server() -> None:
    board = connect("hdc", link="server", key="7001005", server="127.0.0.1:8710")
    assert isinstance(board, HdcTransport)
    assert board.label == "hdc server 127.0.0.1:8710 7001005"


@pytest.mark.parametrize(
    ("key", "server"),
    [
        ("", "h:1"),
        ("a b", "h:1"),
        ("a\0", "h:1"),
        ("ü", "h:1"),
        ("any", "h:1"),
        ("x" * 32, "h:1"),
        ("x", ""),
        ("x", "h"),
    ],
)
def test_what_names_no_board_of_a_server_is_refused(key: str, server: str) -> None:
    with pytest.raises(ConfigError):
        connect("hdc", link="server", key=key, server=server)


@pytest.mark.parametrize(
    "path", ["/data/local/tmp/labctl/a b", "/a/ü-'$(x)`;", "/x", "/data/..hidden/.x"]
)
def test_plain_paths_pass(path: str) -> None:
    assert check_remote_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "relative/x",
        "./x",
        "~/x",
        "/a/",
        "/a//b",
        "/a/../b",
        "/a/./b",
        "/a/%s",
        "/a/100%",
        "/a\nb",
        "/a\0b",
        "/a\rb",
        "/a\x7fb",
        '/a"b',
        "/a\\b",
        "/" + "x" * 4096,
    ],
)
def test_unsafe_paths_are_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="unsafe path"):
        check_remote_path(path)
