"""A whole ARM64 Linux with little memory, booted by an emulator: nothing of it is this host's.

Debian's kernel and a static busybox come through apt, from where this host gets its own packages.
A script runs as the machine's only program besides init; what it leaves in /data/results comes
back on a disk of its own, the console's text in a file.
"""

import hashlib
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from labctl import process
from labctl.files import scratch
from labctl.folders import cache_dir
from labctl.locks import locked

EMULATOR = "qemu-system-aarch64"
#: What they need comes along, but for what ext4 asks for by the name of its algorithm alone. The
#: machine "virt" has its disks behind virtio-mmio.
_MODULES = ("virtio_mmio", "virtio_blk", "crc32c_generic", "ext4")
_DATA_BYTES = 160 << 20
_RESULTS_BYTES = 16 << 20
_INIT = """\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
ip link set lo up
for module in {modules}; do insmod /modules/$module.ko; done
for disk in /sys/block/vd*; do
  case $(cat $disk/serial) in
    data) data=/dev/${{disk##*/}};;
    results) results=/dev/${{disk##*/}};;
  esac
done
if ! mount -t ext4 $data /data 2>/dev/null; then # it is empty
  mke2fs $data >/dev/null
  mount -t ext4 $data /data || poweroff -f
fi
mkdir /data/results
cd /data
sh /script >/data/results/log 2>&1
tar cf $results -C /data/results .
sync
poweroff -f
"""


def boot(
    folder: Path,
    programs: Mapping[str, Path],
    script: str,
    *,
    memory_mb: int,
    timeout: float,
    files: Mapping[str, Path] | None = None,
    exact: bool = False,
) -> Path:
    """Boot with ``programs`` in /, run ``script`` in /data (ext4), and return /data/results.

    ``files`` are in /data from the start. With ``exact`` one CPU takes 2 ns of the machine's time
    for each instruction, however busy this host is; only where it waits its time is this host's.
    """
    emulator = shutil.which(EMULATOR)
    if emulator is None:
        pytest.skip(f"{EMULATOR} is not installed: no ARM64 kernel boots here")
    system = _system()
    in_memory = {
        "init": (_INIT.format(modules=" ".join(_order(system))).encode(), 0o755),
        "script": (script.encode(), 0o644),
        "bin/busybox": ((system / "busybox").read_bytes(), 0o755),
        **{name: (path.read_bytes(), 0o755) for name, path in programs.items()},
        **{f"modules/{m.name}": (m.read_bytes(), 0o644) for m in system.glob("*.ko")},
    }
    initrd, console, results = folder / "initrd", folder / "console", folder / "results"
    initrd.write_bytes(_cpio(in_memory, ("bin", "modules", "proc", "sys", "dev", "data")))
    words = [emulator, "-machine", "virt", "-cpu", "cortex-a76", "-m", str(memory_mb)]
    words += ["-icount", "shift=1,sleep=on"] if exact else ["-smp", "2"]
    words += ["-display", "none", "-monitor", "none", "-nic", "none", "-no-reboot"]
    words += ["-serial", f"file:{console}", "-kernel", str(system / "vmlinuz")]
    words += ["-initrd", str(initrd), "-append", "console=ttyAMA0 loglevel=1 panic=-1"]
    added = sum(path.stat().st_size for path in (files or {}).values())
    for name, size in (("data", _DATA_BYTES + added), ("results", _RESULTS_BYTES)):
        with (folder / f"{name}.img").open("wb") as disk:
            disk.truncate(size)
        words += ["-drive", f"if=none,id={name},format=raw,file={folder / name}.img"]
        words += ["-device", f"virtio-blk-device,drive={name},serial={name}"]
    if files:
        _fill(folder, files)
    done = process.run(words, timeout=timeout)
    said = console.read_text(errors="replace")[-3000:] if console.exists() else ""
    assert done.exit_status == 0, f"{done.tail()}\n{said}"
    try:
        with tarfile.open(folder / "results.img") as archive:
            archive.extractall(results, filter="data")
    except tarfile.ReadError as error:
        raise AssertionError(f"the machine left no results; its console:\n{said}") from error
    return results


