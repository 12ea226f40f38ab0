"""``labctl serve``: the dashboard, and the tokens for it."""

import hashlib
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from labctl.cli.lab import lab_of
from labctl.cli.output import json_option, note
from labctl.cli.root import Invocation
from labctl.config.lab import LabFile
from labctl.config.types import parse_duration
from labctl.distribution import install_extra
from labctl.errors import ConfigError, ExitStatus, ToolMissing, printable_line
from labctl.files import write_atomic
from labctl.folders import state_dir
from labctl.user import user_name

if TYPE_CHECKING:
    from labctl.web.dashboard import Listening

_PORT = 8137


class Lasting(click.ParamType[float]):
    """A duration."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the duration in s."""
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group(invoke_without_command=True, epilog="Example: labctl serve --port 8137")
@click.option(
    "--listen",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address of this host, or unix:PATH for a proxy. Any other than loopback opens the"
    " dashboard to the network, without encryption: put a proxy with TLS in front.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_PORT,
    show_default=True,
    help="Port; 0: any free port.",
)
@click.pass_context
def serve(context: click.Context, listen: str, port: int) -> int:
    """Serve the lab's dashboard: boards, queue, runs, trends, audit log.

    Everybody on loopback may read; every change needs a token. The first start makes one for you,
    shows it on a terminal, and keeps it in a file.
    """
    if context.invoked_subcommand is not None:
        return ExitStatus.OK
    invocation = context.find_object(Invocation) or Invocation()
    lab = lab_of(invocation)
    server = _server()
    wanted, names = _listening(listen, port), lab.lab.web.names
    if wanted.is_any and not names:
        raise ConfigError(
            f"--listen {listen} needs the host names that browsers use",
            hint="set `web: {names: [lab.example.org]}` in devices.yaml, or listen at one address",
        )
    own, listening = server.listen(wanted)
    _own_token(lab)
    if not listening.is_loopback:
        note(
            f"everybody who reaches {listening.host} can try to sign in, and nothing is encrypted:"
            " use a proxy with TLS"
        )
    click.echo(_address(listening, names[0] if listening.is_any else listening.host))
    server.serve(lab, own, listening)
    return ExitStatus.OK


@serve.group(epilog="Example: labctl serve token add anna --role run")
def token() -> None:
    """Make, list and revoke tokens of the dashboard. Only their hashes are kept."""


@token.command(epilog="Example: labctl serve token add anna --role run --expires 90d")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["look", "run", "admin"]),
    default="run",
    show_default=True,
    help="look: read; run: also hold boards and cancel own jobs; admin: all.",
)
@click.option("--expires", type=Lasting(), metavar="TIME", help="Time until it ends: 720h.")
@click.pass_obj
def add(invocation: Invocation, name: str, role: str, expires: float | None) -> None:
    """Make a token and print it: it cannot be shown again.

    NAME is the user's name in the audit log, and the owner of their holds and jobs.
    """
    from labctl.state.events import this_user
    from labctl.state.state import lab_state

    tokens = lab_state(lab_of(invocation)).tokens
    made = tokens.add(name, role, by=this_user(), seconds=expires)  # type: ignore[arg-type]
    click.echo(made)


@token.command("list", epilog="Example: labctl serve token list --json")
@json_option("Print names, roles and times as JSON.")
@click.pass_obj
def list_tokens(invocation: Invocation, as_json: bool) -> None:
    """List tokens: names and roles."""
    from labctl.state.state import lab_state

    found = lab_state(lab_of(invocation)).tokens.list()
    if as_json:
        click.echo(json.dumps([one.document() for one in found], indent=2))
        return
    for one in found:
        if one.damaged:
            click.echo(printable_line(f"{one.name}  refused: {one.damaged}"))
            continue
        ends = "" if one.expires is None else f", until {_day(one.expires)}"
        click.echo(f"{one.name}  {one.role}  made {_day(one.made_at)} by {one.made_by}{ends}")
    if not found:
        note("no tokens yet: labctl serve token add NAME")


@token.command(epilog="Example: labctl serve token revoke anna")
@click.argument("name")
@click.pass_obj
def revoke(invocation: Invocation, name: str) -> None:
    """Revoke a token, and end all sessions that began with it."""
    from labctl.state.events import this_user
    from labctl.state.state import lab_state

    lab_state(lab_of(invocation)).tokens.revoke(name, by=this_user())
    note(f"token {name} is revoked")


def _server() -> Any:
    """Return the module that serves. Raises ToolMissing."""
    try:
        from labctl.web import server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("labctl"):
            raise
        raise ToolMissing(
            f"the dashboard needs the Python package {error.name!r}",
            hint=install_extra("web"),
        ) from error
    return server


def _listening(text: str, port: int) -> "Listening":
    from labctl.web.dashboard import Listening

    kind, _, path = text.partition(":")
    if kind == "unix":
        if not path:
            raise ConfigError("--listen unix: needs a path", hint="--listen unix:/run/labctl.sock")
        return Listening(socket=Path(path))
    if not text:
        raise ConfigError("--listen needs an address", hint="--listen 127.0.0.1")
    return Listening(text.strip("[]"), port)


def _address(listening: "Listening", name: str) -> str:
    if listening.socket is not None:
        return f"unix:{listening.socket}"
    host = f"[{name}]" if ":" in name else name
    return f"http://{host}:{listening.port}/"


def _own_token(lab: LabFile) -> None:
    """Make the user's own token at the first start; print it once and keep it private."""
    from labctl.state.events import this_user
    from labctl.state.state import lab_state
    from labctl.state.tokens import new_token

    place = hashlib.sha256(str(lab.root.resolve()).encode()).hexdigest()[:16]
    path = state_dir() / "tokens" / f"{lab.name}-{place}"
    tokens = lab_state(lab).tokens
    if path.is_file() and tokens.find(path.read_text(encoding="utf-8").strip()) is not None:
        note(f"the token to sign in with is in {path}")
        return
    name, taken = user_name(), {one.name for one in tokens.list()}
    if name in taken:
        note(f"to sign in: `labctl serve token add NAME`; the token {name} exists already")
        return
    made = new_token()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomic(path, f"{made}\n", mode=0o600)
    tokens.add(name, "admin", by=this_user(), token=made)
    if sys.stderr.isatty():  # otherwise it would stay in a journal or a log
        note(f"token to sign in with, for you alone: {made}")
    note(f"the token to sign in with is in {path}")


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"
