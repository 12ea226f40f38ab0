import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_hdc import RECORDINGS, recorded

from labctl.errors import ProtocolError
from labctl.hdc.messages import (
    AuthType,
    FileMode,
    Heartbeat,
    Message,
    SessionHandShake,
    TransferConfig,
    TransferPayload,
    decode_tlv,
    encode_tlv,
)
from labctl.hdc.wire import (
    MAX_DATA_BYTES,
    Command,
    PacketDecoder,
    encode_packet,
    encode_prefix,
)

MESSAGES: dict[int, type[Message]] = {
    Command.HANDSHAKE: SessionHandShake,
    Command.FILE_CHECK: TransferConfig,
    Command.FILE_MODE: FileMode,
    Command.DIR_MODE: FileMode,
    Command.HEARTBEAT: Heartbeat,
}


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_packets_are_encoded_to_the_same_bytes(name: str) -> None:
    packets = recorded(name)
    assert len(packets) > 20
    for packet in packets:
        assert encode_packet(packet.channel, packet.command, packet.data) == packet.raw


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_structures_are_encoded_to_the_same_bytes(name: str) -> None:
    checked = 0
    for packet in recorded(name):
        if packet.command in MESSAGES and packet.data:
            message = MESSAGES[packet.command].decode(packet.data)
            assert message.encode() == packet.data
            checked += 1
        elif packet.command == Command.FILE_DATA:
            payload, body = TransferPayload.decode_packet(memoryview(packet.data))
            assert payload.encode_area() + body == packet.data
            checked += 1
    assert checked


def test_the_recorded_handshake_says_what_it_says() -> None:
    host, board = recorded("session-3.2.0c-basic.jsonl")[:2]
    hello = SessionHandShake.decode(host.data)
    assert hello.banner == "OHOS HDC"
    assert hello.auth_type == AuthType.NONE
    assert hello.connect_key == "127.0.0.1:15600"
    assert decode_tlv(hello.buf) == {
        "authtype": "1",
        "supportfeatures": "Ver: 3.2.0c,TCP,linux,heartbeat",
    }
    answer = SessionHandShake.decode(board.data)
    assert answer.auth_type == AuthType.OK
    assert answer.version == hello.version
    entries = decode_tlv(answer.buf)
    assert entries["devname"] == "vm"
    assert entries["daemonauthstatus"] == "SUCCESS"
    assert encode_tlv(entries) == answer.buf


def test_the_area_of_an_empty_file_ends_in_a_value_not_in_padding() -> None:
    area = bytes.fromhex("0800100018002000").ljust(64, b"\0")
    payload, body = TransferPayload.decode_packet(memoryview(area))
    assert payload == TransferPayload(0, 0, 0, 0)
    assert bytes(body) == b""


def test_fields_that_are_left_out_or_unknown_are_no_matter() -> None:
    assert SessionHandShake.decode(b"") == SessionHandShake()
    known = Heartbeat(7).encode()
    assert Heartbeat.decode(known + b"\x78\x05" + b"\x7a\x03abc") == Heartbeat(7)


PACKETS = st.lists(
    st.tuples(
        st.integers(0, 2**32 - 1),
        st.sampled_from(list(Command)).map(int),
        st.binary(max_size=300) | st.binary(min_size=1, max_size=1).map(lambda b: b * 70_000),
    ),
    max_size=8,
)


@given(PACKETS, st.data())
def test_any_splitting_gives_the_same_packets(
    packets: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(encode_packet(*packet) for packet in packets)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted))
    decoder = PacketDecoder()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.feed(stream[start:end])
    assert found == packets


