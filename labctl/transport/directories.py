"""Directories to and from a board: files over one link, verified by one command at the end.

hdc itself transfers directories, but it loses empty ones, keeps only some modes, follows all
symbolic links, and uses other paths if the destination exists. Here a command makes the
directories, all files are sent over one channel, and at the end modes are set and all hashes are
requested. This is the same on each link and each version of hdcd. It happens in a directory beside
the final one, so that only verified files appear there. Received files are named one by one,
because hdcd itself would follow every link; many small files come with one command
(:meth:`FileTransfer.receive_all`). No step runs a command for each file.

Symbolic links: a link to a file is pushed as that file; other links (to directories, or broken) are
skipped and named in the summary. A pull neither makes nor follows links.
"""

import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from labctl.errors import BoardError, ConfigError, IntegrityError, LinkError, ProtocolError
from labctl.files import host_writes, short_name, sync_directory
from labctl.interrupts import finishing
from labctl.progress import BytesDone
from labctl.removal import remove_tree
from labctl.transport.base import (
    Copied,
    TransferOptions,
    Transport,
    check_remote_path,
    remote_words,
    require,
)
from labctl.transport.file_transfer import (
    Digest,
    FileTransfer,
    batches,
    hash_timeout,
    in_folder,
)
from labctl.transport.pseudo_files import (
    pseudo_files,
    read_pseudo_files,
    why_not_proven,
)

_LISTING = re.compile(rb"([0-9a-f]{1,8}) (\d{1,19}) \.(?:/(.+))?")
#: Time-out (s) for removing unfinished files.
_CLEANING_SECONDS = 10.0
_SYNCING_THREADS = 16
#: Mode of a directory while it is filled; its own mode is set at the end.
_OPEN_DIRECTORY = 0o700
_PERMISSIONS = 0o777  # without set-id bits: a board must not decide about this host


@dataclass
class _Tree:
    """Content of a directory by relative path; ``.`` is the directory itself. Values are modes."""

    directories: dict[str, int] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    #: Bytes of each file, as listed by the board.
    sizes: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def push_directory(
    transport: Transport, local: Path, remote: str, options: TransferOptions
) -> Copied:
    """Copy the content of ``local`` into ``remote``, with modes and empty directories.

    All files are verified. Missing parents are made; existing entries stay or are overwritten.
    Links to files are sent as files; other links are skipped. Raises as :meth:`Transport.push`
    does.
    """
    transfer = transport.file_transfer(options)
    tree = _walk(local)
    for name in (*tree.directories, *tree.files):
        check_remote_path(_place(remote, name))
    counter = _Counter(options.progress)
    board = _Board(transport, options.timeout)
    if not board.is_missing(remote):
        board.require_no_directories([_place(remote, name) for name in tree.files])
    staged = beside(remote)
    sent: dict[str, Digest] = {}
    with finishing() as signals:
        try:
            board.each(("mkdir", "-p"), [_place(staged, name) for name in tree.directories])
            if tree.files:
                sent = transfer.send_all(local, tree.files, staged, counter)
            _prove(transfer, staged, sent, f"{local} pushed to {remote}")
            board.run_all(_chmod(staged, sorted(tree.files.items(), key=itemgetter(1, 0))))
            if board.is_missing(remote):
                board.run_all([*_chmod(staged, _inner_first(tree)), ["mv", staged, remote]])
            else:
                board.each(("mkdir", "-p"), [_place(remote, name) for name in tree.directories])
                board.run_all(
                    [
                        *_moves(staged, remote, tree),
                        *_chmod(remote, _inner_first(tree)),
                        ["rm", "-rf", staged],
                    ]
                )
        except BaseException:
            signals.hold()
            cleaning = _Board(transport, min(options.timeout, _CLEANING_SECONDS))
            with suppress(LinkError, BoardError):
                cleaning.each(("rm", "-rf"), [staged])
            raise
    return Copied(len(sent), counter.done, tuple(tree.skipped))


