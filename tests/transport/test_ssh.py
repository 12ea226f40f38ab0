"""What ssh alone has: host keys, ways through others, servers with habits of their own."""

import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import paramiko
import pytest
from jobs import is_alive
from sshd_host import SshHost, descendants, make_key, ssh_host

from labctl import process
from labctl.errors import CommandTimeout, ConfigError, DeviceLost, LinkRefused, NotAuthorised
from labctl.process import empty_folder
from labctl.retry import wait_until
from labctl.transport.ssh.config import SshConfig
from labctl.transport.ssh.link import Watch
from labctl.transport.ssh.login import Login, log_in
from labctl.transport.ssh.transport import SshTransport

pytestmark = pytest.mark.slow


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SshHost]:
    with ssh_host(tmp_path / "host") as host:
        yield host


def test_a_way_through_another_host(host: SshHost, tmp_path: Path) -> None:
    with ssh_host(tmp_path / "gate") as gate:
        keys = gate.folder / "authorized_keys"
        keys.write_text(keys.read_text() + (host.folder / "user_key.pub").read_text())
        both = tmp_path / "known_hosts"
        both.write_text(host.known_hosts.read_text() + gate.known_hosts.read_text())
        way = replace(
            host.board(),
            proxy_jump=f"{host.board().user}@127.0.0.1:{gate.port}",
            known_hosts=str(both),
        )
        with way.open() as board:
            assert board.run("echo here", timeout=60).text == "here\n"
        assert "Accepted publickey" in (gate.folder / "sshd.log").read_text()
        both.write_text(host.known_hosts.read_text())
        with way.open() as board, pytest.raises(NotAuthorised, match=r"jump host .* known_hosts"):
            board.run(":", timeout=60)


