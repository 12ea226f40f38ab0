"""``labctl completion``, and the shell's candidates: names in the lab, and files.

Errors are ignored: an unreadable lab has no candidates.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem, get_completion_class

from labctl.errors import ConfigError, LabctlError

_Names = Callable[[click.Context], Iterable[str]]


def recipes(ctx: click.Context) -> Iterable[str]:
    """Name the lab's recipes and those shipped with labctl."""
    from labctl.config.recipe import known_recipes

    return known_recipes(_root(ctx))


def boards(ctx: click.Context) -> Iterable[str]:
    """Name the lab's boards."""
    from labctl.config.lab import find_lab
    from labctl.transport.built_in import TRANSPORTS

    return find_lab(_folder(ctx), TRANSPORTS).lab.boards


def runs(ctx: click.Context) -> Iterable[str]:
    """Name the lab's runs, the newest first."""
    root = _root(ctx)
    if root is None:
        return ["latest"]
    from labctl.runs.record.disk import KINDS

    found = {path.parent.name for name in KINDS for path in root.glob(f"runs/*/{name}")}
    return ["latest", *sorted(found, reverse=True)]


def jobs(ctx: click.Context) -> Iterable[str]:
    """Name the jobs that wait or run."""
    from labctl.config.lab import find_lab
    from labctl.database.base import patience
    from labctl.state.state import lab_state
    from labctl.transport.built_in import TRANSPORTS

    with patience(0.0):
        return [job.id for job in lab_state(find_lab(_folder(ctx), TRANSPORTS)).jobs.list()]


def trashed(ctx: click.Context) -> Iterable[str]:
    """Name the runs in the lab's trash, the newest first."""
    from labctl.runs.record.trash import trashed_runs

    root = _root(ctx)
    return () if root is None else (one.run for one in trashed_runs(root / "runs"))


def unfinished(ctx: click.Context) -> Iterable[str]:
    """Name the lab's runs that can be resumed, the newest first."""
    from labctl.runs.record.directory import unfinished_runs

    root = _root(ctx)
    found = [] if root is None else unfinished_runs(root / "runs")
    return ["latest", *(directory.path.name for directory in reversed(found))]


def tags(ctx: click.Context) -> Iterable[str]:
    """Name the tags of the lab's runs."""
    from labctl.database.base import patience
    from labctl.runs.record.repository import RunRepository

    root = _root(ctx)
    with patience(0.0):
        return () if root is None else RunRepository(root / "runs").tags()


def baselines(ctx: click.Context) -> Iterable[str]:
    """Name the lab's baselines."""
    from labctl.config.lab import find_lab
    from labctl.database.base import patience
    from labctl.state.state import lab_state
    from labctl.transport.built_in import TRANSPORTS

    lab = find_lab(_folder(ctx), TRANSPORTS)
    with patience(0.0):
        return [one.name for one in lab_state(lab).baselines.list()]


def parameters(ctx: click.Context) -> Iterable[str]:
    """Name the engine parameters of the lab's runs, with their values."""
    from labctl.database.base import patience
    from labctl.runs.record.repository import RunRepository

    root = _root(ctx)
    with patience(0.0):
        found = [] if root is None else RunRepository(root / "runs").parameters()
    return [f"{name}={value}" for name, value in found]


def targets(ctx: click.Context) -> Iterable[str]:
    """Name the targets that programs can be built for."""
    from labctl.config.target import target_names

    return target_names(_root(ctx))


def tools(ctx: click.Context) -> Iterable[str]:
    """Name the tools of the product to build."""
    from labctl.build.spec import find_spec

    target, product = ctx.params.get("target"), ctx.params.get("product")
    return find_spec(target, product, _root(ctx))[0].tools if target and product else ()


def artifacts(_ctx: click.Context) -> Iterable[str]:
    """Name the built artifacts."""
    from labctl.build.artifact import artifacts_dir, list_artifacts

    return [str(artifact.path.relative_to(artifacts_dir())) for artifact in list_artifacts()]


def models(ctx: click.Context) -> Iterable[str]:
    """Name the models of the lab's models.yaml."""
    from labctl.config.models import load_catalogue

    root = _root(ctx)
    return () if root is None else load_catalogue(root).models


