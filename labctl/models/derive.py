"""Models made from others by llama-quantize, stored under their inputs."""

import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from labctl.config.models import DerivedModel
from labctl.errors import ConfigError, HostError, LabctlError, ProgramFailed, tells_full_disk
from labctl.files import has_inodes, publish, scratch
from labctl.folders import cache_dir
from labctl.gguf.inspect import inspect
from labctl.locks import locked
from labctl.models.cache import Derivation, ModelFile
from labctl.models.quantizer import FindQuantizer
from labctl.process import Completed, run_streaming
from labctl.progress import Progress
from labctl.records.trial import ModelIdentity

#: An 8B model takes hours with an emulator.
_QUANTIZE_SECONDS = 12 * 3600.0
_FULL_PRECISION = ("F32", "F16", "BF16", "F64")
_TENSOR = re.compile(r"\[ {0,4}(\d{1,5})/ {0,4}(\d{1,5})\]")


def requantized_from(base: ModelIdentity) -> str | None:
    """Return the quantization whose loss a model derived from ``base`` inherits."""
    if base.requantized_from is not None:
        return f"{base.requantized_from} via {base.quantization}"
    return None if base.quantization in _FULL_PRECISION else base.quantization


def derive(
    key: str,
    source: DerivedModel,
    base: ModelFile,
    find_quantizer: FindQuantizer,
    progress: Progress,
    *,
    root: Path,
) -> tuple[Path, str]:
    """Return the derived GGUF file, from the cache or made now, and the SHA-256 of its maker.

    Raises ConfigError (a quantized source that the recipe does not allow, no llama-quantize),
    HostError (disk), ProgramFailed (llama-quantize refuses or makes something else).
    """
    origin = base.identity
    refuse_requantizing(key, source, origin)
    derivation = Derivation.of(source, origin.sha256, root)
    quantizer = find_quantizer()
    folder = derivation.made_by(quantizer.sha256)
    with locked(folder.with_name(f".{folder.name}.lock"), timeout=_QUANTIZE_SECONDS):
        if present := derivation.present(quantizer.sha256):
            return present, quantizer.sha256
        target = folder / derived_name(origin, source)
        with scratch(folder, ".quantize-") as made_in:
            made = made_in / target.name
            options: list[str | PathLike[str]] = []
            if source.requantize:
                options.append("--allow-requantize")
            if source.imatrix is not None:
                options += ["--imatrix", root / source.imatrix]
            argv = [*quantizer.argv, *options, base.path, made, source.quantization]
            _quantize(key, source, argv, made, progress)
            publish(made, target)
    return target, quantizer.sha256


class QuantizedAlready(ConfigError):
    """The base of a derived model is quantized, and the recipe does not allow that."""


def refuse_requantizing(key: str, source: DerivedModel, base: ModelIdentity) -> None:
    """Raise ConfigError if a model may not be made from another one."""
    if base.quantization is None:
        raise ConfigError(f"the model {base.key!r} is not GGUF: nothing can be made from it")
    if base.quantization not in _FULL_PRECISION and not source.requantize:
        raise QuantizedAlready(
            f"the model {key!r} would be made from {source.source!r}, which is quantized already"
            f" ({base.quantization}), and would lose quality twice",
            hint="derive from a model in F16 or F32, or set `requantize: true`",
        )


def derived_name(base: ModelIdentity, source: DerivedModel) -> str:
    """Return a name such as ``SmolLM2-135M.Q8_0.gguf`` for ``SmolLM2-135M.Q4_1.gguf``."""
    stem = base.file.removesuffix(".gguf")
    stem = stem.removesuffix(base.quantization or "").rstrip(".-_") or stem
    return f"{stem}.{source.quantization}.gguf"


def _quantize(
    key: str,
    source: DerivedModel,
    argv: Sequence[str | PathLike[str]],
    made: Path,
    progress: Progress,
) -> None:
    step = f"quantize {made.name}"

    def on_line(line: str) -> None:
        if match := _TENSOR.search(line):
            progress(step, int(match[1]), int(match[2]))

    progress(step, 0, None)
    finished = run_streaming(argv, timeout=_QUANTIZE_SECONDS, on_line=on_line)
    if finished.exit_status != 0:
        raise _failed(key, source, finished)
    try:
        info = inspect(made)
    except ConfigError as error:
        raise ProgramFailed(
            f"llama-quantize made no usable file for the model {key!r}: {error.message}",
            details=finished.tail(),
        ) from error
    if info.quantization != source.quantization:
        raise ProgramFailed(
            f"llama-quantize made {info.quantization} instead of {source.quantization}"
            f" for the model {key!r}",
            details=finished.tail(),
        )


def _failed(key: str, source: DerivedModel, finished: Completed) -> LabctlError:
    output = finished.tail()
    if tells_full_disk(output):
        of_files = "" if has_inodes(cache_dir()) else ": no inodes are left"
        return HostError(f"no space on this host for the model {key!r}{of_files}", details=output)
    return ProgramFailed(
        f"llama-quantize could not make {source.quantization} for the model {key!r}"
        f" (status {finished.exit_status})",
        details=output,
    )
