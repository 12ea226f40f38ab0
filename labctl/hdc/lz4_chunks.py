"""LZ4 of a file transfer: each compressed chunk is one raw block, whose sizes are sent separately.

Format: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
"""

from labctl.errors import ProtocolError
from labctl.hdc.messages import Buffer
from labctl.hdc.wire import MAX_DATA_BYTES

#: ``compress_type`` of a transfer and of each of its chunks.
STORED, LZ4 = 0, 1


def compress_chunk(data: Buffer) -> bytes | None:
    """Compress ``data`` to an LZ4 block; None if that is not smaller: then send it unchanged."""
    from lz4 import block

    packed: bytes = block.compress(data, store_size=False)
    return packed if len(packed) < len(data) else None


def decompress_chunk(data: Buffer, uncompressed_bytes: int) -> bytes:
    """Decompress an LZ4 block to ``uncompressed_bytes`` bytes; maximum 4 MiB, the largest chunk.

    Raises ProtocolError.
    """
    if not data and not uncompressed_bytes:  # an empty file is also sent as type 1 with sizes 0
        return b""
    if not data:
        raise ProtocolError(
            f"a chunk announces {uncompressed_bytes} bytes and holds none",
            hint="hdc 3.1.0e loses data that compression does not shrink: do not compress with it",
        )
    if uncompressed_bytes > MAX_DATA_BYTES:
        raise ProtocolError(f"a compressed chunk announces {uncompressed_bytes} bytes, too many")
    from lz4 import block

    try:
        # At least one byte: the library treats a size of 0 as unknown.
        unpacked: bytes = block.decompress(data, uncompressed_size=max(uncompressed_bytes, 1))
    except block.LZ4BlockError as error:
        raise ProtocolError(f"a compressed chunk is damaged: {error}") from error
    if len(unpacked) != uncompressed_bytes:
        raise ProtocolError(
            f"a compressed chunk holds {len(unpacked)} bytes and announces {uncompressed_bytes}"
        )
    return unpacked
