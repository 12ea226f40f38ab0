"""A real Linux kernel of Debian, for ARM64, with an init of a test's own, in an emulator."""

import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_EMULATOR = "qemu-system-aarch64"


def arm64_files(folder: Path) -> tuple[Path, Path]:
    """Fetch Debian's kernel for ARM64 and a static busybox; skips the test without the tools."""
    for tool in (_EMULATOR, "apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing")
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    settings = {
        "Dir::State": "state",
        "Dir::State::status": "status",
        "Dir::Cache": "cache",
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
    }
    options = [
        word
        for key, value in settings.items()
        for word in ("-o", f"{key}={folder / value if key.startswith('Dir') else value}")
    ]
    options += ["-o", f"APT::Sandbox::User={os.environ.get('USER', 'root')}"]

    def run(*command: str) -> str:
        return subprocess.run(
            command, cwd=folder, check=True, timeout=300, stdout=subprocess.PIPE, text=True
        ).stdout

    run("apt-get", *options, "-qq", "update")
    depends = run("apt-cache", *options, "depends", "linux-image-cloud-arm64")
    (kernel,) = re.findall(r"Depends: (linux-image-\d\S+)", depends)
    run("apt-get", *options, "-qq", "download", "busybox-static", kernel)
    for package in folder.glob("*.deb"):
        run("dpkg-deb", "-x", str(package), "root")
    (image,) = folder.glob("root/boot/vmlinuz-*")
    return image, folder / "root/bin/busybox"


def _entry(name: str, mode: int, data: bytes = b"") -> bytes:
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08x" % one for one in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def initrd(path: Path, busybox: Path, init: str) -> Path:
    """Write an initial file system whose ``/init`` is a script for busybox's shell."""
    entries = [_entry(name, 0o40755) for name in ("bin", "proc", "dev", "sys")]
    entries += [
        _entry("bin/busybox", 0o100755, busybox.read_bytes()),
        _entry("bin/sh", 0o120777, b"busybox"),
        _entry("init", 0o100755, init.encode()),
        _entry("TRAILER!!!", 0),
    ]
    path.write_bytes(gzip.compress(b"".join(entries), 1))
    return path


@contextmanager
def booted(kernel: Path, initial: Path, *, words: str = "") -> Iterator[str]:
    """Boot the kernel; gives its console's device on this host."""
    command = [
        *(_EMULATOR, "-machine", "virt", "-cpu", "cortex-a57", "-m", "256", "-display", "none"),
        *("-monitor", "none", "-nic", "none", "-serial", "pty"),
        *("-kernel", str(kernel), "-initrd", str(initial)),
        *("-append", f"console=ttyAMA0 loglevel=8 {words}"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as emulator:
        try:
            assert emulator.stdout is not None
            line = emulator.stdout.readline()
            found = re.search(r"/dev/pts/\d+", line)
            assert found, line
            held = os.open(found[0], os.O_RDWR | os.O_NOCTTY)  # a serial port never hangs up
            try:
                yield found[0]
            finally:
                os.close(held)
        finally:
            emulator.kill()
