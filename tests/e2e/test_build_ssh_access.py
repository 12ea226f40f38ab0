"""Which build hosts labctl lets itself be let in by: host keys, user keys, ways through others."""

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from labs import blamed
from sshd_host import SshHost, make_key, ssh_host
from sshd_lab import TARGET, SshLab, run_in

from labctl import process
from labctl.errors import ConfigError, HostError
from labctl.transport.ssh.login import log_in

pytestmark = pytest.mark.e2e


@pytest.fixture
def x86(tmp_path: Path) -> Iterator[SshHost]:
    with ssh_host(tmp_path / "x86") as host:
        yield host


@pytest.fixture
def lab(tmp_path: Path, x86: SshHost, monkeypatch: pytest.MonkeyPatch) -> SshLab:
    (tmp_path / "cache").mkdir()
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return SshLab(tmp_path / "lab", x86=x86.entry())


def refusal(lab: SshLab, **limits: Any) -> HostError | ConfigError:
    with pytest.raises((HostError, ConfigError)) as caught, lab.workspace(**limits):
        pass
    return caught.value


def works(lab: SshLab) -> bool:
    with lab.workspace() as workspace:
        return run_in(workspace, ["echo", "hello"]).text == "hello"


def fingerprint(key: Path) -> str:
    done = process.run(["ssh-keygen", "-lf", key], timeout=120)
    return done.text.split()[1]


def test_an_unknown_host_is_shown_and_not_added(lab: SshLab, x86: SshHost) -> None:
    x86.known_hosts.write_text("")
    words = ("build", "--target", TARGET, "--product", "tiny", "--host", "x86")
    done = lab.labctl(*words)
    shown = fingerprint(x86.folder / "host_key.pub")
    blamed(
        done,
        3,
        "infra",
        f"build host 'x86' (127.0.0.1:{x86.port}) is not in known_hosts",
        f"ssh-ed25519 key {shown}",
        f"ssh-keyscan -p {x86.port} 127.0.0.1 >> {x86.known_hosts}",
    )
    assert x86.known_hosts.read_text() == ""
    assert not x86.workdir.exists()


def test_the_hint_for_an_unknown_host_is_right(lab: SshLab, x86: SshHost) -> None:
    words = ["ssh-keyscan", "-p", str(x86.port), "127.0.0.1"]
    x86.known_hosts.write_bytes(process.run(words, timeout=120).stdout)
    assert works(lab)


def test_another_key_than_the_known_one_is_refused(
    lab: SshLab, x86: SshHost, tmp_path: Path
) -> None:
    make_key(tmp_path / "other")
    kind, key = (tmp_path / "other.pub").read_text().split()[:2]
    x86.known_hosts.write_text(f"[127.0.0.1]:{x86.port} {kind} {key}\n")
    error = refusal(lab)
    assert "is not the host it was" in error.message
    assert fingerprint(x86.folder / "host_key.pub") in error.message
    assert fingerprint(tmp_path / "other.pub") in error.message
    assert not x86.workdir.exists()


