"""GGUF files: what they hold, whether they are whole, and their hash."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
    from labctl.gguf.hashes import file_sha256, is_hash_remembered
    from labctl.gguf.header import GoesOn
    from labctl.gguf.inspect import (
        GgufInfo,
        identify,
        identify_beginning,
        identify_file,
        is_gguf,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "hashes": "file_sha256 is_hash_remembered",
            "header": "GoesOn",
            "inspect": "GgufInfo identify identify_beginning identify_file is_gguf",
        },
    )

__all__ = [
    "GgufInfo",
    "GoesOn",
    "file_sha256",
    "identify",
    "identify_beginning",
    "identify_file",
    "is_gguf",
    "is_hash_remembered",
]
