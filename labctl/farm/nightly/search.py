"""Searches the commit of a confirmed slowdown: builds commits, and measures them in turns."""

import math
from dataclasses import dataclass

from labctl.compare.comparison import Verdict
from labctl.errors import ConfigError, HostError
from labctl.farm.nightly.bisection import PAIRS, Bisection, Places
from labctl.farm.nightly.executor import GOOD, HEAD
from labctl.farm.nightly.judge import compare_pairs
from labctl.farm.nightly.night import Night
from labctl.farm.nightly.state import RowState
from labctl.records.night import CommitSearch, NightFinding, NightVerdict, Stage
from labctl.stats.log_ratio import paired
from labctl.stats.power import MOST_REPEATS, repeats_for_difference

#: Error of the comparison that names a commit, of each of its looks, and its power.
_ERROR, _LOOKS, _POWER = 0.0025, 2, 0.99
_LEAST_PROOF = 6


def search_commits(night: Night) -> list[CommitSearch]:
    """Search for each build with a confirmed slowdown, in the time that is left.

    For each build, measures the row with the largest slowdown relative to its noise.
    """
    found = []
    for build in dict.fromkeys(row.build for row in night.record.rows):
        slow = [
            one
            for one in night.findings()
            if one.verdict is NightVerdict.SLOWER and night.state.rows[one.row].row.build == build
        ]
        if slow:
            best = max(slow, key=lambda one: _clearness(night, one))
            found.append(_search(night, build, best))
    return found


def _clearness(night: Night, one: NightFinding) -> float:
    values = night.state.rows[one.row].pairs(Stage.CONFIRM, one.variant)
    ratio = paired(values[1], values[0])
    return ratio.mean / ratio.noise if ratio.noise else math.inf


def _search(night: Night, build: str, one: NightFinding) -> CommitSearch:
    state = night.state.rows[one.row]
    try:
        between = list(night.executor.commits(build, night.state.sides(build)))
    except (ConfigError, HostError) as error:
        reason = f"no search for the commit: {error.message}"
        return CommitSearch(
            build=build, row=one.row, first=None, candidates=(), reason=reason, pairs=0
        )
    head = night.state.built[build, HEAD].source
    search = _Search(night, state, one.variant, [*between, HEAD])
    places, is_proven = search.run()
    names = [head if c == HEAD else c for c in search.commits[places.first : places.last + 1]]
    first = names[0] if is_proven and len(names) == 1 else None
    return CommitSearch(
        build=build,
        row=one.row,
        first=first,
        candidates=tuple(names),
        reason=_reason(names, search, first),
        pairs=search.bisection.pairs,
    )


def _reason(names: list[str], search: "_Search", first: str | None) -> str:
    pairs = f"{search.bisection.pairs} pairs"
    if first is not None:
        return (
            f"the first slow commit is {first}: slower than the one before it,"
            f" measured alternately ({pairs})"
        )
    ends = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    why = f" {search.why}" if search.why else ""
    return f"the first slow commit is one of {len(names)}, {ends} ({pairs}).{why}"


@dataclass
class _Search:
    night: Night
    state: RowState
    variant: str
    commits: list[str]

    def __post_init__(self) -> None:
        good, head = self.state.pairs(Stage.CONFIRM, self.variant)
        ratio = paired(head, good)
        self.bisection = Bisection(len(self.commits), ratio.mean, ratio.noise)
        self.why = ""
        self._number = 0
        #: Places that were compared with the one before them, and not slower.
        self._refuted: list[Places] = []

    def run(self) -> tuple[Places, bool]:
        """Return the places of the first slow commit, and whether they are proven."""
        search = self.bisection
        while True:
            if (likely := search.likely()) is not None:
                if likely in self._refuted:
                    self.why = "The likely one is not shown to be slower than the one before it."
                    wide = search.range()
                    return Places(max(0, wide.first - 1), wide.last), False
                if self._is_proven(likely):
                    return likely, True
                if self.why:
                    return search.range(), False
                self._refuted.append(likely)
                continue
            place = search.next()
            if place is None or search.pairs >= search.most:
                self.why = "Measurements do not agree: the slowdown may be of several commits."
                return search.range(), False
            if not self._measure(place):
                self.why = self._end()
                return search.range(), False

    def _measure(self, place: int) -> bool:
        """Measure a commit, or skip it; False if the night has no time for it."""
        commit = self.commits[place]
        if not self._is_there(commit):
            self.bisection.skip(place)
            return True
        for _ in range(PAIRS):
            number = self._number
            sides = (GOOD, commit)
            if not self.night.measure_pair(self.state, Stage.BISECT, number, sides):
                if self.state.is_broken(commit, searching=True):
                    self.bisection.skip(place)
                    return True
                return False
            self._number += 1
            good, other = self._values(Stage.BISECT, number, sides)
            self.bisection.observe(place, math.log(other / good))
        return True

    def _values(self, stage: Stage, number: int, sides: tuple[str, str]) -> list[float]:
        """Return what a pair found, in the order of its sides."""
        values = [self.state.done[stage, number, side].values for side in sides]
        return [one[self.variant] for one in values if one]

    def _is_proven(self, places: Places) -> bool:
        """Compare the first slow commit with the last one before it, in turns."""
        before = GOOD if places.first == 0 else self.commits[places.first - 1]
        sides = (before, self.commits[places.last])
        if not all(self._is_there(side) for side in sides):
            return False
        row, search = self.state.row, self.bisection
        least = repeats_for_difference(
            search.noise,
            search.slowdown,
            threshold=math.log1p(row.practical),
            error=_ERROR,
            power=_POWER,
        )
        look = max(_LEAST_PROOF, least or MOST_REPEATS)
        start = len(self._refuted) * 2 * _LOOKS * MOST_REPEATS
        earlier, later = list[float](), list[float]()
        for count in range(1, _LOOKS * look + 1):
            if not self.night.measure_pair(self.state, Stage.PROVE, start + count, sides):
                self.why = self._end()
                return False
            # The journal of a resumed search may already have further pairs.
            one, other = self._values(Stage.PROVE, start + count, sides)
            earlier.append(one)
            later.append(other)
            search.observe(places.last, math.log(other / one), places.first - 1)
            if count % look == 0:
                proof = compare_pairs(row, earlier, later, _ERROR)
                if proof.verdict is Verdict.SLOWER:
                    return True
        return False

    def _end(self) -> str:
        reason = self.night.state.searches_ended.get(self.state.row.build)
        return f"It was interrupted: {reason}." if reason else "The time ran out."

    def _is_there(self, commit: str) -> bool:
        if commit == GOOD:
            return True
        return self.night.build_side(self.state.row.build, commit) is not None
