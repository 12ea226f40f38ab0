"""Annotate a run: tags, and a note.

Annotations are in the run directory, so a rebuilt index has them too.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from labctl.errors import ConfigError
from labctl.files import write_atomic
from labctl.locks import locked
from labctl.records.run import Annotations
from labctl.runs.record.directory import ANNOTATIONS, RunDirectory

_TAG = re.compile(r"[^\W_][\w.:=+@/-]{0,63}")
_LONGEST_NOTE = 10_000
_LOCK_SECONDS = 10.0


def annotating(directory: RunDirectory) -> AbstractContextManager[int]:
    """Lock a run against other annotations and moves.

    Raises HostTimeout, and ConfigError for a missing run.
    """
    lock = directory.path / f"{ANNOTATIONS}.lock"
    return locked(lock, timeout=_LOCK_SECONDS, make_folder=False)


def check_tag(tag: str) -> str:
    """Return a tag. Raises ConfigError for a tag that filters or lists could not show well."""
    if not _TAG.fullmatch(tag):
        raise ConfigError(
            f"not a tag: {tag!r}",
            hint="a tag begins with a letter or digit; it has letters, digits and . : = + @ / - _,"
            " at most 64 characters",
        )
    return tag


def add_tags(directory: RunDirectory, tags: Sequence[str]) -> Annotations:
    """Add tags to a run; keep the existing ones. Raises ConfigError or HostError."""
    checked = [check_tag(tag) for tag in tags]
    return _change(directory, lambda old: tuple(dict.fromkeys((*old.tags, *checked))))


def remove_tags(directory: RunDirectory, tags: Sequence[str]) -> Annotations:
    """Remove tags from a run. Raises ConfigError for a tag that it does not have."""

    def without(old: Annotations) -> tuple[str, ...]:
        if missing := [tag for tag in tags if tag not in old.tags]:
            has = f"it has: {', '.join(old.tags)}" if old.tags else "it has no tags"
            raise ConfigError(
                f"run {directory.path.name} has no tag {', '.join(map(repr, missing))}", hint=has
            )
        return tuple(tag for tag in old.tags if tag not in tags)

    return _change(directory, without)


def set_note(directory: RunDirectory, text: str | None) -> None:
    """Replace the note of a run; None removes it. Raises ConfigError or HostError."""
    if text is not None and len(text) > _LONGEST_NOTE:
        raise ConfigError(f"the note has {len(text)} characters, and may have {_LONGEST_NOTE}")
    with annotating(directory):
        _write(directory, directory.annotations().model_copy(update={"note": text or None}))


def _change(
    directory: RunDirectory, tags_of: Callable[[Annotations], tuple[str, ...]]
) -> Annotations:
    with annotating(directory):
        old = directory.annotations()
        new = old.model_copy(update={"tags": tags_of(old)})
        _write(directory, new)
    return new


def _write(directory: RunDirectory, annotations: Annotations) -> None:
    write_atomic(directory.path / ANNOTATIONS, annotations.model_dump_json(indent=2) + "\n")
