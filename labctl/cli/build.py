"""``labctl build``."""

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
from pydantic import ValidationError
from rich.table import Table

from labctl import package_data
from labctl.build.artifact import Artifact
from labctl.build.builder import build as build_artifact
from labctl.build.dry_run import Explanation, explain_build
from labctl.build.manifest import BuilderKind, CompilerKind
from labctl.build.plan import BuildRequest, Plan
from labctl.build.progress import BuildProgress, Step
from labctl.build.spec import GitSource
from labctl.cli import progress
from labctl.cli.complete import TARGET, TOOL
from labctl.cli.lab import lab_of, lab_or_own
from labctl.cli.output import json_option, note, output_console
from labctl.cli.root import Invocation
from labctl.config.lab import find_lab_root
from labctl.config.recipe import Recipe
from labctl.config.yaml.messages import explain as explain_problems
from labctl.config.yaml.messages import path_text
from labctl.errors import ConfigError, printable, printable_line
from labctl.report.console import plain, print_whole
from labctl.runs.inputs.programs import missing_builds
from labctl.suggestions import listed
from labctl.units import size

DEFAULT_PRODUCT = "llama.cpp"
AGENT = "agent"


@click.command(
    epilog="Example: labctl build --target rk3568 --tool llama-bench",
)
@click.option(
    "--target",
    shell_complete=TARGET,
    help="Machine type to build for, of --list; default: that of the lab's boards.",
)
@click.option(
    "--product",
    default=DEFAULT_PRODUCT,
    show_default=True,
    help="Product to build: llama.cpp, agent, or a build spec of the lab.",
)
@click.option(
    "--tool",
    "tools",
    shell_complete=TOOL,
    multiple=True,
    metavar="NAME",
    help="Build this tool only; repeatable. Default: what the product builds by default.",
)
@click.option(
    "--version",
    metavar="LABEL",
    help="Label of the version in the build spec: for llama.cpp `new` or `classic`.",
)
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Build the source in this folder instead.",
)
@click.option("--git", metavar="URL", help="Build from this git repository; needs --ref.")
@click.option("--ref", help="Tag, branch or full commit of the git repository.")
@click.option(
    "--builder",
    type=click.Choice(["auto", *(kind.value for kind in BuilderKind)]),
    default="auto",
    show_default=True,
    help="Where compilers run; auto: the first usable builder.",
)
@click.option("--host", metavar="NAME", help="The build host in devices.yaml, for --builder ssh.")
@click.option(
    "--compiler",
    type=click.Choice([CompilerKind.ZIG.value, CompilerKind.GCC.value]),
    help="Compiler; default: the builder's choice.",
)
@click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the build spec, such as the path of an SDK; repeatable.",
)
@click.option(
    "--explain", is_flag=True, help="Print every command and where it would run; run nothing."
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 512),
    help="Number of parallel compilers; default: by cores and memory.",
)
@click.option(
    "--untrusted",
    is_flag=True,
    help="The source is not trusted, such as a pull request: build it in a container without"
    " network, and start none of its programs here.",
)
@click.option(
    "--list", "lists", is_flag=True, help="List the machine types to build for; build nothing."
)
@json_option("Print the manifest, or the list, as JSON.")
@click.pass_obj
def build(
    invocation: Invocation,
    *,
    target: str | None,
    product: str,
    tools: tuple[str, ...],
    version: str | None,
    source: Path | None,
    git: str | None,
    ref: str | None,
    builder: str,
    host: str | None,
    compiler: str | None,
    parameters: tuple[str, ...],
    explain: bool,
    jobs: int | None,
    untrusted: bool,
    lists: bool,
    as_json: bool,
) -> None:
    """Build tools for a target.

    Builds missing tools and shows their paths, inputs and proofs; with llama.cpp, the target's
    agent too. The same inputs are built only once. The local builder needs no root and no system
    compiler: `pip install 'labctl-boards[build]'`.

    The machine types of --list are the folders of the lab's toolchains/, and those shipped with
    labctl.
    """
    if lists:
        from labctl.cli.targets import list_targets

        list_targets(lab_or_own(invocation).root, as_json=as_json)
        return
    if untrusted and invocation.lab is None:
        raise ConfigError(
            "--untrusted takes no lab from the present folder, which may be a stranger's",
            hint="name it: labctl --lab DIR build …; lab and source must not share a folder",
        )
    request = BuildRequest(
        target=target or _target_of_the_lab(invocation),
        product=product,
        tools=tools or None,
        version=version,
        source=_source(source, git, ref),
        builder=None if builder == "auto" else BuilderKind(builder),
        host=host,
        compiler=None if compiler is None else CompilerKind(compiler),
        parameters=_parameters(parameters),
        jobs=jobs,
        lab_root=invocation.lab or find_lab_root(Path.cwd()),
        untrusted=untrusted,
    )
    if explain:
        _print_explanation(explain_build(request), as_json=as_json)
        return
    began = time.monotonic()
    with progress.ProgressView() as view:
        shown = BuildView(view)
        artifacts = [shown.build(request)]
        if product == DEFAULT_PRODUCT:
            agent = replace(
                request,
                product=AGENT,
                tools=None,
                version=None,
                source=None,
                parameters={},
                builder=None if untrusted else request.builder,
                untrusted=False,
            )
            artifacts.append(shown.build(agent))
    if as_json:
        click.echo(json.dumps(artifacts[0].document(), indent=2))
        return
    for artifact in artifacts:
        _print_summary(artifact, tools if artifact is artifacts[0] else ())
    took = time.monotonic() - began
    note("nothing to do" if shown.idle else f"built in {took:.1f} s")


