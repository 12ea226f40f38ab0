"""Search for the commit of a confirmed slowdown: build commits, and measure them in turns.

A search ends in one of three ways: a commit is *named*, by a comparison with the commit before it;
it is *one of these*; or *none*, since head is not slower any more.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from labctl.compare.comparison import Verdict
from labctl.compare.words import percent
from labctl.errors import ConfigError, HostError
from labctl.farm.nightly.bisection import PAIRS, Bisection, Places
from labctl.farm.nightly.executor import GOOD, HEAD
from labctl.farm.nightly.judge import compare_pairs, excludes
from labctl.farm.nightly.night import Night
from labctl.farm.nightly.standing import Alarm, Key
from labctl.farm.nightly.state import RowState
from labctl.records.night import CommitSearch, NightEntry, NightFinding, NightVerdict, Stage
from labctl.stats.hypothesis_tests import least_differences
from labctl.stats.log_ratio import paired
from labctl.stats.power import MOST_REPEATS, repeats_for_difference

#: Error of each look of the comparison that names a commit, and its power.
_ERROR, _LOOKS, _POWER = 0.0025, 2, 0.99
#: Maximum commits of a range that are listed one by one.
_LISTED = 4
#: Each comparison numbers its pairs from a multiple of this.
_EACH = 2 * _LOOKS * MOST_REPEATS


def search_commits(night: Night, alarms: Mapping[Key, Alarm] | None = None) -> list[CommitSearch]:
    """Search for each build with a confirmed slowdown, in the remaining time.

    For each build, measures the row with the largest slowdown relative to its noise. A slowdown
    that an earlier night searched (``alarms``) is searched again only if it has grown by the
    slowdown that the row must find.
    """
    found = []
    for build in dict.fromkeys(row.build for row in night.record.rows):
        slow = [
            one
            for one in night.findings()
            if one.verdict is NightVerdict.SLOWER and night.state.rows[one.row].row.build == build
        ]
        known, left = _known_searches(night, build, slow, alarms or {})
        found += known
        if (own := night.state.searches.get(build)) is None and left:
            own = _search(night, build, max(left, key=lambda one: _clearness(night, one)))
            night.state.add(NightEntry(event="searched", at=night.executor.now(), search=own))
        found += [own] if own else []
    return found


def _known_searches(
    night: Night, build: str, slow: Sequence[NightFinding], alarms: Mapping[Key, Alarm]
) -> tuple[list[CommitSearch], Sequence[NightFinding]]:
    """Return the searches of earlier nights that still hold, and the rows that need another one.

    A search counts for all rows of its build that were slow then.
    """
    own = [(one, alarm) for one in slow if (alarm := alarms.get((one.row, one.variant)))]
    if not any(alarm.search for _, alarm in own):
        return [], slow
    try:
        commits = [*night.executor.commits(build, night.state.sides(build))]
    except (ConfigError, HostError):
        return [], slow  # the search has the reason
    commits.append(night.state.built[build, HEAD].source)
    known, grown = dict[str, CommitSearch](), set[Key]()
    for one, alarm in own:
        ratio = 0.0 if one.ratio is None else one.ratio
        if alarm.search is None or not set(alarm.search.candidates) <= set(commits):
            continue
        then = alarm.search.ratio or 1.0
        if ratio >= then * (1 + night.state.rows[one.row].row.find):
            grown.add((one.row, one.variant))
            continue
        known.setdefault(alarm.search.night or "", alarm.search)
    if not known:
        return [], slow
    keys = {(one.row, one.variant) for one, _ in own} - grown
    return [*known.values()], [one for one in slow if (one.row, one.variant) not in keys]


def _clearness(night: Night, one: NightFinding) -> float:
    values = night.state.rows[one.row].pairs(Stage.CONFIRM, one.variant)
    ratio = paired(values[1], values[0])
    return ratio.mean / ratio.noise if ratio.noise else math.inf


def _search(night: Night, build: str, one: NightFinding) -> CommitSearch:
    state = night.state.rows[one.row]
    head = night.state.built[build, HEAD].source
    accepted = state.accepted(one.variant)
    base = accepted.source if accepted else GOOD
    try:
        between = list(night.executor.commits(build, night.state.sides(build)))
        if base != GOOD:
            between = _after(between, base, is_built=night.build_side(build, base) is not None)
    except (ConfigError, HostError) as error:
        reason = f"no search for the commit: {error.message}"
        return CommitSearch(
            build=build,
            row=one.row,
            variant=one.variant,
            outcome="unknown",
            first=None,
            candidates=(),
            reason=reason,
            pairs=0,
            complete=False,
            ratio=one.ratio,
        )
    search = _Search(night, state, one.variant, [*between, HEAD], base)
    places = search.run()
    left = range(places.first, places.last + 1)
    names = [
        head if search.commits[place] == HEAD else search.commits[place]
        for place in [one for one in left if one not in search.bisection.cleared] or left
    ]
    pairs = f"{search.bisection.pairs} pairs"
    first = names[0] if search.outcome == "named" else None
    is_shared = search.bisection.all_cleared and search.outcome == "range"
    if first is not None:
        reason = (
            f"the first slow commit is {first}: slower than the one before it,"
            f" measured alternately ({pairs})"
        )
    elif search.outcome == "none":
        reason = f"no commit is named: {search.why} ({pairs} in the search): the alarm ends"
    elif is_shared and len(names) > 1:
        reason = f"no commit of {len(names)}, {_ends(names)}, is named: {search.why} ({pairs})"
    else:
        ends = names[0] if len(names) == 1 else f"{len(names)}, {_ends(names)},"
        reason = f"the first slow commit is one of {ends} because {search.why} ({pairs})"
        if len(names) == 1:
            reason = f"{ends} may be the first slow commit, but {search.why} ({pairs})"
    return CommitSearch(
        build=build,
        row=one.row,
        variant=one.variant,
        outcome=search.outcome,
        first=first,
        candidates=tuple(names) if search.outcome != "none" else (),
        reason=reason,
        pairs=search.bisection.pairs,
        complete=search.is_complete,
        ratio=one.ratio,
    )


def _ends(names: Sequence[str]) -> str:
    """Return the first and the last of many commits, or all of a few."""
    if len(names) > _LISTED:
        return f"from {names[0]} to {names[-1]}"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _after(commits: Sequence[str], base: str, *, is_built: bool) -> list[str]:
    """Return the commits after an accepted commit. Raises ConfigError if it is not in the list."""
    if base not in commits or not is_built:
        why = "cannot be built" if base in commits else "is not before head"
        raise ConfigError(f"the slowdown was accepted at {base}, which {why}")
    return list(commits[commits.index(base) + 1 :])


@dataclass
class _Search:
    """Search in ``commits``, oldest first, with head as the last; ``base`` is before them."""

    night: Night
    state: RowState
    variant: str
    commits: list[str]
    base: str
    #: As in :class:`CommitSearch`.
    outcome: Literal["named", "range", "none"] = "range"
    is_complete: bool = True
    #: Why no commit is named.
    why: str = ""
    _number: int = 0
    _compared: int = 0
    #: Likely places whose comparison with the place before decided nothing.
    _open: list[Places] = field(default_factory=list)

    def __post_init__(self) -> None:
        good, head = self.state.pairs(Stage.CONFIRM, self.variant)
        ratio = paired(head, good)
        self.bisection = Bisection(len(self.commits), ratio.mean, ratio.noise)

    def run(self) -> Places:
        """Return the places of the first slow commit; the outcome tells their meaning."""
        search = self.bisection
        while not search.all_cleared:
            likely = search.likely()
            if likely is not None and likely not in self._open:
                if self._is_proven(likely):
                    self._name(likely)
                    return likely
                if self.why:
                    return self._wide()
                continue
            place = search.next()
            if likely is not None or place is None or search.pairs >= search.most:
                return self._disagreement()
            if not self._measure(place):
                return self._wide()
        return self._disagreement()

    def _name(self, places: Places) -> None:
        """Note that a place, of one or more commits, is slower than the place before it."""
        lacking = places.last - places.first
        if lacking:
            do = "does" if lacking == 1 else "do"
            self.why = f"{lacking} of them {do} not build or run"
        else:
            self.outcome = "named"

    def _disagreement(self) -> Places:
        """Compare head once more, because measurements name no commit."""
        changes = self._compare(self.base, HEAD)
        if changes is None:
            return self._wide()
        find = percent(self.state.row.find)
        if changes is Verdict.SAME:
            self.outcome = "none"
            beside = "the last good" if self.base == GOOD else f"{self.base}, where it was accepted"
            self.why = f"head is no longer slower by {find} or more than {beside}"
        elif changes is not Verdict.SLOWER:
            self.why = "measurements do not agree, and new pairs do not confirm that head is slower"
        elif self.bisection.all_cleared:
            self.why = (
                f"none is slower by {find} or more than the one before it:"
                " the slowdown is of several commits"
            )
        else:
            self.why = "measurements do not agree: the slowdown may be of several commits"
        return self._wide()

    def _wide(self) -> Places:
        """Return the range; add the commit before to a single commit that is not proven.

        If each commit is cleared, return all commits.
        """
        if self.bisection.all_cleared:
            return Places(0, self.bisection.count - 1)
        found = self.bisection.range()
        if found.first == found.last and self.bisection.count > 1:
            return Places(max(0, found.first - 1), max(found.last, 1))
        return found

    def _measure(self, place: int) -> bool:
        """Measure a commit, or skip it; False if the search ends here."""
        sides = (self.base, self.commits[place])
        if self._skips(sides, self._is_there):
            return not self.why
        for _ in range(PAIRS):
            number = self._number
            if not self.night.measure_pair(self.state, Stage.BISECT, number, sides):
                self._end(sides)
                return not self.why
            self._number += 1
            good, other = self._values(Stage.BISECT, number, sides)
            self.bisection.observe(place, math.log(other / good))
        return True

    def _values(self, stage: Stage, number: int, sides: tuple[str, str]) -> list[float]:
        """Return the values of a pair, in the order of its sides."""
        values = [self.state.done[stage, number, side].values for side in sides]
        return [one[self.variant] for one in values if one]

    def _is_proven(self, places: Places) -> bool:
        """Compare the first slow commit with the commit before it; clear it if it is not slower."""
        before = self.base if places.first == 0 else self.commits[places.first - 1]
        found = self._compare(before, self.commits[places.last], places)
        if found is Verdict.SAME:
            self.bisection.clear(places)
        elif found is Verdict.CANT_TELL:
            self._open.append(places)
        return found is Verdict.SLOWER

    def _compare(self, before: str, after: str, places: Places | None = None) -> Verdict | None:
        """Compare two commits in turns: SLOWER, or SAME if a slowdown to find is excluded.

        Notes the result for ``places``. None if a commit is skipped, or the search ends here.
        """
        sides = (before, after)
        if self._skips(sides, self._is_there):
            return None
        if self._is_same(sides):
            return Verdict.SAME
        row, search = self.state.row, self.bisection
        least = repeats_for_difference(
            search.noise,
            search.slowdown,
            threshold=math.log1p(row.practical),
            error=_ERROR,
            power=_POWER,
        )
        look = max(least_differences(_ERROR), least or MOST_REPEATS)
        start, self._compared = self._compared * _EACH, self._compared + 1
        earlier, later = list[float](), list[float]()
        for count in range(1, _LOOKS * look + 1):
            if not self.night.measure_pair(self.state, Stage.PROVE, start + count, sides):
                self._end(sides)
                return None
            # The journal of a resumed search may already have further pairs.
            one, other = self._values(Stage.PROVE, start + count, sides)
            earlier.append(one)
            later.append(other)
            if places is not None:
                search.observe(places.last, math.log(other / one), places.first - 1)
            else:
                search.pairs += 1
            if count % look == 0:
                verdict = compare_pairs(row, earlier, later, _ERROR).verdict
                if verdict is Verdict.SLOWER:
                    return verdict
                if excludes(earlier, later, min(row.find, math.expm1(search.slowdown)), _ERROR):
                    return Verdict.SAME
        return Verdict.CANT_TELL

    def _end(self, sides: tuple[str, str]) -> None:
        """Note why a pair was not measured: a side fails, or the search ends."""
        if self._skips(sides, self._runs):
            return
        reason = self.night.state.searches_ended.get(self.state.row.build)
        self.why = f"it was interrupted: {reason}" if reason else "the time ran out"
        self.is_complete = False

    def _skips(self, sides: tuple[str, str], is_good: Callable[[str], bool]) -> bool:
        """Skip commits that do not build or run; the search cannot continue without its ends."""
        bad = [side for side in sides if not is_good(side)]
        for side in bad:
            if side not in (self.base, HEAD):
                self.bisection.skip(self.commits.index(side))
                continue
            name = {GOOD: "the last good", HEAD: "head"}.get(side, side)
            self.why = f"{name} fails again and again by now"
            self.is_complete = False
        return bool(bad)

    def _is_same(self, sides: tuple[str, str]) -> bool:
        """Return True if two commits give the same program, byte for byte."""
        built = self.night.state.built
        one, other = (built[self.state.row.build, side].program for side in sides)
        return one == other != ""

    def _runs(self, commit: str) -> bool:
        return not self.state.is_broken(commit, searching=True)

    def _is_there(self, commit: str) -> bool:
        if commit == GOOD:
            return True
        return self.night.build_side(self.state.row.build, commit) is not None