def test_proxy_jump_none_is_no_host(
    host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = home(tmp_path, monkeypatch) / "config"
    for none in ("none", "None"):
        configuration.write_text(f"Host 127.0.0.1\n  ProxyJump {none}\nHost *\n  ProxyJump gate\n")
        with host.board().open() as board:
            assert board.run("echo here", timeout=60).text == "here\n"
    # What all others go through is not gone through to itself.
    with ssh_host(tmp_path / "gate") as gate:
        shutil.copy(host.folder / "authorized_keys", gate.folder)
        configuration.write_text(
            f"Host gate\n  HostName 127.0.0.1\n  Port {gate.port}\n"
            f"  IdentityFile {host.key}\n  ProxyJump none\nHost *\n  ProxyJump gate\n"
            f"Host board\n  HostName localhost\n"
        )
        both = tmp_path / "known_hosts"
        known = host.known_hosts.read_text().replace("127.0.0.1", "localhost")
        both.write_text(known + gate.known_hosts.read_text())
        with replace(host.board(), host="board", known_hosts=str(both)).open() as board:
            assert board.run("echo here", timeout=60).text == "here\n"
        assert "Accepted publickey" in (gate.folder / "sshd.log").read_text()


def test_the_first_of_several_jump_hosts_is_gone_through_first(
    host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home(tmp_path, monkeypatch) / "config").write_text(
        "Host 127.0.0.1\n  ProxyJump first,second\n"
        f"Host first second\n  HostName localhost\n  Port {host.port}\n"
    )
    host.known_hosts.write_text("")
    with host.board().open() as board, pytest.raises(NotAuthorised, match="jump host 'first'"):
        board.run(":", timeout=60)


def test_a_proxy_command_with_an_open_quote(
    host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home(tmp_path, monkeypatch) / "config").write_text("Host *\n  ProxyCommand nc 'x\n")
    with host.board().open() as board, pytest.raises(ConfigError, match=r"ProxyCommand .*: nc 'x"):
        board.run(":", timeout=60)


def test_a_command_of_the_configuration_does_not_run_in_the_present_folder(
    host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Match exec` asks a program; without its lines the host's port is unknown."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (home(tmp_path, monkeypatch) / "config").write_text(
        f'Match exec "pwd >{tmp_path}/told"\n  Compression no\nMatch exec "false"\n  Port 1\n'
    )
    with host.board().open() as board:
        assert board.run("echo here", timeout=60).text == "here\n"
    assert Path((tmp_path / "told").read_text().strip()) == empty_folder()


def test_lines_of_known_hosts_with_markers(host: SshHost, tmp_path: Path) -> None:
    line = host.known_hosts.read_text()
    make_key(tmp_path / "other")
    other = " ".join((tmp_path / "other.pub").read_text().split()[:2])
    for marker in ("@cert-authority", "@revoked"):
        host.known_hosts.write_text(f"{marker} * {other}\n{line}")
        with host.board().open() as board:
            assert board.run("echo here", timeout=60).text == "here\n"
    own = line.split(" ", 1)[1]
    host.known_hosts.write_text(f"{line}@revoked\t* {own}")
    with host.board().open() as board, pytest.raises(NotAuthorised, match="revoked"):
        board.run(":", timeout=60)
    host.known_hosts.write_text(f"@cert-authority * {own}")
    with host.board().open() as board, pytest.raises(NotAuthorised, match="not in known_hosts"):
        board.run(":", timeout=60)


def test_either_of_two_known_keys_of_one_kind_is_right(host: SshHost, tmp_path: Path) -> None:
    line = host.known_hosts.read_text()
    make_key(tmp_path / "other")
    name, kind, _ = line.split()
    other = f"{name} {kind} {(tmp_path / 'other.pub').read_text().split()[1]}\n"
    for lines in (line + other, other + line):
        host.known_hosts.write_text(lines)
        with host.board().open() as board:
            assert board.run("echo here", timeout=60).text == "here\n"


def test_a_host_is_asked_for_the_kind_of_key_that_is_known(tmp_path: Path) -> None:
    key = tmp_path / "rsa_key"
    words = ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(key)]
    assert process.run(words, timeout=30).exit_status == 0
    with ssh_host(tmp_path / "host", config=f"HostKey {key}\n") as host:
        kind, text = key.with_suffix(".pub").read_text().split()[:2]
        host.known_hosts.write_text(f"[127.0.0.1]:{host.port} {kind} {text}\n")
        with host.board().open() as board:
            assert board.run("echo here", timeout=60).text == "here\n"


def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a home folder of the test's own; return its folder for ssh."""
    monkeypatch.setenv("HOME", str(folder / "home"))
    (folder / "home" / ".ssh").mkdir(parents=True)
    return folder / "home" / ".ssh"


def test_small_packets_wait_for_no_acknowledgement(
    host: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start of a program is several of them, each 40 ms late without the option."""
    dialled: list[socket.socket] = []
    made = paramiko.Transport.__init__

    def spied(self: paramiko.Transport, sock: socket.socket, **options: Any) -> None:
        dialled.append(sock)
        made(self, sock, **options)

    monkeypatch.setattr(paramiko.Transport, "__init__", spied)
    with host.board().open() as board:
        board.run(":", timeout=60)
        (to_host,) = dialled
        assert to_host.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_link_that_was_cut_is_opened_again(host: SshHost, tmp_path: Path) -> None:
    def hang_up_in_mid_command() -> None:
        if wait_until((tmp_path / "begun").exists, timeout=120, interval=0.02):
            host.hang_up()

    with host.board().open() as board:
        hanging_up = threading.Thread(target=hang_up_in_mid_command)
        hanging_up.start()
        with pytest.raises(DeviceLost):
            board.run(f"touch {tmp_path}/begun; sleep 300", timeout=300)
        hanging_up.join()
        assert board.run("echo again", timeout=60).text == "again\n"


def test_a_frozen_host_is_noticed(host: SshHost) -> None:
    login = Login(
        "host",
        "127.0.0.1",
        host.port,
        host.board().user,
        identity_file=host.key,
        known_hosts=host.known_hosts,
    )
    with SshTransport("host", lambda: log_in(login, watch=Watch(0.2, 4.0))) as board:
        assert board.is_alive()
        frozen = host.sessions()
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises((DeviceLost, CommandTimeout)):
                board.run("echo x", timeout=30)
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)


def test_what_a_shell_prints_at_its_start_is_passed_over(tmp_path: Path) -> None:
    noise = tmp_path / "noisy.sh"
    noise.write_text('#!/bin/sh\necho Welcome; echo No mail >&2; eval "$SSH_ORIGINAL_COMMAND"\n')
    noise.chmod(0o755)
    with (
        ssh_host(tmp_path / "host", config=f"ForceCommand {noise}\n") as host,
        host.board().open() as board,
    ):
        assert board.run("echo x; exit 5", timeout=60).output == b"x\n"


def test_a_command_that_only_its_quotes_make_too_long(tmp_path: Path) -> None:
    small = tmp_path / "small.sh"
    small.write_text(
        "#!/bin/sh\n[ ${#SSH_ORIGINAL_COMMAND} -lt 9000 ] || exit 99\n"
        'eval "$SSH_ORIGINAL_COMMAND"\n'
    )
    small.chmod(0o755)
    with (
        ssh_host(tmp_path / "host", config=f"ForceCommand {small}\n") as host,
        host.board().open() as board,
    ):
        assert board.run("true" + " ''" * 2_000 + "; echo x", timeout=60).output == b"x\n"


@pytest.mark.parametrize("has_setsid", [True, False])
def test_a_server_that_makes_no_process_groups(tmp_path: Path, has_setsid: bool) -> None:
    """dropbear starts commands in the group that it is in itself."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("cat", "sleep", "setsid")[: 3 if has_setsid else 2]:
        (programs / name).symlink_to(shutil.which(name) or pytest.skip(f"no {name}"))
    same_group = tmp_path / "same_group.sh"
    same_group.write_text('#!/bin/sh\n/bin/sh -c "$SSH_ORIGINAL_COMMAND"\nexit $?\n')
    same_group.chmod(0o755)
    with (
        ssh_host(
            tmp_path / "host", path=str(programs), config=f"ForceCommand {same_group}\n"
        ) as host,
        host.board().open() as board,
    ):
        assert board.run("exit 5", timeout=60).exit_status == 5
        with pytest.raises(CommandTimeout) as caught:
            board.run("echo $$; sleep 61", timeout=1)
        pid = int(caught.value.details or "")
        if has_setsid:
            assert wait_until(lambda: not is_alive(pid), timeout=30, interval=0.05)
        else:
            left = descendants(pid)
            assert left
            for process_id in (*left, pid):
                with suppress(ProcessLookupError):  # it may end with the one before
                    os.kill(process_id, signal.SIGKILL)
        assert ("may still run" in (caught.value.hint or "")) == (not has_setsid)


def test_a_server_that_forwards_nothing_says_what_to_allow(tmp_path: Path) -> None:
    with (
        ssh_host(tmp_path / "host", config="AllowTcpForwarding no\n") as host,
        host.board().open() as board,
        socket.create_server(("127.0.0.1", 0)) as service,
        pytest.raises(LinkRefused) as caught,
        board.connect(service.getsockname()[1], timeout=30),
    ):
        pass
    assert "AllowTcpForwarding" in (caught.value.hint or "")


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with SshConfig(host="127.0.0.1", port=port).open() as board:
        assert not board.is_alive()
        with pytest.raises(LinkRefused, match="nothing listens there"):
            board.run(":", timeout=30)