def pull_directory(
    transport: Transport, remote: str, local: Path, options: TransferOptions
) -> Copied:
    """Copy a directory from the board; ``local`` appears complete, or not at all.

    ``local`` must be missing or empty. Links are skipped. Nothing is written outside ``local``, for
    any names that the board reports. Raises as :meth:`Transport.pull` does.
    """
    transfer = transport.file_transfer(options)
    check_remote_path(remote)
    counter = _Counter(options.progress)
    with _appearing_directory(local) as folder:
        pseudo = pseudo_files(transport, remote, timeout=options.timeout)
        kernels = pseudo.pop(".", None)
        tree = _list(transport, remote, options.timeout, vanishing=kernels is not None)
        for name in sorted(tree.directories):
            if name != ".":
                (folder / name).mkdir(mode=_OPEN_DIRECTORY)
        if kernels is not None:  # new entries: their file system is unknown
            pseudo = {name: pseudo.get(name, kernels) for name in tree.files}
        ordinary = {name: size for name, size in tree.sizes.items() if name not in pseudo}
        received = transfer.receive_all(remote, ordinary, folder, counter)
        _sync([folder / name for name in received])
        unreadable = []
        places = {_place(remote, name): name for name in tree.files if name in pseudo}
        for batch in batches(list(places)):
            files = [(place, folder / places[place]) for place in batch]
            for place in read_pseudo_files(transport, files, counter, timeout=options.timeout):
                unreadable.append(places[place])
                del tree.files[places[place]], pseudo[places[place]]
        _prove(transfer, remote, received, f"{remote} pulled to {local}")
        for name, mode in (*tree.files.items(), *_inner_first(tree)):
            (folder / name).chmod(mode)
    return Copied(
        len(tree.files),
        counter.done,
        tuple(tree.skipped),
        tuple(unreadable),
        why_not_proven(pseudo) if pseudo else None,
    )


@dataclass(frozen=True)
class _Board:
    """Short commands on the board that must succeed. Raises LinkError, BoardError."""

    transport: Transport
    timeout: float

    def each(self, words: Sequence[str], paths: Sequence[str]) -> None:
        """Run a command with all paths; split it into several commands for many paths."""
        self.run_all([*words, *batch] for batch in batches(paths))

    def run_all(self, commands: Iterable[Sequence[str]]) -> None:
        """Run commands in order, as many as fit in one request; stop at the first failure."""
        lines = [remote_words(*words) for words in commands]
        for batch in batches(lines, cost=lambda line: len(os.fsencode(line))):
            done = self.transport.run(" && ".join(batch), timeout=self.timeout)
            require(done, f"{self.transport.label}: cannot {batch[0].split()[0]}")

    def require_no_directories(self, paths: Sequence[str]) -> None:
        """Raise ConfigError if one is a directory: ``mv`` would move a file into it."""
        for batch in batches(paths):
            asked = self.transport.run(
                f'for path in {remote_words(*batch)}; do [ ! -d "$path" ] || break; path=; done;'
                ' echo "$path"',
                timeout=self.timeout,
            )
            found = require(asked, f"{self.transport.label}: cannot list the destination").text
            if found.strip():
                raise ConfigError(
                    f"a file here, a directory on the board: {found.strip()}",
                    hint="name another destination, or remove that one",
                )

    def is_missing(self, path: str) -> bool:
        """Return True if the path does not exist yet."""
        word = remote_words(path)
        return (
            self.transport.run(
                f"[ ! -e {word} ] && [ ! -L {word} ]", timeout=self.timeout
            ).exit_status
            == 0
        )


class _Counter:
    """Counts the bytes of all files together."""

    def __init__(self, progress: BytesDone | None):
        self.done = 0
        self._progress = progress

    def __call__(self, count: int) -> None:
        self.done += count
        if self._progress:
            self._progress(self.done)


