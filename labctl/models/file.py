"""A model on this host."""

from dataclasses import dataclass
from pathlib import Path

from labctl.records import ModelIdentity


@dataclass(frozen=True)
class ModelFile:
    """A checked model file that can be deployed, or one that is not here yet.

    If ``estimated``, the bytes are unknown until it is made: its identity has a SHA-256 that no
    file has, and facts derived from its base model.
    """

    path: Path
    identity: ModelIdentity
    estimated: bool = False
