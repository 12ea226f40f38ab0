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