def _fill(folder: Path, files: Mapping[str, Path]) -> None:
    """Make the disk for /data here: the machine's memory may be too small to bring them along."""
    content = folder / "content"
    content.mkdir()
    for name, path in files.items():
        shutil.copy(path, content / name)
    words = ["mke2fs", "-q", "-t", "ext4", "-d", content, folder / "data.img"]
    done = process.run(words, timeout=120)
    assert done.exit_status == 0, done.tail()
    shutil.rmtree(content)


def _system() -> Path:
    """The folder with kernel, modules and busybox; fetched once, then cached."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        pytest.skip("no apt here to fetch an ARM64 kernel with")
    name = hashlib.sha256(repr(_MODULES).encode()).hexdigest()[:12]
    home = cache_dir() / "tests" / f"boot-arm64-{name}"
    with locked(home.with_suffix(".lock"), timeout=900):
        if not home.is_dir():
            with scratch(home.parent, f".{home.name}-") as made:
                _fetch(made)
                (made / "system").rename(home)
    return home


def _fetch(folder: Path) -> None:
    apt, root, system = folder / "apt", folder / "root", folder / "system"
    for part in ("lists/partial", "archives/partial"):
        (apt / part).mkdir(parents=True)
    (apt / "status").touch()
    system.mkdir()
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Debug::NoLocking": "1",
        "Dir::Cache": str(apt),
        "Dir::State": str(apt),
        "Dir::State::status": str(apt / "status"),
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    _apt("apt-get", "-qq", *words, "update")
    # The package that always means the newest kernel is empty; it names the one with the files.
    depends = _apt("apt-cache", *words, "depends", "linux-image-arm64")
    kernel = re.search(r"Depends: (linux-image-\S+)", depends)
    assert kernel, depends
    _apt("apt-get", "-qq", *words, "download", "busybox-static", kernel[1], cwd=apt / "archives")
    for package in (apt / "archives").glob("*.deb"):
        done = process.run(["dpkg-deb", "-x", package, root], timeout=300)
        assert done.exit_status == 0, done.tail()
    (image,) = (root / "boot").glob("vmlinuz-*")
    image.rename(system / "vmlinuz")
    (root / "bin" / "busybox").rename(system / "busybox")
    modules = {path.stem: path for path in (root / "lib/modules").rglob("*.ko")}
    wanted = list(_MODULES)
    for name in wanted:  # it grows
        if name in modules:  # else it is part of the kernel itself
            path = modules.pop(name)
            wanted += _depends(path)
            path.rename(system / path.name)


def _apt(*words: str, cwd: Path | None = None) -> str:
    done = process.run(list(words), timeout=600, cwd=cwd)
    if done.exit_status != 0:
        pytest.skip(f"apt cannot fetch an ARM64 kernel: {done.tail(5)}")
    return done.text


def _depends(module: Path) -> list[str]:
    """What a module says of those it needs (section .modinfo)."""
    found = re.search(rb"\0depends=([^\0]*)\0", module.read_bytes())
    return [name for name in found[1].decode().split(",") if name] if found else []


def _order(system: Path) -> list[str]:
    """The modules, each after those it needs."""
    ordered: list[str] = []

    def add(name: str) -> None:
        path = system / f"{name}.ko"
        if name not in ordered and path.exists():
            for needed in _depends(path):
                add(needed)
            ordered.append(name)

    for name in _MODULES:
        add(name)
    return ordered


def _cpio(files: Mapping[str, tuple[bytes, int]], folders: tuple[str, ...]) -> bytes:
    """An archive as kernels unpack it (Documentation/driver-api/early-userspace/buffer-format)."""
    entries = [(name, b"", 0o040755) for name in folders]
    entries += [(name, data, 0o100000 | mode) for name, (data, mode) in files.items()]
    return b"".join(_entries([*entries, ("TRAILER!!!", b"", 0)]))


def _entries(entries: list[tuple[str, bytes, int]]) -> Iterator[bytes]:
    for number, (name, data, mode) in enumerate(entries, 1):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        yield head + b"\0" * (-len(head) % 4)
        yield data + b"\0" * (-len(data) % 4)
