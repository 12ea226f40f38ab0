"""``labctl load-test``."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from labctl.cli.lab import lab_or_own
from labctl.cli.load_test_view import check_load_test_format, tell_load_test
from labctl.cli.output import result_options
from labctl.cli.progress import ProgressView
from labctl.cli.root import Invocation
from labctl.cli.run_view import RunView
from labctl.config.yaml.document import Document
from labctl.config.yaml.loader import Path as DocumentPath
from labctl.config.yaml.loader import Value
from labctl.evaluation.serving.recipe import LoadTestRecipe
from labctl.evaluation.serving.run import run_load_test
from labctl.runs.observer import Observer

_APIS = ("openai-chat", "openai-completions", "llama-server")
_ORIGIN = "labctl load-test"
_PLAIN_NAME = "load-test"


class _Numbers(click.ParamType[list[Value]]):
    """Numbers separated by commas."""

    name = "N,N,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[Value]:
        """Return the numbers; the recipe's own check validates them."""
        words = [word.strip() for word in str(value).split(",")]
        if not all(re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", word) for word in words):
            self.fail(f"{value!r} is not a list of numbers such as 1,2,4", param, ctx)
        return [float(word) if "." in word else int(word) for word in words]


class _Lengths(click.ParamType[Value]):
    """A number of tokens, or a range of numbers."""

    name = "N|N-N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Value:
        """Return a number, or the ends of a range."""
        match = re.fullmatch(r"([0-9]{1,8})(?:-([0-9]{1,8}))?", str(value))
        if match is None:
            self.fail(f"{value!r} is not a number of tokens such as 128 or 64-256", param, ctx)
        return int(match[1]) if match[2] is None else {"min": int(match[1]), "max": int(match[2])}


#: Option -> its key in the recipe.
_KEYS: dict[str, DocumentPath] = {
    "url": ("endpoint", "url"),
    "api": ("endpoint", "api"),
    "served_name": ("endpoint", "served_name"),
    "key_env": ("endpoint", "key_env"),
    "concurrency": ("concurrency",),
    "rates": ("rates",),
    "sweep": ("sweep",),
    "arrivals": ("arrivals",),
    "requests": ("requests",),
    "duration": ("duration",),
    "warm_up": ("warm_up",),
    "prompt_tokens": ("workload", "prompt_tokens"),
    "output_tokens": ("workload", "output_tokens"),
    "dataset": ("workload", "dataset", "file"),
    "ignore_eos": ("workload", "ignore_eos"),
    "ttft": ("limits", "ttft"),
    "tpot": ("limits", "tpot"),
    "latency": ("limits", "latency"),
    "seed": ("seed",),
    "max_time": ("max_time",),
}


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option(
            "--url",
            metavar="URL",
            required=True,
            help="Address of the server: http://127.0.0.1:8080.",
        ),
        click.option(
            "--api",
            type=click.Choice(_APIS),
            help="API of the server; TGI: openai-chat. Default: openai-chat.",
        ),
        click.option(
            "--served-name",
            metavar="NAME",
            help="Name of the model in the API; default: the only one served.",
        ),
        click.option(
            "--key-env", metavar="VARIABLE", help="Environment variable that holds the API's key."
        ),
        click.option(
            "--concurrency",
            "-c",
            type=_Numbers(),
            help="Closed loops: numbers of streams; each waits for the answer to its request.",
        ),
        click.option(
            "--rate",
            "-r",
            "rates",
            type=_Numbers(),
            help="Open loops: requests per second, independent of the server.",
        ),
        click.option(
            "--sweep",
            is_flag=True,
            default=None,
            help="Search for the highest rate that the server can follow.",
        ),
        click.option(
            "--arrivals",
            type=click.Choice(("poisson", "constant")),
            help="Times between the requests of open loops. Default: poisson.",
        ),
        click.option(
            "--requests", "-n", type=int, help="Requests to measure at each load. Default: 100."
        ),
        click.option(
            "--duration", metavar="TIME", help="Time during which each load sends requests: 60s."
        ),
        click.option(
            "--warm-up",
            type=int,
            help="Uncounted requests at the beginning of each load. Default: 5.",
        ),
        click.option(
            "--prompt-tokens", type=_Lengths(), help="Length of made-up prompts. Default: 128."
        ),
        click.option(
            "--output-tokens", type=_Lengths(), help="Limit of the generated tokens. Default: 64."
        ),
        click.option(
            "--dataset",
            metavar="FILE.jsonl",
            type=click.Path(dir_okay=False),
            help="Questions to ask, from their field `question`, instead of made-up prompts.",
        ),
        click.option(
            "--ignore-eos",
            is_flag=True,
            default=None,
            help="Ask the server to generate up to the limit.",
        ),
        click.option("--ttft", metavar="TIME", help="Limit of a good request: first piece."),
        click.option("--tpot", metavar="TIME", help="Limit of a good request: time per token."),
        click.option("--latency", metavar="TIME", help="Limit of a good request: whole answer."),
        click.option("--seed", type=int, help="Seed of prompts and arrivals. Default: 1."),
        click.option("--max-time", metavar="TIME", help="Longest time of the test."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(epilog="Example: labctl load-test --url http://127.0.0.1:8080 --concurrency 1,2,4,8")
@_options
@click.option(
    "--set",
    "set_values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a key of a load test's recipe, such as timeout=60s; repeatable.",
)
@result_options
@click.pass_obj
def load_test(
    invocation: Invocation,
    /,
    *,
    set_values: tuple[str, ...],
    result_format: str,
    output: Path | None,
    **options: Value,
) -> int:
    """Load a model server at an address, without a recipe.

    Measures requests, tokens and times. Rates and times are defined as in vLLM's `bench serve` and
    GuideLLM; in an open loop, times begin at the planned time of the request. Results are kept in
    the lab's runs/; `-o` writes .csv, .json or .txt. Exit status 0: measured, all gates met; 1:
    there was no answer; 3: the server was lost. Ctrl-C keeps the results so far.

    For a server that labctl starts, gates and other kept settings, write a recipe: `labctl run
    serving`.
    """
    check_load_test_format(result_format)
    lab = lab_or_own(invocation)
    test = LoadTestRecipe.read(_document(options), set_values)
    with ProgressView() as view:
        outcome = run_load_test(test, lab, Observer(RunView(view).show))
    return tell_load_test(outcome, result_format, output)


def _document(options: dict[str, Value]) -> Document:
    """Return the recipe that the options describe."""
    document = Document.parse("{}", _ORIGIN)
    document.text = ""  # the options are not a text
    model: Value = {"declared": {"name": options["served_name"] or "the served model"}}
    plain: dict[str, Value] = {
        "name": _PLAIN_NAME,
        "models": {"model": model},
        "endpoint": {"model": "model", "api": "openai-chat"},
    }
    for key, keys in plain.items():
        document.override((key,), keys, _ORIGIN)
    for name, value in options.items():
        if value is not None:
            flag = "rate" if name == "rates" else name.replace("_", "-")
            given = str(Path(str(value)).absolute()) if name == "dataset" else value
            document.override(_KEYS[name], given, f"--{flag}")
    return document
