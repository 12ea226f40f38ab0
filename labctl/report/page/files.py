"""A report as a file; the file's suffix is the format."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from labctl.errors import ConfigError
from labctl.files import write_named
from labctl.report.figures.figure import Figure
from labctl.report.figures.files import FORMATS as PICTURES
from labctl.report.figures.files import write_figure
from labctl.report.page.build import build_report
from labctl.report.page.content import Report
from labctl.report.page.evaluation import evaluation_report
from labctl.report.page.evaluation_tables import measured_evaluation
from labctl.report.page.html import html
from labctl.report.page.language import Language
from labctl.report.page.load_test import load_test_report, measured_load_test
from labctl.report.page.markdown import markdown
from labctl.report.page.pdf import find_browser, pdf
from labctl.report.status import run_status
from labctl.runs.record.directory import RunDirectory

#: Characters removed from file names: names of figures contain ids of runs, which are untrusted.
_NO_NAME = r"[^\w.-]"


def check_report(path: Path) -> None:
    """Raise ConfigError if a program for writing such a file is missing on this host."""
    if path.suffix.lower() == ".pdf":
        find_browser()


def write_report(
    directories: Sequence[RunDirectory],
    path: Path,
    *,
    words: Language,
    references: Sequence[str] = (),
    figure: str | None = None,
) -> list[Path]:
    """Write the report on runs, and return the files.

    Each figure gets a file, ``NAME-FIGURE.svg``. With the name of a ``figure``, only this figure is
    written, to ``path``. Raises ConfigError if no run can be read or a program is missing;
    HostError.
    """
    check_report(path)
    report = make_report(directories, words, references)
    return write_pages(report, path, words=words, figure=figure)


def make_report(
    directories: Sequence[RunDirectory], words: Language, references: Sequence[str] = ()
) -> Report:
    """Return the report on runs. Raises ConfigError as :func:`write_report`."""
    if any(directory.is_evaluation for directory in directories):
        only = _only(directories, "an evaluation")
        report = evaluation_report(measured_evaluation(only), words)
    elif any(directory.is_load_test for directory in directories):
        only = _only(directories, "a load test")
        report = load_test_report(measured_load_test(only), words)
    else:
        return build_report(directories, words, references)
    return replace(report, status=[run_status(only)])


def write_pages(
    report: Report, path: Path, *, words: Language, figure: str | None = None
) -> list[Path]:
    """Write a finished report, as :func:`write_report` does."""
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        return _pictures(report, path, figure)
    if suffix == ".md":
        write_named(path, markdown(report, words))
    else:
        page = html(report, words)
        write_named(path, pdf(page) if suffix == ".pdf" else page)
    return [path]


def _only(directories: Sequence[RunDirectory], kind: str) -> RunDirectory:
    if len(directories) > 1:
        raise ConfigError(
            f"{kind} has a report of its own",
            hint="write one for each; `labctl latency-match` joins evaluations and timing runs",
        )
    return directories[0]


def _pictures(report: Report, path: Path, name: str | None) -> list[Path]:
    if name is not None:
        write_figure(named_figure(report, name), path)
        return [path]
    made = {
        path.with_stem(f"{path.stem}-{re.sub(_NO_NAME, '_', one.name)}"): one
        for one in report.figures
    }
    if not made:
        reasons = "; ".join(f"{one.title}: {one.reason}" for one in report.missing)
        raise ConfigError("no figure can be drawn of these runs", details=reasons or None)
    for file, figure in made.items():
        write_figure(figure, file)
    return list(made)


def named_figure(report: Report, name: str) -> Figure:
    """Return a figure of a report. Raises ConfigError with the names that there are."""
    for figure in report.figures:
        if figure.name == name:
            return figure
    missing = {one.name: one.reason for one in report.missing}
    if name in missing:
        raise ConfigError(f"figure {name} cannot be drawn of these runs: {missing[name]}")
    known = ", ".join(one.name for one in report.figures)
    raise ConfigError(f"no figure {name!r}", hint=f"there are: {known}")
