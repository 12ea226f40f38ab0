"""The commands of labctl; each is imported when it is used."""

from typing import NamedTuple


class Command(NamedTuple):
    """A command of a group. A test holds the line of help against the command itself.

    ``place``: ``MODULE:FUNCTION`` below :mod:`labctl.cli`; by default both have the command's name.
    """

    text: str
    place: str = ""

    def module_and_function(self, name: str) -> tuple[str, str]:
        """Return the full name of the module of command ``name``, and its function there."""
        name = name.replace("-", "_")
        module, _, function = (self.place or name).partition(":")
        return f"labctl.cli.{module}", function or name


#: Groups in the order of use, as `labctl --help` shows them.
GROUPS: dict[str, dict[str, Command]] = {
    "Set up a lab": {
        "init": Command("Write a first devices.yaml and recipe."),
        "doctor": Command("List what is missing on this host."),
        "boards": Command("List the lab's boards and their state."),
    },
    "Prepare": {
        "recipes": Command("List, show and copy recipes."),
        "build": Command("Build tools for a target."),
        "artifacts": Command("List, verify, compare and remove built artifacts."),
        "models": Command("Manage the lab's models.", "models.group"),
        "deploy": Command("Send tools and models to boards."),
        "store": Command("List, verify, prune and pin the files of boards."),
    },
    "Measure": {
        "plan": Command("Show what a recipe would do on a board, and how long it would take."),
        "run": Command("Run a recipe and print its result."),
        "bench": Command("Measure GGUF files on a board, without a recipe."),
        "tune": Command("Find the fastest settings of a model on a board, and prove them."),
        "load-test": Command("Load a model server at an address, without a recipe."),
        "resume": Command("Resume an unfinished run."),
        "watch": Command("Show a run that another process drives."),
        "logs": Command("Print what happened in a run, a line for each event."),
    },
    "Use results": {
        "runs": Command("List the lab's runs, newest first."),
        "report": Command("Print the tables of finished runs, or write a report on them."),
        "show": Command(
            "Print all facts of a run or a trial with their origin, or the facts of a bundle."
        ),
        "export": Command(
            "Write a row for each trial of the named runs, or of those that meet the conditions."
        ),
        "grade": Command("Grade the kept answers of an evaluation again, without any server."),
        "compare": Command("Compare runs, variants or baselines with the first of them."),
        "latency-match": Command("Show which model answers better in the same time."),
        "baseline": Command("Name runs that later runs are compared with."),
        "regressions": Command("Find changes of results over time, and their commits."),
        "bundle": Command("Write a run into one file that others can check and reproduce."),
        "import": Command(
            "Import runs that were measured elsewhere: bundles, and results of llama-bench.",
            "import_:import_",
        ),
        "reproduce": Command("Measure a bundle's run again on a board, and compare."),
    },
    "Share boards": {
        "queue": Command("List the jobs of the lab's queue, in the order in which they begin."),
        "batch": Command("Run a plan of recipes on many boards, each as soon as one is free."),
        "nightly": Command("Compare new builds with the last good ones on all boards, by a plan."),
        "worker": Command(
            "Run the queue's jobs on the boards attached to this host, until stopped."
        ),
        "hold": Command("Keep boards for yourself, from now on or from a later time.", "holds"),
        "release": Command("Release boards that you hold.", "holds"),
        "serve": Command("Serve the lab's dashboard: boards, queue, runs, trends, audit log."),
        "state": Command(
            "Back up, restore and audit the lab's state: baselines, leases, queue, health, tokens."
        ),
    },
    "Use a board by hand, and get help": {
        "shell": Command("Run a command on a board."),
        "hdc": Command("Use a board over hdc, without hdc's own program.", "hdc.group"),
        "virtual-board": Command("Serve virtual boards until interrupted."),
        "schema": Command("Print the JSON Schema of a file format."),
        "docs": Command("Print a page of the documentation."),
        "completion": Command("Print a shell completion script.", "complete"),
        "help": Command("Show the help of labctl or of a command.", "help:help_"),
    },
}
COMMANDS = {name: one for group in GROUPS.values() for name, one in group.items()}
