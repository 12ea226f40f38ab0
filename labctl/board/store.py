"""The board store: files named by content, each published complete or not at all.

    <workdir>/store/<sha256>          the file; programs are executable
    <workdir>/store/<sha256>.stamp    size, inode and times from ``stat`` when the content
                                      was last verified; the stamp's modification time
                                      shows when the content was last needed
    <workdir>/store/<sha256>.name     name for users
    <workdir>/store/.part-<sha256>    received part of a large file, and its .journal
    <workdir>/incoming/<epoch>/.push-<token>
                                      a running transfer, or its leftover

If a file's ``stat`` still matches its stamp, the file is trusted without reading it; otherwise it
is hashed on the board before use.

Only the agent changes the store, under an epoch (:mod:`labctl.board.lease`). Without an agent the
store is only read, except for the agent itself, which is sent first and publishes itself.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from labctl.board.agent import LINK_LOSSES
from labctl.board.facts import SECTION, sections
from labctl.board.lease import Fence
from labctl.board.upload.client import ChunkedFile
from labctl.board.upload.resumable import (
    PARTIAL,
    PREFIX,
    DeliveryOptions,
    Destination,
    abandoned,
    deliver,
    pushing,
)
from labctl.errors import (
    BoardError,
    ConfigError,
    InfraError,
    IntegrityError,
    printable,
    printable_line,
)
from labctl.file_hashes import sha256_file
from labctl.retry import retry_infra
from labctl.transport.base import TransferOptions, Transport, remote_words, require
from labctl.transport.file_transfer import hash_timeout

#: Size, inode, times of modification and change in ns; toybox uses the same letters.
STAT = "TZ=UTC0 stat -c '%s %i %y %z'"
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Kind, size, number and size of blocks, hash, name.
_CONTENT = re.compile(r"(file|link) (\d{1,19}) (\d{1,19}) (\d{1,9}) ([0-9a-f]{64})( .*)?")
_SMALL_BYTES = 1 << 20
_DURABLE = 'durable() { if command -v fsync >/dev/null 2>&1; then fsync "$@"; else sync; fi; }\n'
#: Time-out (s) of one query; hashing gets more, by size.
_TIMEOUT_SECONDS = 30.0
#: Leftovers of other hosts are removed after this time (days) without growth.
_FOREIGN_DAYS = 1
#: Incomplete large files are removed after this time (days) without progress.
_PARTIAL_DAYS = 14


@dataclass(frozen=True)
class StoredObject:
    """Content for a board; ``name`` is for users.

    ``is_whole``: it is a file on the board with its blocks, not a link and not mostly a hole.
    """

    sha256: str
    size_bytes: int
    name: str | None = field(default=None, compare=False)
    is_whole: bool = field(default=True, compare=False)


class BoardStore:
    """The store below a board's workdir.

    ``hash_command`` hashes files on the board and prints a line for each, beginning with the hash:
    ``sha256sum``, or the agent's path and ``hash``. With an agent in ``fence``, large files are
    sent in chunks that survive a lost link.
    """

    def __init__(
        self,
        transport: Transport,
        workdir: str,
        *,
        hash_command: Sequence[str] = ("sha256sum",),
        fence: Fence | None = None,
    ):
        self._transport = transport
        self._hash_command = tuple(hash_command)
        self._fence = fence or Fence(transport, workdir)
        self.directory = f"{workdir}/store"

    def path(self, sha256: str) -> str:
        """Return the path of published content on the board."""
        if not _SHA256.fullmatch(sha256):
            raise ConfigError(f"not a SHA-256 in lower-case hexadecimal: {sha256!r}")
        return f"{self.directory}/{sha256}"

    def missing(
        self,
        objects: Iterable[StoredObject],
        *,
        also: str = "",
        on_answers: Callable[[Mapping[str, str]], None] = lambda _answers: None,
    ) -> list[StoredObject]:
        """Return the objects not verified on the board, without duplicates, in the given order.

        A file that changed since its stamp is hashed, and gets a new stamp if it is good. Existing
        files are marked as used now, but not on a board without an agent. ``also`` is a script that
        prints sections in the same command, if any object exists; its variable ``$good`` has the
        stamps of files that need no hashing. ``on_answers`` gets the sections. Raises LeaseLost,
        LinkError, BoardError.
        """
        wanted = list({item.sha256: item for item in objects}.values())
        if not wanted:
            return []
        on_answers(answers := sections(self._look(wanted, also)))
        return self.missing_in(answers.get("store", ""), wanted)

    def missing_in(self, answer: str, objects: Iterable[StoredObject]) -> list[StoredObject]:
        """Parse the answer to :meth:`question`; see :meth:`missing`."""
        wanted = list({item.sha256: item for item in objects}.values())
        stats = _stats_in(answer)
        absent = []
        for item in wanted:
            now, stamp = stats.get(item.sha256, ("", ""))
            sized = now.split(" ")[0] == str(item.size_bytes)
            if now and not sized and self._fence.agent:
                self.remove(item.sha256)  # incomplete: remove it to free its name
            if not sized or (now != stamp and not self._prove(item)):
                absent.append(item)
        return absent

    def verify(self, objects: Iterable[StoredObject]) -> list[StoredObject]:
        """Hash objects on the board, ignoring their stamps; return missing and bad objects.

        Bad files are removed. Raises LinkError, BoardError.
        """
        return [item for item in {o.sha256: o for o in objects}.values() if not self._prove(item)]

    def receive(
        self,
        source: ChunkedFile,
        item: StoredObject,
        *,
        executable: bool = False,
        options: DeliveryOptions,
    ) -> str:
        """Send a file to the board and return its path; the path never has an incomplete file.

        Several boards may read from ``source`` at once. A broken link is retried as in ``options``.
        Raises LinkError, IntegrityError, BoardNoSpace, BoardPermission, and ConfigError if the
        local file does not (or no longer) match ``item``.
        """
        again = partial(
            retry_infra, on=LINK_LOSSES, timeout=options.retry_timeout, on_retry=options.on_loss
        )
        target = self.path(item.sha256)
        again(self._sweep)
        if self._fence.agent is None or item.size_bytes < options.chunked_bytes:
            again(lambda: self._push_whole(source, item, executable=executable, options=options))
            return target
        ours = deliver(  # it retries a lost link itself
            self._transport,
            self._fence.agent,
            source,
            Destination(
                f"{self.directory}/{PARTIAL}{item.sha256}",
                target,
                executable,
                self._fence.options,
            ),
            options,
        )
        if ours:  # each chunk was hashed on the board, and no other transfer could write
            quoted = remote_words(target)
            # The existing file may be a link to another place: do not write through it.
            stamp = (
                f"rm -rf {quoted}.stamp {quoted}.name;"
                f" {STAT} {quoted} >{quoted}.stamp{_naming(item, quoted)}"
            )
            again(lambda: self._change(stamp, f"cannot write the stamp of {target}"))
        elif again(lambda: self.missing([item])):
            raise IntegrityError(f"{target} on the board does not match its name")
        return target

    def _push_whole(
        self,
        source: ChunkedFile,
        item: StoredObject,
        *,
        executable: bool,
        options: DeliveryOptions,
    ) -> None:
        """Send a file by hdc's own transfer: the agent itself, and small files."""
        local = source.path
        before = _identity(local)
        # The transport verifies that all bytes it read arrive; here they are verified to be the
        # right ones.
        if before[0] != item.size_bytes or sha256_file(local) != item.sha256:
            raise _changed(local)
        sent = 0

        def progress(sent_bytes: int) -> None:
            nonlocal sent
            options.pace(sent_bytes - sent)
            sent = sent_bytes
            options.progress(sent_bytes)

        with pushing() as push:
            temporary = f"{self._fence.incoming}/{PREFIX}{push.token}"
            try:
                transfer = TransferOptions(timeout=options.stall_timeout, progress=progress)
                self._transport.push(local, temporary, transfer)
                if _identity(local) != before:
                    raise _changed(local)
                self._finish(temporary, item, executable=executable)
            except (IntegrityError, BoardError, ConfigError):
                # The link works: remove the received part now, especially from a full disk.
                with suppress(InfraError):  # otherwise removed later; the first error counts
                    self._run(f"rm -f {remote_words(temporary)}", "cannot remove a transfer")
                    push.forget()
                raise

    def contents(self) -> list[StoredObject]:
        """Return all published objects, good or damaged. Raises LinkError, BoardError."""
        script = (
            f"cd {remote_words(self.directory)} 2>/dev/null || exit 0\n"
            "for name in *; do\n"
            "  case $name in *.*) continue;; esac\n"
            '  [ -f "$name" ] || continue; kind=file; [ ! -L "$name" ] || kind=link\n'
            # Not echo: mksh's echo makes line ends of backslashes.
            "  printf '%s\\n' "
            '"$kind $(stat -c \'%s %b %B\' "$name") $name'
            ' $(head -n 1 "$name.name" 2>/dev/null)"\n'
            "done"
        )
        found = []
        for line in self._run(script, "cannot look into the board's store").split("\n"):
            match = _CONTENT.fullmatch(line)
            if match is not None:
                size_bytes, taken = int(match[2]), int(match[3]) * int(match[4])
                # A small file may be stored in its inode, and a large file may have a few zeros.
                is_hole = size_bytes > _SMALL_BYTES and taken < size_bytes // 2
                name = printable((match[6] or "").strip()) or None
                is_whole = match[1] == "file" and not is_hole
                found.append(StoredObject(match[5], size_bytes, name, is_whole))
        return found

    def remove(self, sha256: str) -> None:
        """Remove content from the board; missing content is not an error."""
        path = remote_words(self.path(sha256))
        self._change(f"rm -rf {path}.stamp {path}.name {path}", f"cannot remove {sha256}")

    def question(self, objects: Iterable[StoredObject]) -> str:
        """Return the script that checks objects and marks them as used now.

        It runs in a separate shell, or at the end of a script; :meth:`missing_in` parses its
        output.
        """
        # One `stat` for all: starting a program costs more than all work of the shell.
        script = f"""\
cd {remote_words(self.directory)} 2>/dev/null || exit 0
set --
for name in {remote_words(*(item.sha256 for item in objects))}; do
  [ ! -f "$name" ] || set -- "$@" "$name"
done
[ $# != 0 ] || exit 0
now=$({STAT.replace("'", "'%n=", 1)} "$@"); echo "$now"
good= line='
'
for name in "$@"; do
  stamp=; {{ read -r stamp <"$name.stamp"; }} 2>/dev/null
  case $stamp in ""|*[!0-9:.+\\ -]*) continue;; esac  # no stamp
  echo "$name.stamp=$stamp"
  case $line$now$line in *"$line$name=$stamp$line"*) good="$good $name.stamp";; esac
done
"""
        note = '[ -z "$good" ] || touch $good 2>/dev/null; :'
        return script + (note if self._fence.agent is not None else ":")

    def _look(self, objects: Iterable[StoredObject], also: str = "") -> str:
        run = self._change if self._fence.agent else self._run
        script = f"{SECTION}section store; {self.question(objects)}\n{also}"
        return run(script, "cannot look into the board's store")

    def _prove(self, item: StoredObject) -> bool:
        """Hash one file on the board; stamp it, or remove it if it does not match its name.

        Without an agent, nothing is stamped or removed.
        """
        path = self.path(item.sha256)
        quoted = remote_words(path)
        before = _stats_in(self._look([item])).get(item.sha256)
        if before is None:
            return False
        text = self._run(
            f"{remote_words(*self._hash_command)} {quoted}",
            f"the board cannot hash {path}",
            timeout=hash_timeout(_TIMEOUT_SECONDS, item.size_bytes),
        )
        good = text.split(" ")[0].strip() == item.sha256
        if self._fence.agent is None:
            return good
        if not good:
            self.remove(item.sha256)
            return False
        # The stamp was taken before hashing: after a later change it does not match.
        self._change(
            f"printf '%s\\n' {remote_words(before[0])} >{quoted}.stamp",
            f"cannot write the stamp of {path}",
        )
        return True

    def _finish(self, temporary: str, item: StoredObject, *, executable: bool) -> None:
        """Make a verified transfer durable, then give it its name and its stamp."""
        target, what = self.path(item.sha256), f"cannot publish {item.sha256} on the board"
        source, final, folder = map(remote_words, (temporary, target, self.directory))
        # Without locking the lease: it may take long, and concerns only this epoch.
        ready = f"{_DURABLE}chmod {'755' if executable else '644'} {source} && durable {source}"
        self._run(ready, what, timeout=120)
        script = (
            f"{_DURABLE}umask 022; mkdir -p {folder} &&"
            f" rm -rf {final} {final}.stamp {final}.name &&"
            f" mv -f {source} {final} && {STAT} {final} >{final}.stamp && durable {folder}"
            f"{_naming(item, final)}"
        )
        self._fence.run(script, what, timeout=120, agent=self._fence.agent or temporary)

    def _sweep(self) -> None:
        """Create the directories and remove leftovers of dead transfers in them."""
        folder, incoming = remote_words(self.directory), remote_words(self._fence.incoming)
        if self._fence.agent is None:
            self._run(f"umask 022; mkdir -p {incoming}", f"cannot make {incoming} on the board")
            return
        old = " ; ".join(
            f"find {folder} -name {remote_words(prefix + '*')} -mtime +{days} -exec rm -f {{}} \\;"
            for prefix, days in ((PREFIX, _FOREIGN_DAYS), (PARTIAL, _PARTIAL_DAYS))
        )
        text = self._change(
            f"umask 022; mkdir -p {folder} {incoming} && {{ {old} ; ls -a {folder} {incoming}; }}",
            f"cannot make {self.directory} on the board",
        )
        names = {name for name in text.split() if name.startswith(PREFIX)}
        with abandoned(name.removeprefix(PREFIX) for name in sorted(names)) as tokens:
            if tokens:
                paths = [
                    f"{place}/{PREFIX}{token}"
                    for token in tokens
                    for place in (self.directory, self._fence.incoming)
                ]
                self._change(f"rm -f {remote_words(*paths)}", "cannot remove old transfers")

    def _change(self, script: str, what: str, *, timeout: float = _TIMEOUT_SECONDS) -> str:
        return self._fence.run(script, what, timeout=timeout)

    def _run(self, script: str, what: str, *, timeout: float = _TIMEOUT_SECONDS) -> str:
        return require(self._transport.run(script, timeout=timeout), what).text


def _naming(item: StoredObject, quoted: str) -> str:
    """Return the part of a script that stores an object's name beside it."""
    if item.name is None:
        return ""
    line = printable_line(item.name)
    return f" && printf '%s\\n' {remote_words(line)} >{quoted}.name"


def _stats_in(answer: str) -> dict[str, tuple[str, str]]:
    """Return ``stat`` and stamp of each existing file."""
    lines = (line.partition("=") for line in answer.splitlines())
    told = {name: value.strip() for name, _, value in lines}
    return {name: (now, told.get(f"{name}.stamp", "")) for name, now in told.items()}


def _identity(local: Path) -> tuple[int, int, int]:
    try:
        status = local.stat()
    except OSError as error:
        raise ConfigError(f"cannot read {local}: {error.strerror}") from error
    return status.st_size, status.st_mtime_ns, status.st_ino


def _changed(local: Path) -> ConfigError:
    return ConfigError(
        f"{local} is not the file that was hashed before: it changed",
        hint="let nothing write to it during a deploy, and run it again",
    )
