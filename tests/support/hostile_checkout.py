"""A checkout in which everything that some program might pick up leaves a trace when it acts."""

import os
import shlex
import subprocess
from pathlib import Path

#: What labctl, pip, git, podman, zig, CMake and their children look for on PATH.
PROGRAMS = (
    *("git", "git-upload-pack", "git-remote-https", "git-lfs", "podman", "docker", "conmon"),
    *("runc", "crun", "python", "python3", "python3.11", "pip", "ssh", "ssh-keygen", "hdc"),
    *("qemu-aarch64-static", "mksh", "toybox", "sh", "bash", "flock", "cmake", "ninja", "make"),
    *("cc", "gcc", "ld", "zig", "aarch64-linux-gnu-gcc", "strip", "fc-list", "uname", "true"),
)
#: What Python imports by itself, and what labctl and pip import of others.
MODULES = (
    *("pip", "sitecustomize", "usercustomize", "yaml", "click", "json", "lazy_loader", "httpx"),
    *("pydantic", "numpy", "tomllib", "encodings", "labctl_plugin", "_virtualenv", "zipfile"),
)
HOOKS = ("post-checkout", "post-merge", "pre-commit", "reference-transaction", "post-index-change")


class HostileCheckout:
    """The folder of a pull request. ``traces`` lists what has acted."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._marks = folder.parent / f"traces-of-{folder.name}"
        self._marks.mkdir()

    @property
    def traces(self) -> list[str]:
        """What has acted so far."""
        return sorted(path.name for path in self._marks.iterdir())

    @property
    def environment(self) -> dict[str, str]:
        """Variables as careless profiles have them: they name the present folder."""
        return {
            "PATH": f".::{os.environ['PATH']}:",
            "LD_LIBRARY_PATH": "",
            "PIP_CONFIG_FILE": "pip.conf",
        }

    def plant(self) -> None:
        """Fill the folder; what a pull request needs is there already."""
        folder = self.folder
        for name in MODULES:
            self._module(folder / f"{name}.py", name)
        for name in ("__init__", "__main__", "cli"):
            self._module(folder / "labctl" / f"{name}.py", f"labctl.{name}")
        for name in PROGRAMS:
            self.program(name)
        meter = f"power: {{kind: command, command: [{self.program('meter')}], unit: W}}"
        self._write(
            "devices.yaml",
            "boards:\n  vb:\n    target: rk3568\n    untrusted: true\n"
            f'    transport: {{kind: hdc, link: tcp, address: "127.0.0.1:1"}}\n    {meter}\n',
        )
        self._toolchains()
        lock = "models: {'pypi:tiny-model==1.2/*.gguf': {sha256: '%s', size_bytes: 1}}\n"
        self._write("models.lock.yaml", lock % ("0" * 64))
        self._write("references.yaml", "runs: []\n")
        self._write(".netrc", "default login a password b\n")
        self._write("pip.conf", "[global]\nindex-url = http://127.0.0.1:1/\nno-index = false\n")
        self._write(".env", "LABCTL_LAB=.\nLABCTL_CACHE=.\nLABCTL_STATE=.\n")
        self._write("Makefile", f"all:\n\ttouch {self._marks}/Makefile\n")
        (folder / "oom").symlink_to(self._marks / "oom")
        for name in ("runs", "models", "recipes", "worker.log", ".labctl", "core"):
            (folder / name).symlink_to(self._marks / name)

    def repository(self) -> str:
        """Make it a repository with hostile settings, hooks and attributes; return its commit."""
        folder = self.folder
        self._write(".gitattributes", "* filter=evil diff=evil merge=evil\n")
        self._write(".lfsconfig", "[lfs]\n\turl = http://127.0.0.1:1/\n")
        for words in (
            ("init", "-q", "-b", "main"),
            ("add", "--all", "--force"),
            ("commit", "-q", "-m", "all"),
        ):
            _git(folder, *words)
        command = shlex.quote(str(self.program(".git/canary")))
        named = (
            *("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.editor"),
            *("diff.evil.textconv", "diff.external", "core.fsmonitor", "core.pager", "gpg.program"),
            *("core.sshCommand", "core.gitProxy", "core.alternateRefsCommand"),
            "uploadpack.packObjectsHook",
        )
        settings = dict.fromkeys(named, command) | {
            "credential.helper": f"!{command}",
            "core.hooksPath": str(folder / ".git" / "hooks"),
        }
        for name, value in settings.items():
            _git(folder, "config", name, value)
        for name in HOOKS:
            self.program(f".git/hooks/{name}")
        return (folder / ".git/refs/heads/main").read_text().strip()

    def program(self, name: str) -> Path:
        """Make a program that leaves a trace."""
        mark = self._marks / name.replace("/", "-")
        path = self._write(name, f'#!/bin/sh\necho "$PWD $*" >>{mark}\nexit 97\n')
        path.chmod(0o755)
        return path

    def _toolchains(self) -> None:
        run = self.program("toolchains/run")
        steps = f"builder: steps\nsteps: [{{run: [{run}], timeout: 1m}}]\n"
        versions = "default_version: v\nversions: {v: {source: {folder: .}}}\n"
        for product, tool in (("agent", "agent"), ("llama.cpp", "llama-cli"), ("trial", "tool")):
            text = f"product: {product}\ndescription: evil\n{steps}{versions}"
            text += f"tools: {{{tool}: {{output: '{{tree}}/x'}}}}\n"
            for place in ("products", "rk3568", "host-x86_64"):
                self._write(f"toolchains/{place}/{product}.yaml", text)
        for place in ("products", "rk3568"):
            self._write(f"toolchains/{place}/Containerfile", "ARG BASE=evil\nFROM ${BASE}\n")
        self._write("toolchains/rk3568/target.yaml", "name: rk3568\n")

    def _module(self, path: Path, name: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"open({str(self._marks / f'{name}.py')!r}, 'w').close()\n")

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


def _git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", folder, *identity, *words], check=True, capture_output=True)
