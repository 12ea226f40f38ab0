"""The tiny model of :mod:`labctl.gguf.tiny`, by the name that tests use."""

from labctl.gguf.tiny import (
    HEAD_WIDTH,
    HEADS,
    LAYERS,
    VOCABULARY,
    WIDTH,
    vocabulary,
    write_tiny_gguf,
)

__all__ = [
    "HEADS",
    "HEAD_WIDTH",
    "LAYERS",
    "VOCABULARY",
    "WIDTH",
    "vocabulary",
    "write_tiny_gguf",
]
