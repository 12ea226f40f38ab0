"""A model on this host."""

from dataclasses import dataclass
from pathlib import Path

from labctl.records import ModelIdentity


@dataclass(frozen=True)
class ModelFile:
    """A checked GGUF file that can be deployed."""

    path: Path
    identity: ModelIdentity
