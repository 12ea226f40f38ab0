"""A real sshd on loopback, as a build host of a test's own."""

import getpass
import os
import shutil
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from labctl import process
from labctl.retry import wait_until
from labctl.transport.ssh.config import SshConfig

#: As Debian's sshd has it.
PATH = "/usr/local/bin:/usr/bin:/bin"
_STAT_PARENT = 1  # of what follows the name in proc(5)'s stat: state, ppid, ...


@dataclass(frozen=True)
class SshHost:
    """A running sshd, and what one needs to get in."""

    port: int
    pid: int
    folder: Path
    key: Path
    known_hosts: Path
    workdir: Path

    def entry(self, **more: object) -> dict[str, object]:
        """The host as one of ``build_hosts`` in devices.yaml."""
        return {
            "address": f"127.0.0.1:{self.port}",
            "user": getpass.getuser(),
            "key": str(self.key),
            "known_hosts": str(self.known_hosts),
            "workdir": str(self.workdir),
            **more,
        }

    def board(self) -> SshConfig:
        """The host as a board."""
        return SshConfig(
            host="127.0.0.1",
            port=self.port,
            user=getpass.getuser(),
            identity_file=str(self.key),
            known_hosts=str(self.known_hosts),
        )

    def working(self) -> list[str]:
        """Command lines of all processes that have to do with the workdir: labctl's and builds'."""
        return sorted(_touching(self.workdir))

    def sessions(self) -> list[int]:
        """The processes of sshd itself that serve connections."""
        return [pid for pid in descendants(self.pid) if _name(pid) in ("sshd", "sshd-session")]

    def hang_up(self) -> None:
        """Break every connection, as a host does that loses its power."""
        for pid in self.sessions():
            _send(pid, signal.SIGKILL)

    def built_trees(self) -> list[Path]:
        """What builds have left in the workdir."""
        return sorted((self.workdir / "builds").glob("*/*"))


@contextmanager
def ssh_host(
    folder: Path,
    *,
    workdir: Path | None = None,
    path: str = PATH,
    environment: Mapping[str, str] | None = None,
    config: str = "",
) -> Iterator[SshHost]:
    """An sshd with keys of its own, whose sessions look for programs in ``path``.

    ``environment`` is what sessions have besides.
    ``config`` are further lines of sshd_config(5).
    """
    sshd = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")
    if sshd is None:
        pytest.skip("sshd is not installed (Debian: openssh-server)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(parents=True)
    for name in ("host_key", "user_key"):
        make_key(folder / name)
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    more = " ".join(f'"{name}={value}"' for name, value in (environment or {}).items())
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\n"
        f"HostKey {folder}/host_key\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\n"
        "PidFile none\n"
        "StrictModes no\n"
        "UsePAM no\n"
        "PermitRootLogin prohibit-password\n"
        "PasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\n"
        # bash reads ~/.bashrc when ssh starts it, but not as a shell within shells.
        f"SetEnv SHLVL=5 PATH={path} {more}\n"
        f"{config}"
    )
    kind, key = (folder / "host_key.pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    log = (folder / "sshd.log").open("wb")
    with log:
        server = process.start(
            [sshd, "-D", "-e", "-f", folder / "sshd_config"],
            stdout=log.fileno(),
            stderr=log.fileno(),
        )
    try:
        listens = wait_until(
            lambda: _listens(port) or server.poll() is not None, timeout=120, interval=0.05
        )
        assert listens, (folder / "sshd.log").read_text()
        assert server.poll() is None, (folder / "sshd.log").read_text()
        yield SshHost(
            port=port,
            pid=server.pid,
            folder=folder,
            key=folder / "user_key",
            known_hosts=folder / "known_hosts",
            workdir=workdir or folder / "work",
        )
    finally:
        for pid in [*descendants(server.pid), server.pid]:
            _send(pid, signal.SIGCONT)
        left = descendants(server.pid)
        process.stop(server, grace=1)
        for pid in left:
            _send(pid, signal.SIGKILL)


def make_key(path: Path) -> None:
    """A new key pair without a passphrase."""
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    done = process.run(words, timeout=120)
    assert done.exit_status == 0, done.tail()


def descendants(pid: int) -> list[int]:
    """All processes below one, as far as their parents live."""
    parents = {child: fields[_STAT_PARENT] for child, fields in _stats()}
    found = {pid}
    while more := {child for child, parent in parents.items() if int(parent) in found} - found:
        found |= more
    return sorted(found - {pid})


def _stats() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            yield int(entry.name), text.rpartition(")")[2].split()


def _touching(folder: Path) -> Iterator[str]:
    """Processes that have a folder in their command line or environment, or are in it."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            where = str((entry / "cwd").readlink())
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
            environment = (entry / "environ").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if state != "Z" and str(folder) in where + words + environment:
            yield f"{entry.name} {words.replace(chr(0), ' ')[-200:]}"


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
