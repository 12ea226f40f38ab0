"""An ARM64 machine made of software: a Debian userland of ARM64 programs behind a real sshd.

The userland is unpacked from Debian's packages, which apt fetches from where this host gets its
own; no root is needed. Its programs run under the emulator, in a user namespace that has a
binfmt_misc of its own (Linux 6.7 and newer).
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sshd_host import SshHost, ssh_host

from labctl import process
from labctl.files import scratch
from labctl.folders import cache_dir
from labctl.locks import locked

#: A C compiler, and what a POSIX machine has. No CMake: it is not needed for the agent.
PACKAGES = (
    "base-files", "coreutils", "dash", "findutils", "gcc", "grep", "gzip", "libc-bin", "libc6-dev",
    "mawk", "sed", "tar", "util-linux",
)  # fmt: skip
#: What is mounted into the userland; a build host's files are in the third.
_MOUNT_POINTS = ("proc", "dev", "srv", "tmp")
EMULATOR = "qemu-aarch64-static"
#: ELF, 64 bits, little endian, ET_EXEC or ET_DYN, EM_AARCH64; as in QEMU's qemu-binfmt-conf.sh.
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"

_ENTER = """\
set -e
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf '%s' ':arm64:M::{magic}:{mask}:{emulator}:OF' >/proc/sys/fs/binfmt_misc/register
mount --rbind /proc {root}/proc
mount --rbind /dev {root}/dev
mount --bind {folder} {root}/srv
mount -t tmpfs none {root}/tmp
export PATH=/usr/bin:/usr/sbin HOME=/
exec chroot {root} /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""


@contextmanager
def arm64_host(folder: Path, root: Path) -> Iterator[SshHost]:
    """A build host whose every program is an ARM64 program of the userland at ``root``."""
    emulator = shutil.which(EMULATOR)
    if emulator is None:
        pytest.skip(f"{EMULATOR} is not installed: no ARM64 program runs here")
    there = folder / "srv"
    there.mkdir(parents=True)
    enter, command = folder / "enter.sh", folder / "command.sh"
    enter.write_text(
        _ENTER.format(magic=_MAGIC, mask=_MASK, emulator=emulator, root=root, folder=there)
    )
    command.write_text(f"#!/bin/sh\nexec unshare --user --map-root-user --mount sh {enter}\n")
    command.chmod(0o755)
    probe = process.run([command], timeout=120, env={**os.environ, "SSH_ORIGINAL_COMMAND": "true"})
    if probe.exit_status != 0:
        pytest.skip(f"no private binfmt_misc in a user namespace here: {probe.tail(3)}")
    config = f"ForceCommand {command}\n"
    with ssh_host(folder / "sshd", workdir=Path("/srv/labctl"), config=config) as host:
        yield host


def userland() -> Path:
    """The root folder of an ARM64 Debian; fetched once, then cached."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        pytest.skip("no apt here to fetch an ARM64 userland with")
    name = hashlib.sha256(repr((PACKAGES, _MOUNT_POINTS)).encode()).hexdigest()[:12]
    home = cache_dir() / "tests" / f"arm64-{name}"
    with locked(home.with_suffix(".lock"), timeout=1800):
        if not home.is_dir():
            with scratch(home.parent, f".{home.name}-") as made:
                _make(made)
                (made / "root").rename(home)
    return home


def _make(folder: Path) -> None:
    apt, root = folder / "apt", folder / "root"
    for part in ("lists/partial", "archives/partial"):
        (apt / part).mkdir(parents=True)
    (apt / "status").touch()
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Install-Recommends": "0",
        "Acquire::Languages": "none",
        "Debug::NoLocking": "1",
        "Dir::Cache": str(apt),
        "Dir::State": str(apt),
        "Dir::State::status": str(apt / "status"),
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    for command in (["update"], ["-y", "--download-only", "install", *PACKAGES]):
        done = process.run(["apt-get", "-qq", *words, *command], timeout=600)
        if done.exit_status != 0:
            pytest.skip(f"apt cannot fetch an ARM64 userland: {done.tail(5)}")
    # As on every Debian: /bin is /usr/bin. Packages still have files in both.
    for name in ("bin", "lib", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in sorted((apt / "archives").glob("*.deb")):
        files = process.run(["dpkg-deb", "--fsys-tarfile", package], timeout=120)
        assert files.exit_status == 0, files.tail()
        unpack = ["tar", "--keep-directory-symlink", "--no-same-owner", "-xf", "-", "-C", root]
        done = process.run(unpack, timeout=120, input_bytes=files.stdout)
        assert done.exit_status == 0, done.tail()
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    for name in _MOUNT_POINTS:
        (root / name).mkdir(exist_ok=True)
