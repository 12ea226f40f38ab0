"""Figures made from records: charts in Vega-Lite with their data, as files or in a page."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.report.figures.catalogue import figures_of
    from labctl.report.figures.figure import Figure, Figures, Missing
    from labctl.report.figures.files import write_figure
    from labctl.report.figures.measured import MeasuredRun, measured_run
    from labctl.report.figures.theme import Theme, config
    from labctl.report.figures.words import Language
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "catalogue": "figures_of",
            "figure": "Figure Figures Missing",
            "files": "write_figure",
            "measured": "MeasuredRun measured_run",
            "theme": "Theme config",
            "words": "Language",
        },
    )

__all__ = [
    "Figure",
    "Figures",
    "Language",
    "MeasuredRun",
    "Missing",
    "Theme",
    "config",
    "figures_of",
    "measured_run",
    "write_figure",
]
