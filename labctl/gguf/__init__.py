"""GGUF files: what they hold, whether they are whole, and their hash."""

from labctl.gguf.hashes import file_sha256
from labctl.gguf.header import GoesOn
from labctl.gguf.inspect import (
    GgufInfo,
    identify,
    identify_beginning,
    identify_file,
    inspect,
    is_gguf,
)

__all__ = [
    "GgufInfo",
    "GoesOn",
    "file_sha256",
    "identify",
    "identify_beginning",
    "identify_file",
    "inspect",
    "is_gguf",
]
