"""The result of a run as text: a table, Markdown, CSV, JSON, or a line of JSON for each trial.

The JSON is the output of ``--json`` of ``run``, ``resume`` and ``report``.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from labctl.compare.tuned import tuned
from labctl.errors import printable_line
from labctl.figures.trials import FIGURES
from labctl.records.run import GateRecord, RunRecord
from labctl.records.trial import TrialRecord
from labctl.report import tuning
from labctl.report.ci.cases import run_suite
from labctl.report.ci.texts import CI_FORMATS, ci_text
from labctl.report.markdown import cell, quote, table
from labctl.report.page.language import Language
from labctl.report.references import COLUMNS, HEADLINE, ReferenceRow
from labctl.report.remarks import remarks
from labctl.report.result_tables import Results, result_tables
from labctl.report.rows import rows_csv
from labctl.report.status import Status
from labctl.report.table import plain_cells
from labctl.report.tables import headline, print_experiment, print_timing_table
from labctl.results.summary import ESTIMATE, VariantSummary, summarise, wanted_precision
from labctl.runs.record.directory import RunDirectory


def run_document(
    run: RunRecord,
    trials: Sequence[TrialRecord],
    directory: Path,
    references: Sequence[ReferenceRow] = (),
) -> dict[str, object]:
    """Return a run as JSON: path, record, rows of the table, trials, requested published figures.

    Keys are as in the records.
    """
    return {
        "directory": str(directory.resolve()),
        "run": run.model_dump(mode="json"),
        "rows": [row.document() for row in summarise(trials, run.variants, wanted_precision(run))],
        **_search_document(run, trials, directory),
        **({"references": [row.document() for row in references]} if references else {}),
        "trials": [trial.model_dump(mode="json") for trial in trials],
    }


def _search_document(
    run: RunRecord, trials: Sequence[TrialRecord], directory: Path
) -> dict[str, object]:
    """Return the search that a run is; empty for another run."""
    search = RunDirectory(directory).tuning()
    if search is None:
        return {}
    return {"tuning": tuning.document(tuned(run, trials, search))}


_WIDTH = 120


def result_text(
    form: str,
    run: RunRecord,
    trials: Sequence[TrialRecord],
    gates: Sequence[GateRecord],
    directory: Path,
    *,
    references: Sequence[ReferenceRow] = (),
    status: Status | None = None,
    strict: bool = False,
) -> str:
    """Return the result of a run in a format.

    Formats: ``table``, ``wide``, ``md``, ``csv``, ``json``, ``jsonl``, ``experiment``, and
    :data:`labctl.report.ci.texts.CI_FORMATS`. ``wide`` is the table with all columns, like
    Markdown. ``references``: published figures, which tables, Markdown and JSON show apart from the
    run's figures. ``status``: the first line of tables and Markdown. CSV has a line for each
    variant: times in ns, sizes in bytes, empty cells if not measured. JSON is the output of
    ``labctl report --json``; JSON Lines are the trials' records. ``strict`` applies to formats of
    CI servers.
    """
    if form in CI_FORMATS:
        suite = run_suite(RunDirectory(directory), run, trials, gates, strict=strict)
        return ci_text(
            form, suite, lambda own: result_text(own, run, trials, gates, directory, status=status)
        )
    match form:
        case "json":
            return json.dumps(run_document(run, trials, directory, references), indent=2) + "\n"
        case "jsonl":
            return "".join(trial.model_dump_json() + "\n" for trial in trials)
        case "csv":
            return _csv(variant_rows(run, trials))
        case "md":
            search = RunDirectory(directory).tuning()
            chapter = [] if search is None else tuning.markdown(tuned(run, trials, search))
            lines = _markdown(run, trials, gates, references, status)
            return "\n".join([*chapter, *lines]) + "\n"
    written = io.StringIO()
    console = Console(file=written, width=_WIDTH, emoji=False)
    if form == "experiment":
        print_experiment(console, run, trials)
    else:
        wide = form == "wide"
        print_timing_table(
            console, run, trials, gates, wide=wide, references=references, status=status
        )
    return written.getvalue()


#: Columns of a variant, each with its kind.
VARIANT_COLUMNS: Mapping[str, type] = {
    **dict.fromkeys(("run", "recipe", "board", "target", "execution", "variant"), str),
    "quantization": str, "bits_per_weight": float, "size_bytes": int, "model_sha256": str,
    **dict.fromkeys(("trials_ok", "trials_failed", "trials_skipped", "trials_timed"), int),
    "estimate": str,
    **{one.name: int if one.is_whole else float for one in FIGURES if one.over},
    **dict.fromkeys(("token_median_ns", "token_low_ns", "token_high_ns"), int),
    **dict.fromkeys(("ratio", "ratio_low", "ratio_high"), float),
    **dict.fromkeys(("checks_failed", "failures", "skip_reason"), str),
}  # fmt: skip


def variant_rows(run: RunRecord, trials: Sequence[TrialRecord]) -> list[dict[str, object]]:
    """Return a row for each variant: times in ns, sizes in bytes, None if not measured."""
    return [_flat(run, one) for one in summarise(trials, run.variants, wanted_precision(run))]


def _csv(lines: Sequence[Mapping[str, object]]) -> str:
    """Return a CSV that terminals show unchanged."""
    shown = (
        {name: printable_line(x) if isinstance(x, str) else x for name, x in line.items()}
        for line in lines
    )
    return rows_csv(shown, VARIANT_COLUMNS)


def _flat(run: RunRecord, row: VariantSummary) -> dict[str, object]:
    between, ratio = row.token_interval, row.ratio_interval
    return {
        "run": run.id,
        "recipe": run.recipe,
        "board": run.board,
        "target": run.target,
        "execution": run.facts.execution,
        "variant": row.variant,
        "quantization": row.model.quantization,
        "bits_per_weight": row.model.bits_per_weight,
        "size_bytes": row.model.size_bytes,
        "model_sha256": row.model.sha256,
        "trials_ok": row.trials_ok,
        "trials_failed": row.trials_failed,
        "trials_skipped": row.trials_skipped,
        "trials_timed": row.trials_timed,
        "estimate": ESTIMATE,
        **row.figures,
        "token_median_ns": row.token_median_ns,
        "token_low_ns": between and round(between.low),
        "token_high_ns": between and round(between.high),
        "ratio": row.ratio,
        "ratio_low": ratio and ratio.low,
        "ratio_high": ratio and ratio.high,
        "checks_failed": " ".join(row.checks_failed),
        "failures": "; ".join(row.failures),
        "skip_reason": row.skip_reason or "",
    }


def _markdown(
    run: RunRecord,
    trials: Sequence[TrialRecord],
    gates: Sequence[GateRecord],
    references: Sequence[ReferenceRow],
    status: Status | None,
) -> Iterator[str]:
    told = status.reason.last_lines if status and status.reason else ()
    if status:
        yield f"**{cell(status.line(Language('en')))}**"
        yield ""
        yield from quote(told)
    where, warning = headline(run)
    yield f"**{cell(run.recipe)}** {cell(where)}"
    yield ""
    if warning:
        yield from (f"**{cell(warning)}**", "")
    for one in result_tables([Results(run, trials, status=status)], (), Language("en")):
        yield from table(*plain_cells(one))
    if references:
        yield from (f"**{cell(HEADLINE)}**", "")
        yield from table(COLUMNS, [row.cells for row in references])
    for remark in remarks(run, trials, gates, told):
        yield f"- {cell(remark.lead + remark.text)}"
        yield from (f"  {line}" for line in quote(remark.last_lines))
