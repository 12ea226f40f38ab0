"""Builds of untrusted sources, e.g. of a pull request.

They are compiled in a container without network, secrets or folders of others, within limits of
time, memory and output. Their programs are never started on this host. A recipe gets such a build
only if it names its label.
"""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labctl.build.source import Folder, Source
from labctl.build.source_git import Repository, local_repository
from labctl.build.spec import BuildSpec, GitSource
from labctl.config.target import TOOLCHAINS
from labctl.errors import ConfigError
from labctl.folders import cache_dir, present_folder, state_dir, work_trees

if TYPE_CHECKING:
    from labctl.build.plan import BuildRequest

#: Reason in the manifest for a tool that was not started.
NOT_STARTED = "its source is not trusted: it is not started on this host"
_COMMIT = re.compile(r"[0-9a-f]{40}")


def check_untrusted(request: "BuildRequest", spec: BuildSpec) -> None:
    """Raise ConfigError if an untrusted source may not have this build."""
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
    if isinstance(request.source, Path):
        stand_apart(request.lab_root, request.source)
        return
    if (here := present_folder()) is not None and work_trees(here):
        _check_apart(request.lab_root, here)
    if (folder := local_repository(request.source.git)) is not None:
        _check_apart(request.lab_root, folder)


def stand_apart(lab_root: Path | None, folder: Path) -> None:
    """Raise ConfigError if files in an untrusted folder could act as the lab's, or as labctl's.

    All files of the work tree around the folder count as untrusted. Python imports no more files
    from there.
    """
    _check_apart(lab_root, folder)
    theirs = _theirs(folder)
    sys.path[:] = _outside(sys.path, theirs)
    if named := os.environ.get("PYTHONPATH"):
        os.environ["PYTHONPATH"] = os.pathsep.join(_outside(named.split(os.pathsep), theirs))
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    for name, file in files.items():
        if file is not None and _is_within({Path(file)}, theirs):
            raise ConfigError(
                f"Python has imported {name} from the untrusted folder: {file}",
                hint="use the labctl that is installed elsewhere, without PYTHONPATH",
            )


def _check_apart(lab_root: Path | None, folder: Path) -> None:
    """Raise ConfigError if the lab, or labctl's cache or state, is in an untrusted folder."""
    here, theirs = folder.resolve(), _theirs(folder)
    outermost = [here, *work_trees(here)][-1]
    unrelated = ""
    if outermost != here:
        unrelated = (
            f"; all files of the work tree {outermost} count as untrusted: if its repository has"
            " nothing to do with the source, keep its .git elsewhere"
            f" (git --git-dir DIR --work-tree {outermost})"
        )
    if _is_within({cache_dir().resolve(), state_dir().resolve()}, theirs):
        raise ConfigError(
            f"labctl's cache and state are in the untrusted folder {outermost}, which may"
            " bring files for them",
            hint=f"set LABCTL_CACHE and LABCTL_STATE to other folders{unrelated}",
        )
    if lab_root is None:
        return
    lab = lab_root.resolve()
    ours = {lab_root.absolute(), lab, (lab / TOOLCHAINS).resolve()}
    if here.is_relative_to(lab) or _is_within(ours, theirs):
        raise ConfigError(
            f"the lab {lab} and the untrusted files of {here} are not apart: they share a folder",
            hint=f"keep them apart, and name the lab: labctl --lab DIR …{unrelated}",
        )


def _is_within(paths: set[Path], folders: set[Path]) -> bool:
    return any(path.is_relative_to(folder) for path in paths for folder in folders)


def _outside(names: Sequence[str], folders: set[Path]) -> list[str]:
    return [name for name in names if not _is_within({Path(name).resolve()}, folders)]


def _theirs(folder: Path) -> set[Path]:
    """Return an untrusted folder, and all work trees around it: it may be a submodule."""
    named = {folder.absolute(), folder.resolve()}
    return named | {tree.resolve() for one in named for tree in work_trees(one)}


def untrusted_source(given: Path | GitSource) -> Source:
    """Return a source identified by its hash; git does not run in its folder.

    The settings of a repository may name programs, which git would start. Raises ConfigError.
    """
    if isinstance(given, Path):
        return Folder(given, read_git=False)
    if not _COMMIT.fullmatch(given.ref):
        raise ConfigError(
            f"--ref {given.ref}: an untrusted source is named by its commit",
            hint="give all 40 digits: a branch or tag can be moved",
        )
    return Repository(given.git, given.ref, submodules=False)
