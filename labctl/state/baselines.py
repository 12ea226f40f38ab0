"""Baselines: names for runs that later runs are compared with."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from labctl.database.questions import select
from labctl.errors import ConfigError
from labctl.state import sql
from labctl.state.events import this_user
from labctl.state.tables import read, short_line
from labctl.suggestions import unknown
from labctl.text_types import LAST_GOOD, LONGEST_LINE

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from labctl.state.sql import StateDatabase

_NAME = re.compile(r"[^\W_][\w.+-]{0,62}")
#: Names of runs that already have a meaning in commands and gates.
_TAKEN = ("latest", LAST_GOOD)
_NAMES = ("name", "variant", "note", "set_by", "set_at")
_RUN_NAMES = ("baseline", "run", "position")
_UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True)
class Baseline:
    """A name, and the runs with this name."""

    name: str
    #: Ids, in the order in which they were given.
    runs: tuple[str, ...]
    #: The variant of these runs that counts; None: each variant is compared with the same variant.
    variant: str | None
    note: str | None
    #: ``USER@HOST``
    set_by: str
    #: In UTC.
    set_at: datetime
    #: Why its rows cannot be read; None if they can.
    damaged: str | None = None

    def document(self) -> dict[str, object]:
        """Return the baseline as JSON."""
        return {**asdict(self), "set_at": self.set_at.isoformat()}


class Baselines:
    """All baselines of a lab."""

    def __init__(self, state: "StateDatabase"):
        self._state = state

    def list(self) -> list[Baseline]:
        """Return all baselines, by name. Raises HostError, ConfigError as the database does."""
        runs: dict[str, tuple[str, ...]] = {}
        wrong: dict[str, str] = {}
        question = select(_RUN_NAMES, "baseline_run", order="baseline, position")
        for row in self._state.ask(question, {}):
            values, why = read("baseline_run", _RUN_NAMES, row)
            name = str(values["baseline"])
            runs[name] = (*runs.get(name, ()), values["run"])
            wrong |= {name: f"a run of it is {why}"} if why else {}
        found = []
        for row in self._state.ask(select(_NAMES, "baseline"), {}):
            values, why = read("baseline", _NAMES, row)
            name = values["name"]
            why = why or wrong.get(name)
            found.append(Baseline(**values, runs=runs.pop(name, ()), damaged=why))
        # The baseline's own row is missing, but the runs are still needed.
        for name, these in runs.items():
            why = wrong.get(name) or "damaged: its row is missing; `labctl baseline remove` ends it"
            found.append(Baseline(name, these, None, None, "", _UNKNOWN_TIME, why))
        return sorted(found, key=lambda one: one.name)

    def get(self, name: str) -> Baseline | None:
        """Return a baseline by its name; None if the name is unknown."""
        return next((one for one in self.list() if one.name == name), None)

    def find(self, name: str) -> Baseline:
        """Return a baseline. Raises ConfigError if damaged, or unknown (with the nearest name)."""
        known = {one.name: one for one in self.list()}
        if name not in known:
            raise _unknown(name, list(known))
        if why := known[name].damaged:
            raise ConfigError(
                f"baseline {name} cannot be used: {why}",
                hint=f"`labctl baseline set {name} RUN...` replaces it",
            )
        return known[name]

    def set(
        self,
        name: str,
        runs: Sequence[str],
        *,
        variant: str | None = None,
        note: str | None = None,
    ) -> Baseline:
        """Give these runs a name; they replace the earlier runs with that name.

        The ids are not checked. Raises ConfigError for an invalid name, HostError.
        """
        if note is not None and len(note) > LONGEST_LINE:
            raise ConfigError(f"a note of a baseline has at most {LONGEST_LINE} characters")
        new = Baseline(
            check_name(name),
            tuple(dict.fromkeys(runs)),
            variant,
            short_line(note),
            this_user(),
            datetime.now(UTC),
        )
        row = {
            "name": new.name,
            "variant": new.variant,
            "note": new.note,
            "set_by": new.set_by,
            "set_at": new.set_at.isoformat(),
        }
        places = [
            {"baseline": name, "position": position, "run": run}
            for position, run in enumerate(new.runs)
        ]

        def change(connection: "Connection") -> None:
            _delete(connection, name)
            sql.insert(connection, "baseline", row)
            sql.insert(connection, "baseline_run", *places)

        self._state.change(change)
        return new

    def remove(self, name: str) -> None:
        """Remove a baseline; its runs stay. Raises ConfigError for an unknown name, HostError."""
        known = [one.name for one in self.list()]
        if name not in known:
            raise _unknown(name, known)

        def change(connection: "Connection") -> None:
            _delete(connection, name)

        self._state.change(change)


def check_name(name: str) -> str:
    """Return the name. Raises ConfigError if commands would not accept it as a baseline."""
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise ConfigError(
            f"not a name for a baseline: {name!r}",
            hint="it begins with a letter or digit and has letters, digits and . + - _, at most 63;"
            " 'latest' and 'last-good' are taken",
        )
    return name


def _unknown(name: str, known: Sequence[str]) -> ConfigError:
    hint = "`labctl baseline list` shows them" if known else "make one: `labctl baseline set`"
    return ConfigError(unknown("baseline", name, known), hint=hint)


def _delete(connection: "Connection", name: str) -> None:
    sql.delete(connection, "baseline", {"name": name})
    sql.delete(connection, "baseline_run", {"baseline": name})
