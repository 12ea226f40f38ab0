import sys

import pytest

from labctl import process
from labctl.errors import ConfigError
from labctl.transport.adb import AdbConfig
from labctl.transport.base import check_remote_path
from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig
from labctl.transport.local import LocalConfig


def test_each_model_opens_its_transport() -> None:
    assert LocalConfig().open().label == "this host"
    assert HdcTcpConfig(address="127.0.0.1:5555").open().label == "hdc tcp 127.0.0.1:5555"
    assert HdcTcpConfig(address="[::1]:5555").open().label == "hdc tcp ::1:5555"
    assert AdbConfig(serial="usb:1-1").open().label == "adb usb:1-1"
    served = HdcServerConfig(key="7001005", server="127.0.0.1:8710")
    assert served.open().label == "hdc server 127.0.0.1:8710 7001005"


MADE = """
import sys
from labctl.transport.adb import AdbConfig
from labctl.transport.hdc import HdcServerConfig, HdcTcpConfig
from labctl.transport.local import LocalConfig
from labctl.transport.built_in import TRANSPORTS
from labctl.transport.ssh.config import SshConfig
made = (
    HdcTcpConfig(address="h:1"),
    HdcServerConfig(key="k", server="h:1"),
    AdbConfig(serial="s"),
    SshConfig(host="h"),
    LocalConfig(),
)
assert {type(model) for model in made} == set(TRANSPORTS)
for model in made:
    model.open()
print(*(name for name in sys.modules if name.startswith(('pydantic', 'yaml'))))
"""


def test_models_are_made_without_pydantic() -> None:
    done = process.run([sys.executable, "-c", MADE], timeout=60)
    assert (done.exit_status, done.stdout.strip()) == (0, b"")


@pytest.mark.parametrize(
    "address",
    ["", "1.2.3.4", ":5555", "1.2.3.4:port", "1.2.3.4:0", "1.2.3.4:65536", "1.2.3.4:٣"],
)
def test_what_names_no_board_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="not an address of a board"):
        HdcTcpConfig(address=address).open()


@pytest.mark.parametrize(
    ("key", "server"),
    [
        ("", "h:1"),
        ("a b", "h:1"),
        ("a\0", "h:1"),
        ("ü", "h:1"),
        ("any", "h:1"),
        ("x" * 33, "h:1"),
        ("x", ":1"),
        ("x", "h"),
    ],
)
def test_what_names_no_board_of_a_server_is_refused(key: str, server: str) -> None:
    with pytest.raises(ConfigError):
        HdcServerConfig(key=key, server=server).open()


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
