"""The container builder and its workspace."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from labctl import process
from labctl.build.container.answers import Image
from labctl.build.container.engine import Mount, Restrictions, find_engine
from labctl.build.container.image import ensure_image, find_containerfile
from labctl.build.container.run import Containers
from labctl.build.gcc import find_gcc
from labctl.build.local import LocalWorkspace
from labctl.build.manifest import BuilderKind, CompilerKind, Machine
from labctl.build.progress import OnProgress, ignore
from labctl.build.source import repositories
from labctl.build.toolchain import Needs, Toolchain, kit_toolchain
from labctl.build.workspace import Builder, Folders, Program, Workspace, WorkspaceInputs
from labctl.config.target import Target
from labctl.errors import CompileError, ConfigError, HostError, ToolMissing
from labctl.files import host_writes, open_whole
from labctl.folders import cache_dir
from labctl.removal import remove_tree
from labctl.units import size

#: The same on every host, so that builds produce the same bytes.
SOURCE = "/source"
TREE = "/build"
CCACHE = "/ccache"
#: Limits of a container that compiles an untrusted source; each program has its own container.
RESTRICTIONS = Restrictions(
    memory_bytes=8 << 30, processes=2048, file_bytes=4 << 30, disk_bytes=16 << 30
)
UNTRUSTED_SECONDS = 3600.0
UNTRUSTED_OUTPUT_BYTES = 64 << 20
#: Each repository is hidden by its own mount.
MOST_REPOSITORIES = 500


class ContainerBuilder(Builder):
    """podman or docker on this host, with the image of the target's Containerfile."""

    kind = BuilderKind.CONTAINER

    def __init__(
        self, lab_root: Path | None, on_progress: OnProgress = ignore, *, untrusted: bool = False
    ):
        self._lab_root = lab_root
        self._untrusted = untrusted
        self._on_progress = on_progress
        self._image: Image | None = None

    def offer(self, target: Target, needs: Needs) -> Toolchain:
        """Return the GCC of the image; build the image first if it is missing.

        Raises ToolMissing, HostError, HostTimeout, ConfigError (Containerfile missing or wrong).
        """
        if needs.asked is CompilerKind.ZIG:
            raise ToolMissing("the container builder compiles with GCC", hint="--builder local")
        containerfile = find_containerfile(target.name, self._lab_root)
        engine = find_engine()
        image = Image(engine, ensure_image(engine, target.name, containerfile, self._on_progress))
        if self._untrusted and not image.isolated:
            raise HostError(
                f"{engine} cannot keep containers from the network, as an untrusted source needs",
                hint="a builder that can: podman, with slirp4netns or pasta, or as root",
            )
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
        """Return the folders, the same for all builds.

        SDKs have the same paths in the container as on this host.
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
        """Make the tree on this host, and end programs that an earlier build left running."""
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
        # Other builds must not use files that an untrusted source left.
        tree, ccache = inputs.home / "tree", (inputs.home if self._untrusted else cache_dir())
        ccache, control = ccache / "ccache", inputs.home / "container"
        if self._untrusted:
            with host_writes(inputs.home):
                inputs.home.mkdir(parents=True, exist_ok=True)
                inputs.home.chmod(0o700)  # it may hold programs owned by root, with setuid
        for folder in (tree, ccache):
            with host_writes(folder):
                folder.mkdir(parents=True, exist_ok=True)
        remove_tree(control)
        mounts = [Mount(tree, TREE, writable=True), Mount(ccache, CCACHE, writable=True)]
        mounts.append(Mount(inputs.source.resolve(), SOURCE))
        if self._untrusted:
            mounts += _hidden(inputs.source.resolve(), inputs.home)
        mounts += [Mount(Path(sdk), sdk, writable=True) for sdk in inputs.sdks]
        containers = Containers(
            image.engine,
            image.id,
            label,
            control,
            not image.isolated,
            tuple(mounts),
            RESTRICTIONS if self._untrusted else None,
        )
        yield ContainerWorkspace(
            self.folders(inputs), {TREE: tree, SOURCE: inputs.source}, containers, lock
        )


class ContainerWorkspace(Workspace):
    """Folders of this host, and programs in containers that see them under other names.

    A program may leave links in the tree: labctl follows none out of the tree on this host.
    """

    def __init__(
        self, folders: Folders, here: Mapping[str, Path], containers: Containers, lock: int
    ):
        self.folders = folders
        self._mapped = here
        self._files = LocalWorkspace(replace(folders, tree=str(here[folders.tree])), lock)
        self._containers = containers
        self._lock = lock

    def run(self, program: Program) -> process.Completed:
        """Run it in its own container."""

        restricted = self._containers.restrictions is not None
        see = _counted(program.on_line, program.words[0]) if restricted else program.on_line
        seconds = min(program.timeout, UNTRUSTED_SECONDS) if restricted else program.timeout

        def launch(argv: list[str], cwd: Path, held: int) -> process.Completed:
            return process.run_streaming(
                argv,
                timeout=seconds,
                on_line=see,
                log=program.log,
                cwd=cwd,
                keep_open=(self._lock, held),
            )

        return self._containers.run(
            program.words,
            launch=launch,
            seconds=seconds,
            env={"CCACHE_DIR": CCACHE, **program.env},
            cwd=program.cwd or TREE,
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
        """Return True if the path exists."""
        return os.path.exists(self._here(path))  # noqa: PTH110 - False also where it is hidden

    def fetch(self, path: str, to: Path, *, most: int | None = None) -> None:
        """Copy the file within this host. Raises CompileError if it is not a regular file."""
        here = self._here(path)
        try:
            open_whole(Path(here)).close()
        except OSError as error:
            raise CompileError(f"the build left no file that can be read: {path}") from error
        self._files.fetch(here, to, most=most)

    def _here(self, path: str) -> str:
        """Translate a container path to a path of this host; SDKs have the same path in both.

        Raises CompileError if a link leads out of its folder.
        """
        if not path.startswith("/"):
            path = f"{self.folders.tree}/{path}"
        for inside, here in self._mapped.items():
            if path == inside or path.startswith(f"{inside}/"):
                found = f"{here}{path.removeprefix(inside)}"
                # Unlike Path.resolve(), realpath treats a link to itself as a name.
                if not Path(os.path.realpath(found)).is_relative_to(os.path.realpath(here)):
                    raise CompileError(f"the build left a link out of its folder: {path}")
                return found
        return path


def _hidden(source: Path, home: Path) -> list[Mount]:
    """Return empty mounts that hide git's own files: they may contain tokens of a CI."""
    names = repositories(source)
    if len(names) > MOST_REPOSITORIES:
        raise ConfigError(f"{source} holds more than {MOST_REPOSITORIES} repositories")
    nothing, empty = home / "nothing", home / "nothing" / "file"
    with host_writes(nothing):
        (nothing / "folder").mkdir(parents=True, exist_ok=True)
        empty.touch()
    return [
        Mount(nothing / "folder" if (source / name).is_dir() else empty, f"{SOURCE}/{name}")
        for name in names
    ]


def _counted(on_line: Callable[[str], None], program: str) -> Callable[[str], None]:
    """Return ``on_line``, with CompileError as soon as too many bytes are printed."""
    printed = 0

    def see(line: str) -> None:
        nonlocal printed
        printed += len(line) + 1
        if printed > UNTRUSTED_OUTPUT_BYTES:
            raise CompileError(f"{program} printed more than {size(UNTRUSTED_OUTPUT_BYTES)}")
        on_line(line)

    return see
