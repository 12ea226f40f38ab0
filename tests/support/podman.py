"""podman for tests: settings and storage of the tests' own, and a base image from debootstrap.

All of it lies in the cache, so that it is made once: the base takes a minute or two.
"""

import hashlib
import json
import os
import platform
import shutil
from pathlib import Path

import pytest

from labctl import process
from labctl.build.container.image import BASE_VARIABLE
from labctl.files import scratch, write_atomic
from labctl.folders import cache_dir
from labctl.locks import locked

#: As root in a virtual machine or a container there may be neither cgroups v2 nor network plugins.
_CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
netns = "host"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""
_STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{graphroot}"
runroot = "{runroot}"
"""
_DEBOOTSTRAP_SECONDS = 900.0
_IMPORT_SECONDS = 300.0


def podman_environment() -> dict[str, str]:
    """The environment in which podman works here, and the container builder has a base image.

    A base that the user has set is taken; otherwise one is made of this host's own Debian. Skips
    the test, with the reason, where that cannot be.
    """
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed: no containers")
    given = os.environ.get(BASE_VARIABLE)
    if os.geteuid() != 0:
        if given is None:
            pytest.skip(f"only root can make a base image; or set {BASE_VARIABLE}")
        return {BASE_VARIABLE: given}
    if shutil.which("runc") is None:
        pytest.skip("runc is not installed: no containers as root")
    environment = _settings()
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    base = given or f"localhost/labctl-test-base:{codename}"
    environment[BASE_VARIABLE] = base
    with locked(cache_dir() / "tests" / "base-image.lock", timeout=_DEBOOTSTRAP_SECONDS):
        if given is None and not _has_image(base, environment):
            _import_base(codename, base, environment)
    return environment


def containers_of(cache: Path, environment: dict[str, str]) -> list[str]:
    """Identifiers of all containers, running or not, of builds in a cache."""
    words = ["podman", "ps", "--all", "--format", "json", "--filter", "label=labctl.build"]
    done = process.run(words, timeout=120, env={**os.environ, **environment})
    assert done.exit_status == 0, done.tail()
    found = json.loads(done.text)
    return [c["Id"] for c in found if c["Labels"]["labctl.build"].startswith(str(cache))]


def _settings() -> dict[str, str]:
    """podman's own settings, for this cache."""
    folder = cache_dir().resolve() / "tests" / "podman"
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    storage = _STORAGE_CONF.format(
        graphroot=folder / "storage", runroot=f"/run/labctl-tests-{digest}"
    )
    write_atomic(folder / "containers.conf", _CONTAINERS_CONF)
    write_atomic(folder / "storage.conf", storage)
    return {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }


def _has_image(name: str, environment: dict[str, str]) -> bool:
    words = ["podman", "image", "exists", name]
    done = process.run(words, timeout=120, env={**os.environ, **environment})
    if done.exit_status not in (0, 1):
        pytest.skip(f"podman does not work here: {done.tail(3)}")
    return done.exit_status == 0


def _import_base(codename: str, name: str, environment: dict[str, str]) -> None:
    """Make an image of the distribution that this host runs, from the mirror that it uses."""
    if shutil.which("debootstrap") is None or shutil.which("apt-get") is None:
        pytest.skip("debootstrap is not installed: no base image")
    mirror = _mirror(codename)
    if mirror is None:
        pytest.skip("this host's apt names no mirror: no base image")
    with scratch(cache_dir() / "tests", ".base-image-") as made:
        root, archive = made / "root", made / "root.tar"
        for words, seconds in (
            (["debootstrap", "--variant=minbase", codename, root, mirror], _DEBOOTSTRAP_SECONDS),
            (["tar", "-C", root, "-cf", archive, "."], _IMPORT_SECONDS),
            (["podman", "import", archive, name], _IMPORT_SECONDS),
        ):
            done = process.run(words, timeout=seconds, env={**os.environ, **environment})
            if done.exit_status != 0:
                pytest.skip(f"no base image, {words[0]} failed: {done.tail(3)}")


def _mirror(codename: str) -> str | None:
    """Where this host's apt gets the distribution's own packages."""
    form = "$(RELEASE) $(COMPONENT) $(ORIGIN) $(REPO_URI)"
    words = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    done = process.run(words, timeout=120)
    for line in done.text.splitlines():
        release, component, origin, uri = line.split(maxsplit=3)
        if (release, component) == (codename, "main") and origin in {"Debian", "Ubuntu"}:
            return uri.rstrip("/")
    return None
