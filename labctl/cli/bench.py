"""``labctl bench``."""

from pathlib import Path

import click

from labctl.cli.ci_output import CiOutput, ci_options
from labctl.cli.complete import BOARD, MODEL_FILE, TARGET
from labctl.cli.lab import lab_and_board, lab_or_own
from labctl.cli.output import result_options, write_result
from labctl.cli.root import Invocation
from labctl.cli.run import comparing_with, run_and_tell
from labctl.runs.inputs.bench import bench_document, model_entries, recipe_text
from labctl.runs.inputs.prepare import read_recipe
from labctl.runs.run import RunRequest


@click.command(epilog="Example: labctl bench llama-q8_0.gguf --board 192.168.1.20:5555 --build")
@click.option(
    "--board",
    "-b",
    shell_complete=BOARD,
    metavar="NAME|HOST:PORT",
    help="A board of the lab, or the address of an hdc daemon; default: the lab's default board.",
)
@click.option(
    "--target",
    shell_complete=TARGET,
    help="Machine type of a board named by its address; default: recognised by its CPU.",
)
@click.option(
    "--set",
    "set_values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the recipe, such as tokens=8; repeatable.",
)
@click.option("--build", is_flag=True, help="Build what is missing, damaged or of an older source.")
@click.option("--print-recipe", is_flag=True, help="Print the equivalent recipe; run nothing.")
@result_options
@ci_options
@click.argument("models", nargs=-1, required=True, shell_complete=MODEL_FILE)
@click.pass_obj
def bench(
    invocation: Invocation,
    *,
    models: tuple[str, ...],
    board: str | None,
    target: str | None,
    set_values: tuple[str, ...],
    build: bool,
    print_recipe: bool,
    result_format: str,
    output: Path | None,
    ci: CiOutput,
) -> int:
    """Measure GGUF files on a board, without a recipe.

    MODELS are files, references such as hf:OWNER/NAME/FILE.gguf, or names of the lab's models;
    several become variants of one run, each with its ratio to the first. Prompt, parameters,
    repeats and max_time are those of the recipe q8_latency. Without a devices.yaml, name the board
    by its address; the run directory is then kept in the user's state folder. Exit status as with
    `labctl run`.
    """
    if print_recipe and result_format != "table":
        raise click.UsageError("--print-recipe prints YAML; it has no other format")
    entries = model_entries(models, lab_or_own(invocation).root)  # before any contact
    lab, chosen = lab_and_board(invocation, board, target)
    document = bench_document(entries, chosen.target)
    recipe = read_recipe(document, set_values, lab_root=lab.root)
    if print_recipe:
        write_result(recipe_text(document), output)
        return 0
    request = RunRequest(recipe, chosen, lab, compare=comparing_with(lab))
    return run_and_tell(request, (), result_format, output, ci, build=build)
