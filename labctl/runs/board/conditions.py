"""Conditions of a recipe on a board: wait until the board meets them, keep them while measuring."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import JsonValue

from labctl.board.agent import LINK_LOSSES
from labctl.board.android import STATE_SCRIPT, phone_state
from labctl.board.facts import SECTION, sections
from labctl.board.lease import Fence
from labctl.config.recipe_parts import DEFAULT_MAX_WAIT_SECONDS, Conditions
from labctl.errors import BoardNotReady, ConfigError, InfraError, LeaseLost
from labctl.records.board import PhoneState
from labctl.records.telemetry import TelemetrySample
from labctl.records.trial import ConditionRecord
from labctl.retry import retry_infra, wait_until
from labctl.runs.board.state_changes import MEMORY_CLOCKS, ROOT, TIMEOUT_SECONDS, BoardChanges
from labctl.transport.base import Transport, remote_words, require
from labctl.units import duration

#: Time (s) for reopening a lost link, to undo the changes.
_RESTORE_SECONDS = 30.0

#: Conditions that are only read, not set.
_READ = frozenset({"temperature", "load", "memory", "charging"})


def _nobody_else() -> None:
    """Do nothing: the board is certainly ours."""


@dataclass
class BoardConditions:
    """The conditions of one run on one board. Methods raise LinkError and BoardError."""

    transport: Transport
    fence: Fence
    wanted: Conditions
    note: Callable[[str], None]
    #: Interval of looks at a board that must cool: as long as the interval of looks at a job.
    look_seconds: float = 5.0
    _once: list[ConditionRecord] = field(default_factory=list)
    _seen: list[ConditionRecord] = field(default_factory=list)
    _noted: set[str] = field(default_factory=set)

    @property
    def changes(self) -> BoardChanges:
        """Changes of the board that the conditions need."""
        return BoardChanges(self.fence)

    @property
    def last(self) -> tuple[ConditionRecord, ...]:
        """The conditions as last seen, also refused ones."""
        return (*self._once, *self._seen)

    @property
    def unlike(self) -> dict[str, JsonValue]:
        """The conditions that must be equal in comparable records."""
        wanted = {
            "governor": self.wanted.governor,
            "frequency_mhz": self.wanted.frequency_mhz,
            "memory_governor": self.wanted.memory_governor,
            "cold": self.wanted.drop_caches or None,
        }
        return {name: value for name, value in wanted.items() if value is not None}

    def restore(self) -> None:
        """Undo the changes of this or an earlier controller; report changes that remain."""
        if left := self.changes.restore():
            self.note(f"note: cannot restore the board's settings: {left}")

    def leave(self, mine: Callable[[], None]) -> None:
        """Undo this run's changes, if the board is still ours; never raises InfraError."""
        if not self.wanted.changes:
            return

        def put_back() -> None:
            mine()
            self.restore()

        left = "the next run on this board restores its settings"
        try:
            retry_infra(put_back, on=LINK_LOSSES, timeout=_RESTORE_SECONDS)
        except LeaseLost as error:
            # The changes noted there now may be the other run's, during a trial.
            self.note(f"note: the board's present user will restore its settings: {error.message}")
        except InfraError as error:
            self.note(f"note: {left} ({error.message})")
        except KeyboardInterrupt:
            self.note(f"note: {left} (interrupted)")
            raise

    @contextmanager
    def held(self, mine: Callable[[], None], *, restore: bool = True) -> Iterator[None]:
        """Keep the wanted conditions during the block; always undo the changes after it.

        ``mine`` raises LeaseLost once another controller has the board. ``restore`` first undoes
        the changes of an earlier controller; not if this run had the board before, since its job
        may be running. Changes that cannot be undone now, without a link, are undone by the next
        run.
        """
        if restore:
            self.restore()
        try:
            self.hold()
            yield
        finally:
            self.leave(mine)

    def hold(self) -> None:
        """Set the conditions of the whole run. Raises ConfigError if strict and not possible."""
        found = []
        if self.wanted.governor is not None:
            found.append(
                self.changes.set_clocks("governor", self.wanted.governor, ("scaling_governor",))
            )
        if self.wanted.frequency_mhz is not None:
            limits = ("scaling_max_freq", "scaling_min_freq")
            found.append(
                self.changes.set_clocks("frequency", str(self.wanted.frequency_mhz * 1000), limits)
            )
        if (governor := self.wanted.memory_governor) is not None:
            found.append(
                self.changes.set_clocks("memory_governor", governor, ("governor",), MEMORY_CLOCKS)
            )
        found += [self.changes.stop(name) for name in self.wanted.stop_processes]
        if self.wanted.screen_off:
            found.append(self.changes.screen_off())
        self._once = found
        self._refuse(found)

    def ready(
        self, longest_s: float = math.inf, mine: Callable[[], None] = _nobody_else
    ) -> tuple[ConditionRecord, ...]:
        """Wait until a trial may start, for ``longest_s`` at most; return the board's conditions.

        Settings are checked again, and repeated if a restart undid them. ``mine`` raises if another
        controller took the board meanwhile. Raises BoardNotReady if strict and the board does not
        meet the conditions.
        """
        self.hold()
        limit = max(0.0, min(self.wanted.max_wait or DEFAULT_MAX_WAIT_SECONDS, longest_s))
        seen = self._seen
        seen.clear()
        noted = False

        def good() -> bool:
            nonlocal noted
            mine()
            seen[:] = self._look()
            bad = _missed(seen)
            if bad and limit and not noted:
                noted = True
                self.note(f"waiting up to {duration(limit * 1e9)} for the board: {bad}")
            return not bad

        if self.wanted.waits:
            wait_until(good, timeout=limit, interval=self.look_seconds)
        if self.wanted.strict and (bad := _missed(seen)):
            raise BoardNotReady(
                f"the board did not become ready within {duration(limit * 1e9)}: {bad}",
                hint="let it cool, find what keeps it busy, or relax the recipe's conditions",
            )
        if self.wanted.drop_caches:
            seen.append(self._drop_caches())
        self._refuse(seen)
        return self.last

    def _refuse(self, found: list[ConditionRecord]) -> None:
        for one in found:
            if one.ok is True:
                continue
            read = "is not met" if one.ok is False else "cannot be checked"
            what = read if one.name in _READ else "cannot be set"
            text = f"{one.name} {one.wanted} {what}: {one.had}"
            if self.wanted.strict:
                hint = "without conditions.strict the run continues, and the record says so"
                raise ConfigError(text, hint=hint)
            if text not in self._noted:
                self._noted.add(text)
                self.note(f"note: {text}")

    def _drop_caches(self) -> ConditionRecord:
        script = (
            f"{ROOT}sync; file=$root/proc/sys/vm/drop_caches\n"
            '[ -w "$file" ] && echo 3 >"$file" && echo done; :'
        )
        done = self.fence.run(script, "cannot empty the page cache").strip() == "done"
        had = "dropped" if done else "the board does not let its page cache be emptied"
        return ConditionRecord(name="caches", wanted="dropped", had=had, ok=True if done else None)

    def _look(self) -> list[ConditionRecord]:
        wanted, found, script = self.wanted, [], [f"{SECTION}{ROOT}"]
        if wanted.max_start_temperature is not None:
            # Only the agent reads thermal zones: it knows the zones that cannot be trusted.
            agent = self.fence.agent
            assert agent is not None, "a trial starts on a board that has its agent"
            script.append(f"section heat; {remote_words(agent, 'facts')} </dev/null")
        if wanted.max_load is not None:
            script.append(
                "section before; head -n 1 /proc/stat\nsleep 1\n"
                "section after; head -n 1 /proc/stat\n"
                "section cpus; grep -c '^cpu[0-9]' /proc/stat"
            )
        if wanted.min_free_memory is not None:
            script.append(
                "section memory; sed -n 's/^MemAvailable: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo"
            )
        lines = "\n".join([*script, ":"])
        answers = sections(self._run(f"{{\n{lines}\n}} 2>/dev/null", "cannot look at the board"))
        if wanted.max_start_temperature is not None:
            found.append(_heat(answers.get("heat", ""), wanted.max_start_temperature))
        if wanted.max_load is not None:
            load = _load(answers)
            ok = None if load is None else load <= wanted.max_load
            found.append(_bounded("load", f"<= {wanted.max_load:g} CPUs", load, "CPUs", ok))
        if wanted.min_free_memory is not None:
            text = answers.get("memory", "").strip()
            free = int(text) * 1024 if text.isdigit() else None
            ok = None if free is None else free >= wanted.min_free_memory
            found.append(_bounded("memory", f">= {wanted.min_free_memory} B", free, "B", ok))
        if wanted.charging is not None:
            found.append(_charging(self.phone_state(), wanted=wanted.charging))
        return found

    def phone_state(self) -> PhoneState | None:
        """Return battery and screen of a phone; None if the board does not report them."""
        script = f"{SECTION}{ROOT}{STATE_SCRIPT}:"
        return phone_state(sections(self._run(script, "cannot read the battery")))

    def _run(self, script: str, what: str) -> str:
        return require(self.transport.run(script, timeout=TIMEOUT_SECONDS), what).text


