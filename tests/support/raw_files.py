"""File transfers of a hand-driven host, all on channel 3."""

from raw_hdc import RawPeer

from labctl.hdc.lz4_chunks import decompress_chunk
from labctl.hdc.messages import TransferConfig, TransferPayload
from labctl.hdc.wire import Command

CLOSE = (Command.CHANNEL_CLOSE, b"\x01")


def offer(host: RawPeer, size: int, path: str, name: str = "source", **options: int) -> None:
    config = TransferConfig(file_size=size, path=path, optional_name=name, **options)
    host.send(3, Command.WAKEUP_SLAVETASK)
    host.send(3, Command.FILE_CHECK, config.encode())


def chunk(host: RawPeer, body: bytes, *, offset: int = 0, packed: bytes | None = None) -> None:
    kind = 0 if packed is None else 1
    data = body if packed is None else packed
    area = TransferPayload(offset, kind, len(data), len(body)).encode_area()
    host.send(3, Command.FILE_DATA, area + data)


def take(host: RawPeer) -> tuple[TransferConfig, bytes]:
    """Receive one file of a transfer under way."""
    _, command, data = host.receive()
    assert command == Command.FILE_CHECK, data
    config = TransferConfig.decode(data)
    host.send(3, Command.FILE_BEGIN, b"\5" + bytes(7))
    content = b""
    while True:
        _, command, data = host.receive()
        assert command == Command.FILE_DATA
        payload, body = TransferPayload.decode_packet(memoryview(data))
        assert payload.offset == len(content)
        content += (
            decompress_chunk(body, payload.uncompress_size) if payload.compress_type else body
        )
        if len(content) >= config.file_size:
            return config, content


def ask(host: RawPeer, arguments: str) -> None:
    host.send(3, Command.FILE_INIT, arguments.encode())
    assert host.receive() == (3, Command.WAKEUP_SLAVETASK, b"")


def summary(host: RawPeer) -> bytes:
    assert host.receive() == (3, Command.FILE_FINISH, b"\x01")
    host.send(3, Command.FILE_FINISH, b"\x00")
    (command, text), close = host.until_close(3)
    assert (command, close) == (Command.ECHO, CLOSE)
    return text.split(b", time")[0]
