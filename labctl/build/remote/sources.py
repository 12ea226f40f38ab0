"""Sources on a build host: archives, sent once, unpacked for each build, removed when old."""

from collections.abc import Iterator
from pathlib import Path

from labctl.build.progress import BuildProgress, OnProgress, Step
from labctl.build.remote.archive import known_digest, make_archive
from labctl.build.remote.host import refused, run_script
from labctl.build.workspace import WorkspaceInputs
from labctl.errors import IntegrityError
from labctl.files import scratch
from labctl.transport.ssh.link import SshLink
from labctl.transport.ssh.program import PIECE_BYTES

KEEP_SECONDS = 30.0
SEND_SECONDS = 3600.0
UNPACK_SECONDS = 900.0
#: Number of archives to keep on a host.
SOURCES_KEPT = 4

_HAS = '[ -f "$1" ] || exit 44; touch "$1" && sha256sum <"$1"'
_RECEIVE = 'cat >"$1" && sha256sum <"$1"'
_UNPACK = 'tar -xzf "$1" -C "$2"'
_KEEP = """
mv -f "$1" "$2" && cd "${2%/*}" || exit
ls -t | tail -n "+$(($3 + 1))" | while read -r old; do rm -f "./$old"; done
"""


class HostSources:
    """The source archives below the ``workdir`` of a build host."""

    def __init__(self, link: SshLink, host: str, workdir: str):
        self._link = link
        self._host = host
        self._folder = f"{workdir}/sources"

    def bring(
        self, inputs: WorkspaceInputs, scratch_folder: str, into: str, on_progress: OnProgress
    ) -> None:
        """Unpack a source into a folder there; send it only if the host does not have it.

        Raises HostError, IntegrityError, and the errors of ``inputs.verify_source``.
        """
        digest = known_digest(inputs.source_digest)
        if digest is None or not self._has(digest):
            with scratch(inputs.home, "send-") as folder:
                archive = folder / "source.tar.gz"
                digest = make_archive(
                    inputs.source, inputs.source_digest, archive, inputs.verify_source
                )
                if not self._has(digest):
                    self._send(archive, digest, f"{scratch_folder}/source.part", on_progress)
        answer = run_script(
            self._link, _UNPACK, self._archive(digest), into, timeout=UNPACK_SECONDS
        )
        if answer.exit_status != 0:
            raise refused(self._link, "unpack the source", answer)

    def _archive(self, digest: str) -> str:
        return f"{self._folder}/{digest}.tar.gz"

    def _has(self, digest: str) -> bool:
        """Return True if the host has the complete archive."""
        answer = run_script(self._link, _HAS, self._archive(digest), timeout=UNPACK_SECONDS)
        return answer.exit_status == 0 and _hash(answer.text) == digest

    def _send(self, archive: Path, digest: str, part: str, on_progress: OnProgress) -> None:
        """Send an archive, and remove the oldest ones there."""
        total = archive.stat().st_size

        def blocks() -> Iterator[bytes]:
            sent = 0
            with archive.open("rb") as file:
                while block := file.read(PIECE_BYTES):
                    on_progress(BuildProgress(Step.SEND, f"source to {self._host}", sent, total))
                    yield block
                    sent += len(block)
            on_progress(BuildProgress(Step.SEND, f"source to {self._host}", sent, total))

        answer = run_script(self._link, _RECEIVE, part, timeout=SEND_SECONDS, input_blocks=blocks())
        if answer.exit_status != 0:
            raise refused(self._link, "keep the source", answer)
        if _hash(answer.text) != digest:
            raise IntegrityError(
                f"the source arrived damaged on build host {self._host!r}",
                hint="build again; if it stays so, check memory and disk of that host",
            )
        words = (part, self._archive(digest), str(SOURCES_KEPT))
        answer = run_script(self._link, _KEEP, *words, timeout=KEEP_SECONDS)
        if answer.exit_status != 0:
            raise refused(self._link, "keep the source", answer)


def _hash(output: str) -> str:
    return output.partition(" ")[0].strip()
