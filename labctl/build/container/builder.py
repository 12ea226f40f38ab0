"""The container builder and its workspace."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from labctl import process
from labctl.build.container.answers import Image
from labctl.build.container.engine import Mount, find_engine
from labctl.build.container.image import ensure_image, find_containerfile
from labctl.build.container.run import Containers
from labctl.build.gcc import find_gcc
from labctl.build.local import LocalWorkspace
from labctl.build.manifest import BuilderKind, CompilerKind, Machine
from labctl.build.progress import OnProgress, ignore
from labctl.build.toolchain import Needs, Toolchain, kit_toolchain
from labctl.build.workspace import Builder, Folders, Workspace, WorkspaceInputs
from labctl.config.target import Target
from labctl.errors import HostError, ToolMissing
from labctl.files import cache_dir, host_writes

#: The same on every host, so that the same bytes come out.
SOURCE = "/source"
TREE = "/build"
CCACHE = "/ccache"


class ContainerBuilder(Builder):
    """podman or docker on this host, with the image of the target's Containerfile."""

    kind = BuilderKind.CONTAINER

    def __init__(self, lab_root: Path | None, on_progress: OnProgress = ignore):
        self._lab_root = lab_root
        self._on_progress = on_progress
        self._image: Image | None = None

    def offer(self, target: Target, needs: Needs) -> Toolchain:
        """Return the GCC of the image, which is built first if it is missing.

        Raises ToolMissing, HostError, HostTimeout, ConfigError (no Containerfile, or a wrong one).
        """
        if needs.asked is CompilerKind.ZIG:
            raise ToolMissing("the container builder compiles with GCC", hint="--builder local")
        containerfile = find_containerfile(target.name, self._lab_root)
        engine = find_engine()
        image = Image(engine, ensure_image(engine, target.name, containerfile, self._on_progress))
        self._image = image
        on = Machine(
            builder=self.kind,
            machine=image.machine,
            system=image.system,
            image=image.id,
            engine=str(engine),
            network=not image.isolated,
        )
        return find_gcc(image.ask, target, needs, on=on) if needs.compiler else kit_toolchain(on)

    def folders(self, inputs: WorkspaceInputs) -> Folders:  # noqa: ARG002 - it has the same for all
        """Return the folders, the same for all builds. Kits have the same paths in a container as
        here.
        """
        return Folders(source=SOURCE, tree=TREE)

    @contextmanager
    def open(
        self,
        inputs: WorkspaceInputs,
        *,
        lock: int,
        on_progress: OnProgress,  # noqa: ARG002 - nothing is sent
    ) -> Iterator[Workspace]:
        """Make the tree on this host, and end what an earlier build has left running."""
        image = self._image
        if image is None:
            raise HostError("the container builder has not been asked for its toolchain")
        if image.isolated and not image.is_isolated():
            image.forget()
            raise HostError(
                f"{image.engine} gave a container a network that was started without one",
                hint="its settings have changed; build again",
            )
        label = f"labctl.build={inputs.home}"
        image.engine.remove_labelled(label)
        tree, ccache = inputs.home / "tree", cache_dir() / "ccache"
        control = inputs.home / "container"
        for folder in (tree, ccache):
            with host_writes(folder):
                folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(control, ignore_errors=True)
        mounts = [Mount(tree, TREE, writable=True), Mount(ccache, CCACHE, writable=True)]
        mounts.append(Mount(inputs.source.resolve(), SOURCE))
        mounts += [Mount(Path(sdk), sdk, writable=True) for sdk in inputs.sdks]
        containers = Containers(
            image.engine, image.id, label, control, not image.isolated, tuple(mounts)
        )
        yield ContainerWorkspace(
            self.folders(inputs), {TREE: tree, SOURCE: inputs.source}, containers, lock
        )


class ContainerWorkspace(Workspace):
    """Folders of this host, and programs in containers that see them under other names."""

    def __init__(
        self, folders: Folders, here: Mapping[str, Path], containers: Containers, lock: int
    ):
        self.folders = folders
        self._mapped = here
        self._files = LocalWorkspace(replace(folders, tree=str(here[folders.tree])), lock)
        self._containers = containers
        self._lock = lock

    def run(
        self,
        words: Sequence[str],
        *,
        timeout: float,
        on_line: Callable[[str], None],
        log: Path,
        env: Mapping[str, str],
        cwd: str | None = None,
    ) -> process.Completed:
        """Run it in its own container."""

        def launch(argv: list[str]) -> process.Completed:
            return process.run_streaming(
                argv, timeout=timeout, on_line=on_line, log=log, keep_open=(self._lock,)
            )

        return self._containers.run(
            words, launch=launch, env={"CCACHE_DIR": CCACHE, **env}, cwd=cwd or TREE
        )

    def read(self, name: str) -> str | None:
        """Return the text of a file."""
        return self._files.read(self._here(name))

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        self._files.write(self._here(name), text)

    def clear(self) -> None:
        """Empty the tree."""
        self._files.clear()

    def exists(self, path: str) -> bool:
        """Return True if it exists."""
        return self._files.exists(self._here(path))

    def fetch(self, path: str, to: Path) -> None:
        """Copy it within this host."""
        self._files.fetch(self._here(path), to)

    def _here(self, path: str) -> str:
        """Translate a path of the container to one of this host; SDKs have the same in both."""
        for inside, here in self._mapped.items():
            if path == inside or path.startswith(f"{inside}/"):
                return f"{here}{path.removeprefix(inside)}"
        return path
