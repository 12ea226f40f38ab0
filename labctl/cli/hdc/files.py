"""``labctl hdc send`` and ``labctl hdc recv``."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from labctl.cli.hdc.target import Choice
from labctl.cli.output import json_option, note
from labctl.cli.progress import ProgressView
from labctl.errors import printable
from labctl.files import host_reads
from labctl.progress import BytesDone
from labctl.transport.base import Copied, TransferOptions
from labctl.transport.copy import Delivered, receive, send
from labctl.units import size

#: The board's own tool verifies smaller files: this is faster than checking the agent.
_AGENT_HASHES_BYTES = 8 << 20
#: Time (s) to wait for each sign of progress.
STALL_SECONDS = 30.0

_compress = click.option(
    "--compress",
    "-z",
    is_flag=True,
    help="Compress with LZ4, if the board is known to handle it well.",
)
_mode = click.option(
    "--mode", "-m", is_flag=True, help="Keep a file's permissions; directories always keep theirs."
)
_json = json_option("Print the copied files, and if they are verified, as JSON.")
_stall = click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=STALL_SECONDS,
    show_default=True,
    help="Fail after this many seconds without progress.",
)


@click.command("send", epilog="Example: labctl hdc -t dayu200 send model.gguf /data/local/tmp/")
@_compress
@_mode
@_stall
@_json
@click.argument("local", type=click.Path(path_type=Path))
@click.argument("remote")
@click.pass_obj
def send_(
    choice: Choice,
    *,
    local: Path,
    remote: str,
    compress: bool,
    mode: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Send a file or a directory, verified by its hash.

    REMOTE is absolute; if it is a directory, LOCAL goes into it. Existing files are replaced only
    after all new ones are verified. A link to a file is sent as that file, other links are skipped.
    """
    with (
        choice.connected(agent_hashes=is_large(local)) as transport,
        shown_step(f"sending {local}", bytes_in(local)) as progress,
    ):
        options = TransferOptions(timeout=timeout, progress=progress, compress=compress)
        done = send(transport, local, remote, options, keep_mode=mode)
    _tell(done, as_json=as_json)


@click.command(epilog="Example: labctl hdc -t dayu200 recv /data/log/hilog logs")
@_compress
@_mode
@_stall
@_json
@click.argument("remote")
@click.argument("local", type=click.Path(path_type=Path), default=Path())
@click.pass_obj
def recv(
    choice: Choice,
    *,
    remote: str,
    local: Path,
    compress: bool,
    mode: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Receive a file or a directory, verified by its hash.

    LOCAL is this directory by default; if it is a directory, REMOTE goes into it. Nothing appears
    until all of it is verified. Links in a directory are skipped. Files of /proc and /sys cannot be
    verified: each is read to its end, within --timeout in total.
    """
    with choice.connected() as transport, shown_step(f"receiving {remote}") as progress:
        options = TransferOptions(timeout=timeout, progress=progress, compress=compress)
        done = receive(transport, remote, local, options, keep_mode=mode)
    _tell(done, as_json=as_json)


def is_large(local: Path) -> bool:
    """Return True if the data may be so large that verifying it on a board takes long."""
    with host_reads(local):
        return local.is_dir() or local.stat().st_size >= _AGENT_HASHES_BYTES


def bytes_in(local: Path) -> int:
    """Return the size of a file, or of all files in a directory; 0 for anything else."""
    with host_reads(local):
        files = [local] if local.is_file() else local.rglob("*")
        return sum(path.stat().st_size for path in files if path.is_file())


@contextmanager
def shown_step(what: str, total: int | None = None) -> Iterator[BytesDone]:
    """Show a bar until the context ends; yield its update function. ``total``: bytes, if known."""
    with ProgressView() as view:
        step = view.open(what, total)
        try:
            yield lambda done: step.update(done, note="" if total else size(done), unit="bytes")
        finally:
            step.abandon()


def _tell(done: Delivered, *, as_json: bool) -> None:
    copied = done.copied
    if as_json:
        click.echo(json.dumps(done.document(), indent=2))
        return
    tell_left_out(copied)
    files = "1 file" if copied.files == 1 else f"{copied.files} files"
    proof = f"not proven: {copied.not_proven}" if copied.not_proven else "proven by hash"
    click.echo(f"{printable(done.path)}: {files}, {size(copied.size_bytes)}, {proof}")


def tell_left_out(copied: Copied) -> None:
    """Name the skipped files of a transfer on standard error."""
    for names, why in (
        (copied.skipped, "neither a file nor a directory"),
        (copied.unreadable, "it cannot be read to the end"),
    ):
        for name in names:
            note(f"left out: {printable(name)} ({why})")