def _target_of_the_lab(invocation: Invocation) -> str:
    """Return the target of all boards of the lab. Raises ConfigError if they have several."""
    hint = "name one with --target; `labctl build --list` lists them"
    if invocation.lab is None and find_lab_root(Path.cwd()) is None:
        raise ConfigError("no target given, and no devices.yaml with boards", hint=hint)
    lab = lab_of(invocation)
    if lab.lab.only_target is not None:
        return lab.lab.only_target
    found = list(dict.fromkeys(board.target for board in lab.lab.boards.values()))
    what = f"boards of several targets: {listed(found, joiner='and')}" if found else "no boards"
    raise ConfigError(f"{lab.path} has {what}", hint=hint)


def _parameters(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"--param {text}: must be NAME=VALUE")
        if name in found:
            raise ConfigError(f"--param {name} is given twice")
        found[name] = value
    return found


def _print_explanation(found: Explanation, *, as_json: bool) -> None:
    plan = found.plan
    identity = plan.order.toolchain.identity
    if as_json:
        click.echo(json.dumps(found.document(), indent=2))
        return
    what = f"# {plan.order.what}: {plan.label}, {plan.source.identity.revision}"
    click.echo(printable_line(what))
    click.echo(f"# {identity}, {plan.choice.why}")
    click.echo(f"# artifact {plan.artifact}{' (built already)' if found.built else ''}")
    for name, value in plan.order.toolchain.environment.items():
        click.echo(f"export {name}={shlex.quote(value)}")
    for command in found.script.commands:
        click.echo(f"\n# {command.step}: {command.message}, within {command.seconds:g} s")
        click.echo(f"cd {shlex.quote(command.cwd or found.folders.tree)}")
        click.echo(printable(shlex.join(command.words)))


def _source(source: Path | None, git: str | None, ref: str | None) -> Path | GitSource | None:
    if source is not None and git is not None:
        raise ConfigError("--source and --git are both given", hint="name one source")
    if (git is None) != (ref is None):
        raise ConfigError("--git and --ref belong together", hint="--git URL --ref TAG")
    if git is None or ref is None:
        return source
    try:
        return GitSource(git=git, ref=ref)
    except ValidationError as error:
        given = {"git": git, "ref": ref}
        problems = explain_problems(error.errors(include_url=False), given, GitSource)
        raise ConfigError(
            "; ".join(f"--{path_text(path)} {text}" for path, text, _ in problems)
        ) from error


#: Unit of a step's progress, if all its parts are of one kind.
_UNITS = {Step.COMPILE: "files", Step.SEND: "bytes"}


class BuildView:
    """Shows the progress of builds."""

    def __init__(self, view: progress.ProgressView):
        self._view = view
        self._step: progress.Step | None = None
        self._name: Step | None = None
        #: True if no build was needed so far.
        self.idle = True

    def build(
        self, request: BuildRequest, on_missing: Callable[[Plan], None] | None = None
    ) -> Artifact:
        """Build and show the progress. Arguments and errors: :func:`labctl.build.builder.build`."""
        try:
            artifact = build_artifact(request, on_progress=self._show, on_missing=on_missing)
        except BaseException:
            if self._step is not None:
                self._step.abandon()
            raise
        self._finish()
        return artifact

    def _show(self, event: BuildProgress) -> None:
        self.idle = False
        if self._name is not event.step or event.done is None:
            self._finish()
            title = f"{event.step}: {event.message}"
            self._step, self._name = self._view.open(title, event.total), event.step
            if not self._view.live:
                self._view.say(f"{title} ...")
        elif self._step is not None:
            note = event.message.rpartition("/")[2]
            self._step.update(event.done, event.total, note, unit=_UNITS.get(event.step, ""))

    def _finish(self) -> None:
        if self._step is not None:
            self._step.finish()
        self._step = self._name = None


def build_missing(view: progress.ProgressView, recipe: Recipe, lab_root: Path) -> None:
    """Build everything that a recipe needs except the agent; skip up-to-date builds.

    Raises what :func:`labctl.build.builder.build` raises.
    """
    shown = BuildView(view)
    for request in missing_builds(recipe, lab_root, with_stale=True):
        shown.build(request)


def _location(location: str) -> str:
    """Name a source; omit the folder of the labctl installation for a shipped source."""
    path = Path(location)
    if path.is_relative_to(package_data.TOOLCHAINS):
        return f"labctl's {path.relative_to(package_data.TOOLCHAINS.parent)}"
    return location


def _print_summary(artifact: Artifact, only: tuple[str, ...]) -> None:
    manifest = artifact.manifest
    console = output_console()
    console.print(
        printable_line(
            f"{manifest.product} ({manifest.version}) for {manifest.target}: "
            f"{manifest.source.revision} of {_location(manifest.source.location)}"
        ),
        style="bold",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    click.echo(f"  in        {artifact.path}")
    click.echo(printable_line(f"  toolchain {manifest.toolchain}"))
    click.echo(printable_line(f"  flags     {' '.join(manifest.flags)}"))
    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2))
    for heading in ("  tool", "size", "file", "first start", "tiny model"):
        table.add_column(heading, justify="right" if heading == "size" else "left")
    for name, tool in manifest.tools.items():
        if only and name not in only:
            continue
        ran = "-" if tool.infer is None else str(tool.infer)
        said = map(plain, (f"  {name}", size(tool.size_bytes), str(tool.elf), str(tool.smoke), ran))
        table.add_row(*said)
    print_whole(console, table)
