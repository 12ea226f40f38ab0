"""``plan.yaml`` of a night: what to build, on which boards to run it, and how long."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from labctl.compare.figures import FIGURES
from labctl.config.types import Duration, Line, Name, Share
from labctl.config.yaml.document import Document, StrictModel, refuse
from labctl.suggestions import listed, unknown
from labctl.text_types import HostPath, Word

_KINDS = ("version", "folder", "git", "baseline")


class NightSource(StrictModel):
    """Source of a side: exactly one of version, folder, git and baseline."""

    version: Name | None = None
    """A version of the build spec."""
    folder: HostPath | None = None
    """A folder with the source; a relative path begins at the lab's folder."""
    git: Line | None = None
    """Address of a git repository; with `ref`."""
    ref: Line | None = None
    """Tag, branch or full commit of the repository."""
    baseline: Line | None = None
    """A baseline of the lab: uses the build of its runs."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in _KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            what = f"has {listed(given, joiner='and')}" if given else "has none"
            raise refuse(f"a source is exactly one of {listed(_KINDS)}; this one {what}")
        if (self.git is None) != (self.ref is None):
            raise refuse("git and ref are given together", "ref" if self.git is None else "git")
        return self


class NightBuild(StrictModel):
    """Pair of builds of one product that a night compares, for each target of its boards."""

    product: Word = "llama.cpp"
    """Product: the name of a build spec."""
    head: NightSource
    """Source under test."""
    good: NightSource
    """Last good source before the first night. Later nights use the source that nights found
    good."""
    history: tuple[HostPath, ...] = ()
    """Folders between the last good source and head, oldest first, for a bisection without git. A
    relative path begins at the lab's folder."""


class NightRows(StrictModel):
    """Rows: each recipe on each board."""

    recipes: Annotated[tuple[Line, ...], Field(min_length=1)]
    """Recipes: names, or files."""
    boards: Annotated[tuple[Name, ...], Field(min_length=1)] | Line
    """Boards of the lab: names, or a selector such as `target=rk3568,tag=fast`. If a board breaks,
    its rows move to another board of the plan with the same target."""
    build: Name | None = None
    """Build to compare; default: the only build."""
    priority: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Value of a verdict: rows with more value for their time are measured first."""
    required: bool = True
    """Head becomes the last good only if these rows are good."""


class NightPlan(StrictModel):
    """Plan of a night."""

    name: Name
    """Name of its nights."""
    description: Line | None = None
    """Description for people."""
    builds: Annotated[dict[Name, NightBuild], Field(min_length=1)]
    """Pairs of builds, by name."""
    rows: Annotated[tuple[NightRows, ...], Field(min_length=1)]
    """Rows to measure."""
    time: Duration
    """Time of the night for all boards in parallel, including builds."""
    find: Share = 0.05
    """Slowdown that each row must find; a row that cannot find it is not monitored."""
    figure: Line | None = None
    """Figure to compare; default: the recipe's time of a token, or its rate."""
    bisect: bool = False
    """Search for the commit of a confirmed slowdown, in the remaining time."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        for index, rows in enumerate(self.rows):
            if rows.build is None and len(self.builds) > 1:
                raise refuse(f"name the build: {listed(self.builds)}", "rows", index)
            if rows.build is not None and rows.build not in self.builds:
                raise refuse(unknown("build", rows.build, self.builds), "rows", index, "build")
        if self.figure is not None and self.figure not in FIGURES:
            raise refuse(unknown("figure", self.figure, FIGURES), "figure")
        return self

    def build_of(self, rows: NightRows) -> str:
        """Return the name of the build that rows compare."""
        return rows.build or next(iter(self.builds))


def read_plan(path: Path) -> tuple[NightPlan, Document]:
    """Return a plan and its document. Raises ConfigError with the lines of the file."""
    document = Document.read(path)
    return document.validated(NightPlan), document
