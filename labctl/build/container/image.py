"""The image with the compilers, built once from ``toolchains/<target>/Containerfile``."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labctl import process
from labctl.build.container.engine import Engine
from labctl.build.progress import BuildProgress, OnProgress, Step
from labctl.build.spec import SHARED
from labctl.config.target import toolchain_folders
from labctl.errors import ConfigError, HostError, HostTimeout, tells_full_disk
from labctl.files import host_writes
from labctl.folders import cache_dir
from labctl.locks import locked

FILE_NAME = "Containerfile"
#: Names the base image, instead of the Containerfile's ``ARG BASE=``.
BASE_VARIABLE = "LABCTL_CONTAINER_BASE"

PULL_SECONDS = 900.0
IMAGE_SECONDS = 1800.0

_TAG_DIGITS = 16
_BASE = re.compile(r"^ARG +BASE=(\S+) *$", re.MULTILINE)
_WRONG_FILE = re.compile(r"unknown instruction|parse error|no FROM statement", re.IGNORECASE)
#: Waits for a lock that labctl holds while it lives.
_GUARDED = '''"$@" & program=$!
{ flock "$0" true; kill -KILL 0; } </dev/null >/dev/null 2>&1 &
wait "$program"'''
_STEP = re.compile(r"(?:STEP |#\d+ \[)(\d+)/(\d+)")


def find_containerfile(target: str, lab_root: Path | None) -> Path:
    """Find the Containerfile of a target, or the shared one; the lab's own files come first.

    Raises ConfigError.
    """
    for folder in toolchain_folders(lab_root):
        for place in (target, SHARED):
            path = folder / place / FILE_NAME
            if path.is_file():
                return path
    raise ConfigError(
        f"the target {target!r} has no {FILE_NAME}: nothing says what its container is made of",
        hint=f"write toolchains/{target}/{FILE_NAME} (that of rk3568 is an example), "
        "or use another builder",
    )


def ensure_image(
    engine: Engine,
    target: str,
    path: Path,
    on_progress: OnProgress,
    *,
    seconds: float = IMAGE_SECONDS,
) -> str:
    """Return the digest of a Containerfile's image; build the image if it is missing.

    An image is identified by the Containerfile's content and its base. Raises ConfigError (wrong
    Containerfile), HostError (no base image, network, disk), HostTimeout.
    """
    text = path.read_text(encoding="utf-8")
    base = _base(path, text)
    base_id = _base_id(engine, base, on_progress)
    digest = hashlib.sha256(json.dumps([text, base_id]).encode()).hexdigest()[:_TAG_DIGITS]
    wanted = _Wanted(engine, target, path, base, f"localhost/labctl-{target}:{digest}", seconds)
    image = engine.image_id(wanted.tag)
    if image is not None:
        return image
    lock = cache_dir() / "locks" / f"image-{digest}.lock"
    with locked(lock, timeout=seconds, holder="another build of the container image") as held:
        if engine.image_id(wanted.tag) is None:  # not built meanwhile by another process
            wanted.build(held, on_progress)
        image = engine.image_id(wanted.tag)
    if image is None:
        raise HostError(f"{engine} says that it built {wanted.tag}, but there is no such image")
    return image


def _base(path: Path, text: str) -> str:
    given = _BASE.search(text)
    if given is None:
        raise ConfigError(
            f"{path}: there is no line 'ARG BASE=IMAGE'",
            hint="write it before 'FROM ${BASE}': labctl has to know the base image",
        )
    return os.environ.get(BASE_VARIABLE) or given[1]


def _base_id(engine: Engine, base: str, on_progress: OnProgress) -> str:
    """Return the digest of the base image; pull the image if it is missing."""
    image = engine.image_id(base)
    if image is not None:
        return image
    on_progress(BuildProgress(Step.IMAGE, f"base image {base.partition('@')[0]}, once"))
    try:
        done = process.run([engine.program, "pull", "--quiet", base], timeout=PULL_SECONDS)
        details = done.tail(8)
        image = engine.image_id(base) if done.exit_status == 0 else None
    except HostTimeout as error:
        details = error.message
    if image is None:
        raise HostError(
            f"{engine.program} cannot get the base image {base}",
            hint="without a registry, import one: debootstrap --variant=minbase bookworm rootfs; "
            f"tar -C rootfs -c . | {engine.program} import - localhost/bookworm; "
            f"then set {BASE_VARIABLE}=localhost/bookworm",
            details=details,
        )
    return image


@dataclass(frozen=True)
class _Wanted:
    """An image to build."""

    engine: Engine
    target: str
    path: Path
    base: str
    tag: str
    seconds: float

    def build(self, lock: int, on_progress: OnProgress) -> None:
        what = f"container image for {self.target}"
        on_progress(BuildProgress(Step.IMAGE, f"{what}, once"))

        def see(line: str) -> None:
            moved = _STEP.match(line)
            if moved:
                on_progress(BuildProgress(Step.IMAGE, what, int(moved[1]), int(moved[2])))

        log = cache_dir() / "containers" / f"{self.tag.rpartition('/')[2].replace(':', '-')}.log"
        with host_writes(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(b"")
        words = [self.engine.program, "build", "--build-arg", f"BASE={self.base}"]
        words += ["--file", str(self.path), "--tag", self.tag]
        if self.engine.program == "podman":
            # The steps are then children of podman, in its process group, and end with it.
            words += ["--isolation", "chroot"]
        # The context is empty, so the image depends only on what its name contains.
        with tempfile.TemporaryDirectory(prefix="labctl-image-") as empty, _guard() as guard:
            try:
                done = process.run_streaming(
                    [*guard, *words, empty],
                    timeout=self.seconds,
                    on_line=see,
                    log=log,
                    keep_open=(lock,),
                )
            except HostTimeout as error:
                raise HostTimeout(
                    f"the {what} was not built within {self.seconds:g} s", details=error.details
                ) from error
        if done.exit_status == 0:
            return
        hint = f"the whole log: {log}"
        if tells_full_disk(done.text):
            raise HostError(f"the {what} cannot be built: the disk is full", hint=hint)
        if _WRONG_FILE.search(done.text):
            raise ConfigError(f"{self.path} is wrong", hint=hint, details=done.tail(8))
        raise HostError(f"the {what} cannot be built", hint=hint, details=done.tail(12))


@contextmanager
def _guard() -> Iterator[list[str]]:
    """Yield words before a command that end its process group if labctl is killed."""
    if shutil.which("flock") is None:
        yield []
        return
    with (
        tempfile.NamedTemporaryFile(prefix="labctl-alive-") as alive,
        locked(Path(alive.name), timeout=0),
    ):
        yield ["sh", "-c", _GUARDED, alive.name]
