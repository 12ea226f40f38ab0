"""Builds of sources that nobody vouches for: those of a pull request.

They are compiled in a container that has no network, no secret and no folder but their own, within
limits of time, memory and output. Nothing that they make is started on this host, and no recipe
gets it without asking for it by its label.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from labctl.build.source import Folder, Source
from labctl.build.source_git import Repository
from labctl.build.spec import BuildSpec, GitSource
from labctl.errors import ConfigError

if TYPE_CHECKING:
    from labctl.build.plan import BuildRequest

#: Begins the version of each artifact of such a source; its digest follows.
LABEL = "untrusted-"
#: Reason in the manifest for what was not started.
NOT_STARTED = "its source is not trusted: it is not started on this host"
_COMMIT = re.compile(r"[0-9a-f]{40}")


def check_untrusted(request: "BuildRequest", spec: BuildSpec) -> None:
    """Raise ConfigError for a build that an untrusted source must not have."""
    if request.source is None:
        raise ConfigError(
            "--untrusted is for a source of your own: the build spec's are pinned by their hashes",
            hint="name it: --source DIR, or --git URL --ref COMMIT",
        )
    if spec.builder == "steps" or spec.paths:
        raise ConfigError(
            f"{spec.product} is built with an SDK of this host, where an untrusted source could"
            " change files",
            hint="build a product without an SDK",
        )
    if request.lab_root is None or not isinstance(request.source, Path):
        return
    source, lab = request.source.resolve(), request.lab_root.resolve()
    if lab.is_relative_to(source) or source.is_relative_to(lab):
        raise ConfigError(
            f"the untrusted source {source} and the lab {lab} share a folder",
            hint="keep them apart: labctl --lab DIR build …",
        )


def untrusted_source(given: Path | GitSource) -> Source:
    """Return a source that is known by its hash; no git runs in its folder.

    The settings of a repository may name programs, which git would start. Raises ConfigError.
    """
    if isinstance(given, Path):
        return Folder(given, read_git=False)
    if not _COMMIT.fullmatch(given.ref):
        raise ConfigError(
            f"--ref {given.ref}: an untrusted source is named by its commit",
            hint="give all 40 digits: a branch or tag can be moved",
        )
    return Repository(given.git, given.ref)