def compared(ctx: click.Context) -> Iterable[str]:
    """Name the runs and baselines that can be compared."""
    with suppress(LabctlError, OSError):  # there can be runs without a devices.yaml
        yield from baselines(ctx)
    yield from runs(ctx)


def figures(_ctx: click.Context) -> Iterable[str]:
    """Name the figures that can be compared."""
    from labctl.compare.figures import FIGURES

    return FIGURES


def pictures(_ctx: click.Context) -> Iterable[str]:
    """Name the figures that a report of any run can have."""
    from labctl.report.figures.catalogue import NAMES

    return NAMES


def references(ctx: click.Context) -> Iterable[str]:
    """Name the published figures that can be shown."""
    from labctl.config.references import known_references

    return ["all", *known_references(_root(ctx))]


def pages(_ctx: click.Context) -> Iterable[str]:
    """Name the pages of the documentation."""
    from labctl.package_data import pages as all_pages

    return all_pages()


def commands(ctx: click.Context) -> Iterable[str]:
    """Name labctl's commands, or the commands below the words typed so far."""
    within = ctx.find_root()
    for word in ctx.params.get("words") or ():
        command = within.command
        found = command.get_command(within, word) if isinstance(command, click.Group) else None
        if found is None:
            return ()
        within = click.Context(found, info_name=word, parent=within)
    group = within.command
    return group.list_commands(within) if isinstance(group, click.Group) else ()


def _offer(
    names: _Names,
    suffix: str | None,
    ctx: click.Context,
    _parameter: click.Parameter,
    incomplete: str,
) -> list[CompletionItem]:
    """Offer the names and the allowed files that begin with the word.

    ``names`` returns the known names; ``suffix`` is the suffix of allowed files, None for no files.
    """
    known: list[str] = []
    with suppress(LabctlError, OSError):
        known = [name for name in names(ctx) if name.startswith(incomplete)]
    if suffix is None:
        return [CompletionItem(name) for name in known]
    if not known:  # the shell completes files better
        return [CompletionItem(incomplete, type="file")]
    files = [
        f"{path}/" if path.is_dir() else str(path)
        for path in sorted(Path().iterdir())
        if path.name.startswith(incomplete)
        and (incomplete or not path.name.startswith("."))
        and (path.is_dir() or path.suffix == suffix)
    ]
    return [CompletionItem(name) for name in dict.fromkeys([*known, *files])]


RECIPE = partial(_offer, recipes, ".yaml")
BOARD = partial(_offer, boards, None)
RUN = partial(_offer, runs, None)
JOB = partial(_offer, jobs, None)
TRASHED = partial(_offer, trashed, None)
UNFINISHED = partial(_offer, unfinished, None)
TAG = partial(_offer, tags, None)
PARAMETER = partial(_offer, parameters, None)
BASELINE = partial(_offer, baselines, None)
COMPARED = partial(_offer, compared, None)
FIGURE = partial(_offer, figures, None)
PICTURE = partial(_offer, pictures, None)
TARGET = partial(_offer, targets, None)
TOOL = partial(_offer, tools, None)
ARTIFACT = partial(_offer, artifacts, None)
MODEL = partial(_offer, models, None)
REFERENCE = partial(_offer, references, None)
PAGE = partial(_offer, pages, None)
COMMAND = partial(_offer, commands, None)
#: A model of the lab, or a file.
MODEL_FILE = partial(_offer, models, ".gguf")


def _folder(ctx: click.Context) -> Path:
    root = ctx.find_root()
    if (named := root.params.get("lab")) is not None:
        return Path(named)
    if root.get_parameter_source("lab") in (
        ParameterSource.COMMANDLINE,
        ParameterSource.ENVIRONMENT,
    ):
        raise ConfigError("the named lab is not there")  # offer no names of another lab
    return Path.cwd()


def _root(ctx: click.Context) -> Path | None:
    from labctl.config.lab import find_lab_root

    return find_lab_root(_folder(ctx))


@click.command(epilog='Example: eval "$(labctl completion bash)"')
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script."""
    from labctl.process import elsewhere

    completer = get_completion_class(shell)
    assert completer is not None
    root = ctx.find_root().command
    with elsewhere():  # click asks the shell for its version
        click.echo(completer(root, {}, "labctl", "_LABCTL_COMPLETE").source())
