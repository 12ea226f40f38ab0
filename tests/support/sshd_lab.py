"""A lab with build hosts, and a product that compiles there in a second."""

import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forked
from sshd_host import SshHost

from labctl import process
from labctl.build.artifact import Artifact
from labctl.build.builder import build
from labctl.build.manifest import BuilderKind
from labctl.build.plan import BuildRequest
from labctl.build.progress import BuildProgress, Step
from labctl.build.remote import SshBuilder
from labctl.build.source import Folder
from labctl.build.workspace import Program, Workspace, WorkspaceInputs
from labctl.config.lab import find_lab
from labctl.package_data import TOOLCHAINS
from labctl.transport.built_in import TRANSPORTS

#: This machine's own kind: what is built starts here.
TARGET = f"host-{platform.machine()}"
_SPEC = """\
product: tiny
description: Two small programs
builder: cmake
default_version: first
versions:
  first:
    source: {folder: ../../tiny}
definitions:
  CMAKE_BUILD_TYPE: Release
tools:
  one: {smoke: [--version]}
  two: {smoke: [--version]}
"""
_CMAKE = """\
cmake_minimum_required(VERSION 3.14)
project(tiny C)
foreach(tool one two)
  add_executable(${tool} main.c)
endforeach()
"""
#: It has the name of its source in it, as assertions of real programs have.
_PROGRAM = """\
#include <stdio.h>
int main(void) { return puts(__FILE__) < 0; }
"""
#: What needs a compiler alone, as the agent does.
_PLAIN = """\
product: plain
description: One small program, without CMake
builder: compile
default_version: first
versions:
  first:
    source: {folder: ../../tiny}
tools:
  plain:
    smoke: [--version]
    flags: [-std=c11, -O2, -static]
    sources: [main.c]
"""
#: Makes a build last until something ends it.
_LASTING = "add_custom_target(lasting COMMAND sleep 297)\nadd_dependencies(one lasting)\n"
LASTING = "sleep 297"


class SshLab:
    """A lab in a folder of the test's own."""

    def __init__(self, root: Path, **hosts: dict[str, object]):
        self.root = root
        self.source = root / "tiny"
        self.source.mkdir(parents=True)
        products = root / "toolchains" / "products"
        products.mkdir(parents=True)
        (products / "tiny.yaml").write_text(_SPEC)
        (products / "plain.yaml").write_text(_PLAIN)
        (self.source / "CMakeLists.txt").write_text(_CMAKE)
        (self.source / "main.c").write_text(_PROGRAM)
        self.write_hosts(**hosts)
        #: What builds have said about themselves.
        self.events: list[BuildProgress] = []

    def write_hosts(self, **hosts: dict[str, object]) -> None:
        # JSON is YAML.
        document = {"boards": {}, "build_hosts": hosts}
        (self.root / "devices.yaml").write_text(json.dumps(document))

    def copy_agent(self) -> None:
        """Make the agent a product of this lab, whose source is at rest."""
        shutil.copytree(TOOLCHAINS / "agent", self.root / "toolchains" / "agent")
        shutil.copy(TOOLCHAINS / "products" / "agent.yaml", self.root / "toolchains" / "products")

    def let_builds_last(self) -> None:
        with (self.source / "CMakeLists.txt").open("a") as file:
            file.write(_LASTING)

    @property
    def steps(self) -> list[Step]:
        """The steps that builds went through."""
        return list(dict.fromkeys(event.step for event in self.events))

    def build(self, *tools: str, host: str = "x86", target: str = TARGET) -> Artifact:
        """Build tools of the product, in this process."""
        request = BuildRequest(
            target=target,
            product="tiny",
            tools=tools or ("one",),
            builder=BuilderKind.SSH,
            host=host,
            lab_root=self.root,
        )
        return build(request, on_progress=self.events.append)

    def builder(self, host: str = "x86", **limits: Any) -> SshBuilder:
        lab = find_lab(self.root, TRANSPORTS)
        return SshBuilder(host, lab.lab.build_hosts, lab.root, **limits)

    def inputs(self, name: str = f"{TARGET}/tiny-first-0123456789ab") -> WorkspaceInputs:
        unchanged = Folder(self.source).verify_unchanged
        return WorkspaceInputs(name, self.source, "0" * 64, self.root / "home", unchanged)

    @contextmanager
    def workspace(self, host: str = "x86", **limits: Any) -> Iterator[Workspace]:
        """A workspace for a build, and nothing built yet."""
        builder = self.builder(host, **limits)
        with builder.open(self.inputs(), lock=0, on_progress=self.events.append) as workspace:
            yield workspace

    def labctl(self, *words: str, timeout: float = 500) -> process.Completed:
        """``labctl WORDS`` as a user types it."""
        return forked.run(words, cwd=self.root, timeout=timeout)


def run_in(
    workspace: Workspace,
    words: Sequence[str],
    *,
    timeout: float = 60,
    on_line: Callable[[str], None] = lambda _line: None,
) -> process.Completed:
    """Run a program on a place."""
    log = Path(os.environ["LABCTL_CACHE"]) / "log"
    return workspace.run(
        Program(words=words, timeout=timeout, on_line=on_line, log=log, env={"LC_ALL": "C"})
    )


def is_lasting(host: SshHost) -> bool:
    """Whether a build that lasts has come to the point where it does."""
    return any(line.rstrip().endswith(LASTING) for line in host.working())
