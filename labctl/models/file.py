"""A model on this host."""

from dataclasses import dataclass
from pathlib import Path

from labctl.records import ModelIdentity


@dataclass(frozen=True)
class ModelFile:
    """A checked model file that can be deployed, or one that is not here yet.

    Of one that is ``estimated`` the bytes are not known before it is made: its identity has a
    SHA-256 that no file has, and what follows from the model that it is made from.
    """

    path: Path
    identity: ModelIdentity
    estimated: bool = False
