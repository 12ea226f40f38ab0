"""Checked GGUF files on this host for the models of a recipe or the lab."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.models.catalogue import add_model, parse_entry
    from labctl.models.expected import are_here, are_ready, check_files, expect
    from labctl.models.file import ModelFile
    from labctl.models.lock import LockedModel, ModelsLock, ModelState, reference, state_of
    from labctl.models.quantizer import FindQuantizer, Quantizer, find_quantizer
    from labctl.models.references import find_reference, parse_reference
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "catalogue": "add_model parse_entry",
            "expected": "are_here are_ready check_files expect",
            "file": "ModelFile",
            "lock": "LockedModel ModelState ModelsLock reference state_of",
            "quantizer": "FindQuantizer Quantizer find_quantizer",
            "references": "find_reference parse_reference",
        },
    )

__all__ = [
    "FindQuantizer",
    "LockedModel",
    "ModelFile",
    "ModelState",
    "ModelsLock",
    "Quantizer",
    "add_model",
    "are_here",
    "are_ready",
    "check_files",
    "expect",
    "find_quantizer",
    "find_reference",
    "parse_entry",
    "parse_reference",
    "reference",
    "state_of",
]