def test_byte_by_byte_and_a_packet_larger_than_the_buffer() -> None:
    small = [(1, 2, b"\x01"), (2**32 - 1, 10, b"x" * 100), (0, 5000, b"")]
    stream = b"".join(encode_packet(*packet) for packet in small)
    decoder = PacketDecoder()
    found = [packet for byte in stream for packet in decoder.feed(bytes([byte]))]
    large = (3, 3003, bytes(range(256)) * (MAX_DATA_BYTES // 256))
    assert found + decoder.feed(encode_packet(*large)) == [*small, large]


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "where an hdc packet starts"),
        (b"\0\0\0\x2cOHOS HDC", "where an hdc packet starts"),
        (b"X", "where an hdc packet starts"),
        (b"HW\0\0\x02" + bytes(6), "unknown hdc packet version 2"),
        (b"HW\0\0\x01\x00\x08\x7f\xff\xff\xff", "too many"),
        (b"HW\0\0\x01\xff\xff\x00\x00\x00\x00", "too many"),
        (b"HW\0\0\x01\x00\x08\0\0\0\0" + bytes.fromhex("0800100118002008"), "check code 8"),
        (b"HW\0\0\x01\x00\x02\0\0\0\0\x08\xff", "truncated"),
        (b"HW\0\0\x01\x00\x02\0\0\0\0\x0a\x7f", "longer than the message"),
        (b"HW\0\0\x01\x00\x02\0\0\0\0\x0a\x00", "wrong type"),
        (b"HW\0\0\x01\x00\x02\0\0\0\0\x0d\x00", "unknown wire type 5"),
        (b"HW\0\0\x01\x00\x02\0\0\0\0\x00\x00", "without a number"),
    ],
)
def test_what_is_no_hdc_packet_is_refused(stream: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        PacketDecoder().feed(stream)


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waited_for_but_never_crashes(garbage: bytes) -> None:
    for stream in (garbage, encode_prefix(1, 3001, 5)[:11] + garbage):
        try:
            PacketDecoder().feed(stream)
        except ProtocolError:
            continue


@given(st.binary(max_size=120))
def test_garbage_in_structures_is_refused_or_read(garbage: bytes) -> None:
    for message in {*MESSAGES.values(), TransferPayload}:
        try:
            message.decode(garbage)
        except ProtocolError:
            continue


@given(
    st.builds(
        TransferConfig,
        file_size=st.integers(0, 2**64 - 1),
        mtime_ns=st.integers(0, 2**64 - 1),
        path=st.text(),
        optional_name=st.binary(max_size=30).map(lambda raw: raw.decode(errors="surrogateescape")),
        hold_timestamp=st.integers(0, 1),
    )
)
def test_structures_survive_the_round_trip(config: TransferConfig) -> None:
    try:
        raw = config.encode()
    except UnicodeEncodeError:  # a lone surrogate that stands for no byte
        return
    assert TransferConfig.decode(raw) == config


@given(
    st.dictionaries(
        st.from_regex(r"\A[a-z0-9]{1,16}\Z"), st.text(st.characters(codec="utf-8")), max_size=6
    )
)
def test_tlv_survives_the_round_trip(entries: dict[str, str]) -> None:
    assert decode_tlv(encode_tlv(entries)) == entries


@pytest.mark.parametrize("text", [b"vm", b"a" * 31, b"authtype".ljust(16) + b"9".ljust(16) + b"1"])
def test_what_is_no_tlv_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_tlv(text)


def test_a_chunk_that_lies_about_its_size_is_refused() -> None:
    area = TransferPayload(0, 0, 5, 5).encode_area()
    with pytest.raises(ProtocolError, match="announces 5 bytes and holds 3"):
        TransferPayload.decode_packet(memoryview(area + b"abc"))


def test_numbers_outside_64_bits_cannot_be_sent() -> None:
    for value in (-1, 2**64):
        with pytest.raises(ValueError, match="unsigned 64-bit"):
            TransferConfig(file_size=value).encode()


def test_a_message_with_fields_without_end_is_not_read_to_its_end() -> None:
    began = time.process_time()
    with pytest.raises(ProtocolError, match="too many fields"):
        SessionHandShake.decode(b"\x10\x01" * (1 << 21))
    assert time.process_time() - began < 0.5


def test_a_quiet_link_has_a_small_buffer_and_a_stream_a_large_one() -> None:
    decoder = PacketDecoder()
    small = len(decoder.room())
    assert small <= 128 << 10
    whole = encode_packet(
        1, Command.ECHO_RAW, bytes(small - len(encode_packet(1, Command.ECHO_RAW)))
    )
    assert decoder.feed(whole[:100]) == []
    assert len(decoder.room()) == small - 100
    (packet,) = decoder.feed(whole[100:])
    assert packet == (1, Command.ECHO_RAW, whole[small - len(packet[2]) :])
    assert len(decoder.room()) >= 1 << 20
