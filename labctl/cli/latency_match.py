"""``labctl latency-match``."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from labctl.cli.complete import REFERENCE, RUN
from labctl.cli.lab import lab_or_own, runs_folder
from labctl.cli.output import (
    PAGE,
    json_option,
    language_option,
    note,
    output_console,
    output_option,
    write_result,
)
from labctl.cli.root import Invocation
from labctl.config.types import parse_duration
from labctl.errors import ConfigError, ExitStatus

if TYPE_CHECKING:
    from labctl.compare.equal_latency.result import LatencyMatch

#: Suffix of a file -> format.
_FORMATS = {
    "": "text",
    ".txt": "text",
    ".csv": "csv",
    ".json": "json",
    **dict.fromkeys((".html", ".htm", ".md", ".pdf", ".svg", ".png"), PAGE),
}


class _Deadline(click.ParamType[float]):
    """A time such as ``60s``."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


@click.command(
    "latency-match",
    epilog="Examples: labctl latency-match; labctl latency-match --deadline 60s -o curves.csv;"
    " labctl latency-match --references all",
)
@click.option(
    "--deadline",
    "deadlines",
    multiple=True,
    type=_Deadline(),
    metavar="TIME",
    help="Recommend a model for answers within this time, such as 60s; repeatable.",
)
@click.option(
    "--grader",
    metavar="NAME",
    help="Grader that decides what is right; default: the first of the evaluation's recipe.",
)
@click.option(
    "--assume-same-model",
    is_flag=True,
    help="Match even if model, template, sampling, KV type or board differ; the output says so.",
)
@click.option(
    "--references",
    metavar="NAME,NAME|all",
    shell_complete=REFERENCE,
    help="Published figures to quote; without a RUN, only these are shown.",
)
@language_option
@json_option("Print curves, crossings and choices as JSON, times in s.")
@output_option
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=RUN)
@click.pass_obj
def latency_match(
    invocation: Invocation,
    names: tuple[str, ...],
    *,
    deadlines: tuple[float, ...],
    grader: str | None,
    assume_same_model: bool,
    references: str | None,
    language: str | None,
    as_json: bool,
    output: Path | None,
) -> int:
    """Show which model answers better in the same time.

    RUN is an evaluation, or a run (RUN:VARIANT) with the times of its models. Default: the newest
    graded evaluation, and for each of its models the newest run with the same file.

    -o FILE.csv writes the points of the curves, FILE.json all, FILE.txt the tables; FILE.html, .md
    and .pdf a report, .svg and .png its figures.
    """
    form = "json" if as_json else _form(output)
    if language and form != PAGE:
        raise click.UsageError("--language is for reports: -o FILE.html, .md, .pdf, .svg or .png")
    quoted = [name for name in (references or "").split(",") if name]
    found = _match(invocation, names, deadlines, grader, quoted, assume=assume_same_model)
    if form == PAGE and output is not None:
        _write_page(found, output, language)
        return ExitStatus.OK
    if output is None and form == "text":
        from labctl.report.latency_match import print_latency_match

        print_latency_match(output_console(), found)
        return ExitStatus.OK
    from labctl.report import latency_match as view

    texts = {
        "text": view.latency_match_text,
        "json": view.latency_match_json,
        "csv": view.latency_match_csv,
    }
    write_result(texts[form](found), output)
    return ExitStatus.OK


def _write_page(found: "LatencyMatch", output: Path, language: str | None) -> None:
    from labctl.report.page.files import check_report, write_pages
    from labctl.report.page.language import Language
    from labctl.report.page.latency import latency_report

    check_report(output)
    words = Language("zh" if language == "zh" else "en")
    for path in write_pages(latency_report(found, words), output, words=words):
        note(f"wrote {path}")


def _form(output: Path | None) -> str:
    if output is None:
        return "text"
    form = _FORMATS.get(output.suffix.lower())
    if form is None:
        raise ConfigError(
            f"nothing can be written as {output.name}: unknown file type {output.suffix}",
            hint=f"name it with one of {', '.join(filter(None, _FORMATS))}",
        )
    return form


def _match(
    invocation: Invocation,
    names: Sequence[str],
    deadlines: Sequence[float],
    grader: str | None,
    quoted: Sequence[str],
    *,
    assume: bool,
) -> "LatencyMatch":
    from labctl.compare.equal_latency import build

    lab_root = lab_or_own(invocation).root
    if quoted and not names:
        return build.published_match(lab_root, quoted)
    folder = runs_folder(invocation, names[0]) if names else lab_root / "runs"
    found = build.latency_match(
        folder, names, deadlines=deadlines, grader=grader, assume_same_model=assume
    )
    return replace(found, quoted=build.quoted_figures(lab_root, quoted))
