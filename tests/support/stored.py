"""Files on a board's store, as a deploy brings them."""

from collections.abc import Callable
from pathlib import Path

from labctl.board.store import BoardStore, StoredObject
from labctl.board.upload.client import ChunkedFile
from labctl.board.upload.resumable import DeliveryOptions


def publish(
    store: BoardStore,
    local: Path,
    item: StoredObject,
    *,
    executable: bool = False,
    chunked_bytes: int = DeliveryOptions.chunked_bytes,
    stall_timeout: float = 60.0,
    progress: Callable[[int], None] = lambda _sent_bytes: None,
) -> str:
    """Bring a file; a link that breaks before it brought anything is not taken up again."""
    options = DeliveryOptions(
        stall_timeout=stall_timeout,
        retry_timeout=0,
        progress=progress,
        chunked_bytes=chunked_bytes,
    )
    with ChunkedFile(local, item.sha256, item.size_bytes) as source:
        return store.receive(source, item, executable=executable, options=options)
