"""From what a recipe says of its models to checked GGUF files on this host."""

from labctl.models.file import ModelFile
from labctl.models.progress import Progress
from labctl.models.quantizer import FindQuantizer, Quantizer, find_quantizer
from labctl.models.resolve import resolve

__all__ = ["FindQuantizer", "ModelFile", "Progress", "Quantizer", "find_quantizer", "resolve"]