def beside(path: str) -> str:
    """Return a new path in the same folder of the board; its name shows what is being made."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/{short_name(name)}.labctl-{secrets.token_hex(8)}"


def _place(root: str, name: str) -> str:
    return root if name == "." else f"{root}/{name}"


def _chmod(root: str, modes: Iterable[tuple[str, int]]) -> Iterator[list[str]]:
    """Yield commands that set modes, in order; neighbours with equal modes share a command."""
    for mode, group in groupby(modes, key=itemgetter(1)):
        for batch in batches([_place(root, name) for name, _ in group]):
            yield ["chmod", f"{mode:o}", *batch]


def _moves(staged: str, remote: str, tree: _Tree) -> Iterator[list[str]]:
    """Yield commands that move the files into existing directories, one command per directory."""
    for folder, group in groupby(sorted(tree.files, key=_folder), key=_folder):
        for batch in batches([_place(staged, name) for name in group]):
            yield ["mv", "-f", *batch, f"{_place(remote, folder)}/"]


def _folder(name: str) -> str:
    return name.rpartition("/")[0] or "."


def _inner_first(tree: _Tree) -> Iterator[tuple[str, int]]:
    """Yield inner directories first: a mode may make a directory inaccessible."""
    for name in sorted(tree.directories, key=lambda name: (name != ".", name), reverse=True):
        yield name, tree.directories[name]


def _walk(local: Path) -> _Tree:
    """Return everything below a directory of this host. Raises ConfigError."""

    def refused(error: OSError) -> None:
        raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error

    if not local.is_dir():
        raise ConfigError(f"not a directory on this host: {local}")
    tree = _Tree()
    try:
        for top, folders, names in os.walk(local, onerror=refused):
            folders.sort()
            here = Path(top)
            tree.directories[str(here.relative_to(local))] = _mode(here)
            for path in [here / name for name in sorted(names)] + [
                here / name for name in folders if (here / name).is_symlink()
            ]:
                name = str(path.relative_to(local))
                if path.is_file():
                    tree.files[name] = _mode(path)
                else:
                    tree.skipped.append(name)
    except OSError as error:
        refused(error)
    return tree


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode) & _PERMISSIONS


def _list(transport: Transport, remote: str, timeout: float, *, vanishing: bool) -> _Tree:
    """Return everything below a directory of the board. Raises BoardError, ProtocolError.

    With ``vanishing``, files and processes may disappear during the listing.
    """
    asked = f"cd {remote_words(remote)} && find . -exec stat -c '%f %s %n' {{}} +"
    if vanishing:
        asked = f"{{ {asked}; }} 2>/dev/null; :"
    what = f"{transport.label}: cannot list {remote}"
    listing = require(transport.run(asked, timeout=timeout), what).output
    tree = _Tree()
    for line in listing.removesuffix(b"\n").split(b"\n"):
        match = _LISTING.fullmatch(line)
        name = "." if not match or match[3] is None else os.fsdecode(match[3])
        inside = name == "." or not {"", ".", ".."} & set(name.split("/"))
        if not match or not inside:
            raise ProtocolError(
                f"{transport.label}: not a name that can be pulled below {remote}: {line!r}",
                hint="rename it: a name with a line break cannot be pulled",
            )
        check_remote_path(_place(remote, name))
        mode = int(match[1], 16)
        if stat.S_ISDIR(mode):
            tree.directories[name] = stat.S_IMODE(mode) & _PERMISSIONS
        elif stat.S_ISREG(mode):
            tree.files[name] = stat.S_IMODE(mode) & _PERMISSIONS
            tree.sizes[name] = int(match[2])
        else:
            tree.skipped.append(name)
    if "." not in tree.directories:
        raise ProtocolError(f"{what}: it answers {listing[:200]!r}")
    return tree


def _prove(transfer: FileTransfer, root: str, copied: Mapping[str, Digest], what: str) -> None:
    """Raise IntegrityError unless each file below ``root`` has the hash of its copy."""
    board_hash = transfer.board_hash
    if not copied:
        return
    if not board_hash.command:
        with tempfile.TemporaryDirectory(prefix="labctl-") as folder:
            for name, digest in copied.items():
                back = Path(folder) / "back"
                place = _place(root, name)
                transfer.receive(place, back, lambda _count: None).require(digest, what)
                back.unlink()
        return
    for batch in batches(list(copied)):
        size_bytes = sum(copied[name].size_bytes for name in batch)
        asked = transfer.transport.run(
            in_folder(root, *board_hash.command, names=batch),
            timeout=hash_timeout(transfer.options.timeout, size_bytes),
        )
        # Bytes: text has other line ends besides the newline, and names may contain them.
        lines = asked.output.removesuffix(b"\n").split(b"\n")
        if asked.exit_status != 0 or len(lines) != len(batch):
            raise IntegrityError(
                f"{what}: the board cannot hash all of it",
                hint="was a file removed there during the transfer?",
                details=asked.text[-2000:] or None,
            )
        for name, line in zip(batch, lines, strict=True):
            digest = copied[name]
            hexadecimal = line.split(b" ")[0].decode(errors="replace").lower()
            found = Digest.known(digest.algorithm, hexadecimal, digest.size_bytes)
            found.require(digest, f"{what}: {_place(root, name)}")


def _sync(paths: Sequence[Path]) -> None:
    """Make files durable; in parallel, because each waits for the disk. Raises HostError."""
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    def sync(path: Path) -> None:
        with host_writes(path), path.open("rb") as file:
            os.fsync(file.fileno())

    with ThreadPoolExecutor(_SYNCING_THREADS) as pool:
        for _ in pool.map(sync, paths):
            pass


@contextmanager
def _appearing_directory(path: Path) -> Iterator[Path]:
    """Create a directory that gets its name only if the block ends without an error."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(
            f"cannot receive a directory as {path}: it exists", hint="name a new directory"
        )
    with host_writes(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{short_name(path.name)}."
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=prefix))
        try:
            yield folder
            folder.replace(path)
        except BaseException:
            remove_tree(folder)
            raise
        sync_directory(path.parent)