def _missed(seen: Iterable[ConditionRecord]) -> str:
    """Describe the conditions that are not met, in one line; empty if all are met."""
    return "; ".join(
        f"{one.name}: {one.had}, wanted {one.wanted}" for one in seen if one.ok is False
    )


def _heat(facts: str, most: float) -> ConditionRecord:
    """Judge the temperature in the agent's facts: unknown if a zone is not trusted."""
    try:
        sample = TelemetrySample.of_json(facts, extra="ignore")
    except ValueError:
        sample = TelemetrySample(mono_ns=0)
    heat = None if sample.hottest_mc is None else sample.hottest_mc / 1000
    ok = None if heat is None else heat <= most
    found = _bounded("temperature", f"<= {most:g} °C", heat, "°C", ok)
    if not sample.untrusted:
        return found
    had = f"{found.had}; not trusted: {sample.untrusted}"
    return found.model_copy(update={"had": had, "ok": None if ok else ok})


def _bounded(
    name: str, wanted: str, value: float | None, unit: str, ok: bool | None
) -> ConditionRecord:
    had = "the board does not report it" if value is None else f"{value:g} {unit}"
    return ConditionRecord(name=name, wanted=wanted, had=had, ok=ok)


def _charging(state: PhoneState | None, *, wanted: bool) -> ConditionRecord:
    known = None if state is None else state.charging
    ok = None if known is None else known == wanted
    had = "the board does not report it" if state is None or known is None else state.text
    word = "yes" if wanted else "no"
    return ConditionRecord(name="charging", wanted=word, had=had, ok=ok)


def _load(answers: Mapping[str, str]) -> float | None:
    """CPUs busy between two looks at /proc/stat (proc(5): idle and iowait are not)."""
    try:
        before, after = (
            [int(word) for word in answers[name].split()[1:9]] for name in ("before", "after")
        )
        cpus = int(answers["cpus"])
    except (KeyError, ValueError):
        return None
    grown = [now - was for now, was in zip(after, before, strict=True)]
    total = sum(grown)
    return None if total <= 0 else round((total - grown[3] - grown[4]) / total * cpus, 2)