def test_a_user_key_that_the_host_does_not_know(lab: SshLab, x86: SshHost, tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    lab.write_hosts(x86=x86.entry(key=str(tmp_path / "other")))
    error = refusal(lab)
    assert f"does not let {getpass.getuser()} in" in error.message
    assert "authorized_keys" in (error.hint or "")


@pytest.mark.parametrize("field", ["key", "known_hosts"])
def test_a_file_that_is_not_there(lab: SshLab, x86: SshHost, field: str) -> None:
    lab.write_hosts(x86=x86.entry(**{field: "keys/none"}))
    error = refusal(lab)
    assert isinstance(error, ConfigError)
    assert str(lab.root / "keys" / "none") in error.message


def test_a_file_that_holds_no_key(lab: SshLab, x86: SshHost) -> None:
    (lab.root / "key").write_text("no key\n")
    lab.write_hosts(x86=x86.entry(key="key"))
    assert "build host 'x86'" in refusal(lab).message
    x86.known_hosts.write_text(f"[127.0.0.1]:{x86.port} ssh-ed25519 ###\n")
    lab.write_hosts(x86=x86.entry())
    assert "known_hosts" in refusal(lab).message


def test_nothing_listens(lab: SshLab, x86: SshHost) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    lab.write_hosts(x86=x86.entry(address=f"127.0.0.1:{port}"))
    assert refusal(lab).message == f"build host 'x86' (127.0.0.1:{port}): nothing listens there"


def test_what_listens_says_nothing(lab: SshLab, x86: SshHost) -> None:
    soon = partial(log_in, timeout=1.0)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        lab.write_hosts(x86=x86.entry(address=f"127.0.0.1:{silent.getsockname()[1]}"))
        assert "build host 'x86'" in refusal(lab, open_link=soon).message


def test_sshs_own_configuration_counts(lab: SshLab, x86: SshHost, tmp_path: Path) -> None:
    home = tmp_path / "home" / ".ssh"
    (home / "config").write_text(
        f"Host builder\n  HostName 127.0.0.1\n  Port {x86.port}\n"
        f"  IdentityFile ~/.ssh/none\n  IdentityFile {x86.key}\n"
    )
    (home / "known_hosts").write_text(x86.known_hosts.read_text())
    lab.write_hosts(x86={"address": "builder", "workdir": str(x86.workdir)})
    assert works(lab)
    (home / "known_hosts").write_text("")
    assert "is not in known_hosts" in refusal(lab).message
    (home / "config").write_text("Host builder\nnonsense\n")
    assert "ssh's configuration cannot be read" in refusal(lab).message


def test_a_key_of_the_agent(
    lab: SshLab, x86: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = x86.entry()
    del entry["key"]
    lab.write_hosts(x86=entry)
    assert "does not let" in refusal(lab).message
    address = str(tmp_path / "agent")
    agent = process.start(["ssh-agent", "-D", "-a", address])
    try:
        env = {**os.environ, "SSH_AUTH_SOCK": address}
        assert agent.stdout is not None
        agent.stdout.readline()  # it listens
        assert process.run(["ssh-add", x86.key], timeout=120, env=env).exit_status == 0
        monkeypatch.setenv("SSH_AUTH_SOCK", address)
        assert works(lab)
    finally:
        process.stop(agent)
        for pipe in (agent.stdout, agent.stderr):
            if pipe:
                pipe.close()


def test_a_way_through_another_host(lab: SshLab, x86: SshHost, tmp_path: Path) -> None:
    with ssh_host(tmp_path / "gate") as gate:
        lab.write_hosts(gate=gate.entry(), x86=x86.entry(jump="gate"))
        assert works(lab)
        assert "Accepted publickey" in (gate.folder / "sshd.log").read_text()
        gate.known_hosts.write_text("")
        error = refusal(lab)
        assert (
            f"shows the ssh-ed25519 key {fingerprint(gate.folder / 'host_key.pub')}"
            in error.message
        )
    error = refusal(lab)
    assert error.message == f"build host 'gate' (127.0.0.1:{gate.port}): nothing listens there"


def test_a_proxy_jump_of_sshs_configuration_has_to_be_known_too(
    lab: SshLab, x86: SshHost, tmp_path: Path
) -> None:
    home = tmp_path / "home" / ".ssh"
    with ssh_host(tmp_path / "gate") as gate:
        (home / "config").write_text(
            f"Host gate\n  HostName 127.0.0.1\n  Port {gate.port}\n  IdentityFile {gate.key}\n"
            f"Host builder\n  HostName 127.0.0.1\n  Port {x86.port}\n  IdentityFile {x86.key}\n"
            "  ProxyJump gate\n"
        )
        (home / "known_hosts").write_text(x86.known_hosts.read_text())
        lab.write_hosts(x86={"address": "builder", "workdir": str(x86.workdir)})
        error = refusal(lab)
        assert error.message.startswith("jump host 'gate' of build host 'x86' is not in known_")
        with (home / "known_hosts").open("a") as file:
            file.write(gate.known_hosts.read_text())
        assert works(lab)


def test_a_proxy_command_of_sshs_configuration(lab: SshLab, x86: SshHost, tmp_path: Path) -> None:
    relay = tmp_path / "relay"
    relay.write_text(
        f"#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/{x86.port}\ncat <&3 &\nexec cat >&3\n"
    )
    relay.chmod(0o755)
    home = tmp_path / "home" / ".ssh"
    (home / "config").write_text(f"Host builder\n  ProxyCommand {relay}\n")
    (home / "known_hosts").write_text(
        x86.known_hosts.read_text().replace("[127.0.0.1]", "[builder]")
    )
    lab.write_hosts(
        x86=x86.entry(address=f"builder:{x86.port}", known_hosts=str(home / "known_hosts"))
    )
    assert works(lab)


def test_a_host_behind_the_jump_host_that_is_not_there(
    lab: SshLab, x86: SshHost, tmp_path: Path
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    lab.write_hosts(gate=x86.entry(), x86=x86.entry(jump="gate", address=f"127.0.0.1:{port}"))
    assert "its jump host cannot reach it" in refusal(lab).message
