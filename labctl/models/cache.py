"""The model files of this host: downloads by SHA-256, derived files by their inputs."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from labctl.config.models import DerivedModel
from labctl.file_hashes import cached_sha256
from labctl.folders import cache_dir
from labctl.records.trial import ModelIdentity


@dataclass(frozen=True)
class ModelFile:
    """A checked model file that can be deployed, or a file that is not here yet.

    ``estimated``: the bytes are unknown until it is made. Its identity then has a SHA-256 that
    matches no file, and facts derived from its base model.
    """

    path: Path
    identity: ModelIdentity
    estimated: bool = False


def cached(digest: str) -> Path | None:
    """Return the downloaded file with this SHA-256; None if this host does not have it."""
    for present in (cache_dir() / "models" / digest).glob("[!.]*"):
        if present.is_file() and cached_sha256(present) == digest:
            return present
    return None


@dataclass(frozen=True)
class Derivation:
    """All inputs of a derived model's bytes, except the llama-quantize that makes it."""

    base_sha256: str
    quantization: str
    imatrix_sha256: str | None

    @classmethod
    def of(cls, source: DerivedModel, base_sha256: str, root: Path) -> "Derivation":
        """Return the derivation that a recipe requests; ``root`` is the lab's folder.

        Raises ConfigError if the importance matrix is missing.
        """
        matrix = None if source.imatrix is None else cached_sha256(root / source.imatrix)
        return cls(base_sha256, source.quantization, matrix)

    @property
    def reference(self) -> str:
        """Return its name in the lock file."""
        matrix = f" with {self.imatrix_sha256}" if self.imatrix_sha256 else ""
        return f"derive:{self.quantization} of {self.base_sha256}{matrix}"

    def made_by(self, quantizer_sha256: str) -> Path:
        """Return the folder of the file that this llama-quantize makes."""
        matrix = f" {self.imatrix_sha256}" if self.imatrix_sha256 else ""
        made_from = f"{self.base_sha256} {self.quantization} {quantizer_sha256}{matrix}"
        return cache_dir() / "models" / sha256(made_from.encode()).hexdigest()

    def present(self, quantizer_sha256: str) -> Path | None:
        """Return the file that this llama-quantize made; None if this host does not have it.

        Incomplete files have other names.
        """
        return next(self.made_by(quantizer_sha256).glob("[!.]*.gguf"), None)
