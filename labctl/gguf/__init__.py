"""GGUF files: what they hold, whether they are whole, and their hash."""

from typing import TYPE_CHECKING

from labctl.lazy import lazy_names

if TYPE_CHECKING:
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
            "header": "GoesOn",
            "inspect": "GgufInfo identify identify_beginning identify_file is_gguf",
        },
    )

__all__ = [
    "GgufInfo",
    "GoesOn",
    "identify",
    "identify_beginning",
    "identify_file",
    "is_gguf",
]
