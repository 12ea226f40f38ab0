"""Many inputs that nobody should send: a value or a typed error for each, in bounded memory.

``LABCTL_SOAK_INPUTS`` is how many in all (1,000,000): 98 of 100 for the codec, the others are whole
conversations with a daemon. ``LABCTL_SOAK_SEED`` is where chance begins (0).
"""

import os
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from daemons import daemon
from raw_hdc import RECORDINGS, raw_host, recorded

from labctl.errors import CommandTimeout, LinkError, ProtocolError
from labctl.hdc.lz4_chunks import decompress_chunk
from labctl.hdc.messages import (
    FileMode,
    Heartbeat,
    SessionHandShake,
    TransferConfig,
    TransferPayload,
    decode_tlv,
)
from labctl.hdc.server_client.frames import Frames
from labctl.hdc.wire import Command, PacketDecoder, encode_packet

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

INPUTS = int(os.environ.get("LABCTL_SOAK_INPUTS", "1000000"))
SEED = int(os.environ.get("LABCTL_SOAK_SEED", "0"))
CONVERSATIONS = INPUTS // 50
#: An input may take so long on a busy machine, and grow the process by so much in all.
PATIENCE_SECONDS = 10.0
GROWTH_BYTES = 200 << 20

#: Recorded packets that are small enough to be changed in many places, and what they carry.
SAMPLES = [packet for name in RECORDINGS for packet in recorded(name) if len(packet.raw) < 2000]
#: They would run what chance has made of a command.
RUNNING = {Command.UNITY_EXECUTE, Command.UNITY_HILOG, Command.SHELL_INIT, Command.SHELL_DATA}


def spoilt(chance: random.Random, raw: bytes) -> bytes:
    """``raw`` with a few bytes changed, left out, doubled or put in."""
    data = bytearray(raw)
    for _ in range(chance.randrange(1, 5)):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0 if place < len(data):
                data[place] = chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            case 1:
                del data[place : place + chance.randrange(1, 9)]
            case 2:
                data[place:place] = chance.randbytes(chance.randrange(1, 9))
            case _:
                data[place:place] = data[place : place + chance.randrange(1, 40)]
    return bytes(data)


def packets(raw: bytes, chance: random.Random) -> None:
    decoder = PacketDecoder()
    while raw:
        size = chance.randrange(1, len(raw) + 1)
        decoder.feed(raw[:size])
        raw = raw[size:]
        assert len(decoder.room()) <= 8 << 20


def chunk(data: bytes, _: random.Random) -> None:
    payload, body = TransferPayload.decode_packet(memoryview(data))
    decompress_chunk(body, payload.uncompress_size)


def frames(data: bytes, chance: random.Random) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(len(data).to_bytes(4, "big") * chance.randrange(2) + data)
        theirs.shutdown(socket.SHUT_WR)
        reader = Frames(ours, "fuzz")
        while reader.read(5.0) is not None:
            pass


#: What reads the whole packet, and what reads its data.
READERS: list[Callable[[bytes, random.Random], object]] = [
    lambda data, _: SessionHandShake.decode(data),
    lambda data, _: TransferConfig.decode(data),
    lambda data, _: FileMode.decode(data),
    lambda data, _: Heartbeat.decode(data),
    lambda data, _: TransferPayload.decode(data, padded=True),
    lambda data, _: decode_tlv(data),
    chunk,
    frames,
]


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_whatever_comes_is_a_value_or_a_typed_error() -> None:
    chance, refused = random.Random(SEED), 0
    before, count = resident_bytes(), INPUTS - CONVERSATIONS
    for number in range(count):
        sample = chance.choice(SAMPLES)
        began = time.monotonic()
        try:
            if number % 2:
                packets(spoilt(chance, sample.raw), chance)
            else:
                chance.choice(READERS)(spoilt(chance, sample.data), chance)
        except CommandTimeout:
            raise AssertionError(f"input {number} of seed {SEED} hangs") from None
        except (ProtocolError, LinkError):
            refused += 1
        assert time.monotonic() - began < PATIENCE_SECONDS, f"input {number} of seed {SEED}"
    assert resident_bytes() - before < GROWTH_BYTES
    assert 0 < refused < count  # some were good in spite of all, or chance spoils too much
    print(f"{count} inputs, {refused} refused")


def test_whatever_a_host_says_the_daemon_lives_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(SEED)
    harmless = [packet for packet in SAMPLES if packet.command not in RUNNING]
    hello = encode_packet(0, Command.HANDSHAKE, SessionHandShake().encode())
    with daemon(tmp_path) as address:
        before = resident_bytes()
        for number in range(CONVERSATIONS):
            with raw_host(address) as peer, suppress(ConnectionError, EOFError):
                said = [hello] * (chance.random() < 0.9)
                for packet in chance.choices(harmless, k=chance.randrange(1, 8)):
                    data = spoilt(chance, packet.data) if chance.random() < 0.7 else packet.data
                    moved = data.replace(b"/data/local/tmp", b"tmp").replace(b"/", b"_")
                    said.append(encode_packet(chance.randrange(3), packet.command, moved))
                stream = b"".join(said)
                peer.socket.sendall(spoilt(chance, stream) if number % 4 == 0 else stream)
            if number % 100 == 0:
                with raw_host(address) as peer:
                    peer.shake_hands()
                    peer.send(1, Command.UNITY_EXECUTE, b"echo alive")
                    assert peer.until_close(1)[0] == (Command.ECHO_RAW, b"alive\n")
        assert resident_bytes() - before < GROWTH_BYTES
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == []
    print(f"{CONVERSATIONS} conversations")
