"""``labctl tune``."""

from pathlib import Path

import click

from labctl.cli.ci_output import CiOutput
from labctl.cli.complete import BOARD
from labctl.cli.lab import lab_and_board, lab_or_own
from labctl.cli.output import result_options
from labctl.cli.root import Invocation
from labctl.cli.run import run_on_board
from labctl.config.recipe import find_recipe
from labctl.config.yaml.document import Document
from labctl.errors import ConfigError
from labctl.runs.inputs.bench import bench_document, model_entries
from labctl.runs.inputs.prepare import read_recipe

_OBJECTIVES = ("decode", "prefill", "memory", "energy")
_NAME = "tune"
_ORIGIN = "labctl tune"
#: Budget of a recipe that names none.
_BUDGET = "2h"


@click.command(epilog="Example: labctl tune models/llama-q8_0.gguf --board rk1 --budget 2h")
@click.option(
    "--budget",
    metavar="TIME",
    help="Longest time of all trials; default: the recipe's max_time, 2h for a model.",
)
@click.option(
    "--objective",
    "objectives",
    type=click.Choice(_OBJECTIVES),
    multiple=True,
    help="What has to be better; repeatable. Default: decode.",
)
@click.option(
    "--board",
    "-b",
    shell_complete=BOARD,
    help="The board to use; default: the lab's default board.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of all random orders; default: 1.")
@click.option(
    "--set",
    "set_values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the recipe, such as tokens=32; repeatable.",
)
@click.option("--no-wait", is_flag=True, help="End with 3 if the board is in use.")
@result_options
@click.argument("what", nargs=1, metavar="MODEL.gguf|RECIPE")
@click.pass_obj
def tune(
    invocation: Invocation,
    what: str,
    *,
    budget: str | None,
    objectives: tuple[str, ...],
    board: str | None,
    seed: int | None,
    set_values: tuple[str, ...],
    no_wait: bool,
    result_format: str,
    output: Path | None,
) -> int:
    """Find the fastest settings of a model on a board, and prove them.

    MODEL.gguf is a file, or a model as `labctl bench` takes it; its prompt and its parameters are
    those of the recipe q8_latency. A RECIPE may name the values to try: `tune: {space: …}`. A race
    of all settings drops those that are behind. The winner and the default are then measured again
    in fresh pairs, and only these pairs are judged. The run is continued by `labctl resume` if it
    was interrupted. Exit status 0: the search has ended, also if nothing is shown to be faster; 1:
    the default failed; 2: nothing can be searched, as if the budget is too small; 3: host, link or
    board failed.
    """
    root = lab_or_own(invocation).root
    lab, chosen = lab_and_board(invocation, board)
    document = _document(what, root, chosen.target)
    if (document.value if isinstance(document.value, dict) else {}).get("tune") is None:
        document.override(("tune",), {}, _ORIGIN)
    if objectives:
        wanted = dict.fromkeys(objectives)
        origin = " ".join(f"--objective {one}" for one in wanted)
        document.override(("tune", "objectives"), [*wanted], origin)
    if seed is not None:
        document.override(("tune", "seed"), seed, f"--seed {seed}")
    if budget is not None:
        document.override(("max_time",), budget, f"--budget {budget}")
    recipe = read_recipe(document, set_values, lab_root=lab.root)
    return run_on_board(
        lab, recipe, [chosen], (result_format, output), CiOutput(), waits=not no_wait
    )


def _document(what: str, root: Path, target: str) -> Document:
    """Return a recipe's document, or that of a search for a model."""
    if not what.endswith(".gguf") and ":" not in what:
        try:
            return Document.read(find_recipe(what, root))
        except ConfigError:
            if what.endswith((".yaml", ".yml")):
                raise
    document = bench_document(model_entries([what], root), target)
    document.override(("name",), _NAME, _ORIGIN)
    document.override(("description",), "Search for the best settings of a model", _ORIGIN)
    document.override(("max_time",), _BUDGET, _ORIGIN)
    return document
