"""The keys that hosts prove themselves with."""

import base64
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_hdc import recorded

from labctl.errors import ConfigError
from labctl.hdc.keys import HostKey, Scheme, fingerprint, verify
from labctl.hdc.messages import AuthType, SessionHandShake
from labctl.hdc.wire import Command

TOKEN = b"a82096a0e619e1115c08"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> HostKey:
    return HostKey.create(tmp_path_factory.mktemp("keys") / "hdckey")


def said(sender: str, auth_type: AuthType) -> bytes:
    """The text of a handshake packet of the recorded authentication that succeeded."""
    for packet in recorded("session-3.2.0c-auth.jsonl"):
        if (packet.connection, packet.sender, packet.command) == (2, sender, Command.HANDSHAKE):
            shake = SessionHandShake.decode(packet.data)
            if shake.auth_type == auth_type:
                return shake.buf
    raise LookupError(auth_type)


def test_the_recorded_signature_is_valid_and_nothing_else_is() -> None:
    _, _, pem = said("host", AuthType.PUBLICKEY).decode().partition("\x0c")
    token, signature = said("board", AuthType.SIGNATURE), said("host", AuthType.SIGNATURE)
    assert verify(pem, token, signature, Scheme.PSS)
    assert not verify(pem, token, signature, Scheme.PKCS1)
    assert not verify(pem, token[:-1] + b"9", signature, Scheme.PSS)
    assert not verify(pem, token, signature[:-4] + b"AAAA", Scheme.PSS)


def test_keys_and_signatures_have_the_form_of_the_recorded_ones(key: HostKey) -> None:
    _, _, pem = said("host", AuthType.PUBLICKEY).decode().partition("\x0c")
    assert len(key.public_pem) == len(pem) == 625
    for scheme in Scheme:
        signature = key.sign_token(TOKEN, scheme)
        assert len(signature) == len(said("host", AuthType.SIGNATURE)) == 512
        assert verify(key.public_pem, TOKEN, signature, scheme)
        assert not verify(pem, TOKEN, signature, scheme)


def test_the_old_scheme_pads_the_token_itself(key: HostKey, tmp_path: Path) -> None:
    numbers = serialization.load_pem_public_key(key.public_pem.encode()).public_numbers()
    signature = base64.b64decode(key.sign_token(TOKEN, Scheme.PKCS1))
    opened = pow(int.from_bytes(signature), numbers.e, numbers.n).to_bytes(384)
    assert opened == b"\x00\x01" + b"\xff" * (384 - 3 - len(TOKEN)) + b"\x00" + TOKEN


def test_a_key_is_kept_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "hdckey"
    made = HostKey.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert HostKey.load(path).fingerprint == made.fingerprint == fingerprint(made.public_pem)
    assert made.fingerprint.startswith("SHA256:")
    assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----\n")


def test_the_users_hdc_key_is_preferred(
    key: HostKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "state"))
    own = HostKey.of_this_user()
    assert own.fingerprint == HostKey.of_this_user().fingerprint
    assert own.fingerprint == HostKey.load(tmp_path / "state" / "hdckey").fingerprint
    theirs = HostKey.create(tmp_path / ".harmony" / "hdckey")
    assert HostKey.of_this_user().fingerprint == theirs.fingerprint != own.fingerprint


def test_two_at_once_make_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LABCTL_STATE", str(tmp_path / "state"))
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(HostKey.of_this_user().fingerprint))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1


#: A public key of an algorithm that does not exist.
ODD_KEY = "-----BEGIN PUBLIC KEY-----\nMBIwBQYDKgMEAwkAAQEBAQEBAQE=\n-----END PUBLIC KEY-----\n"


def test_a_key_of_an_unknown_algorithm_is_none() -> None:
    with pytest.raises(ValueError, match="not a key that can be checked"):
        fingerprint(ODD_KEY)
    assert not verify(ODD_KEY, TOKEN, b"AAAA", Scheme.PSS)


def test_files_that_are_no_keys(tmp_path: Path) -> None:
    path = tmp_path / "hdckey"
    with pytest.raises(ConfigError, match="cannot read"):
        HostKey.load(path)
    path.write_text("-----BEGIN NOTHING-----\n")
    with pytest.raises(ConfigError, match="not a private key"):
        HostKey.load(path)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    curve = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(curve.private_bytes(*form, serialization.NoEncryption()))
    with pytest.raises(ConfigError, match="not an RSA key"):
        HostKey.load(path)
    path.write_bytes(curve.private_bytes(*form, serialization.BestAvailableEncryption(b"x")))
    with pytest.raises(ConfigError, match="password"):
        HostKey.load(path)


@settings(deadline=None)
@given(st.text(), st.binary(), st.binary(), st.sampled_from(Scheme))
def test_a_stranger_can_say_what_it_likes(
    pem: str, token: bytes, signature: bytes, scheme: Scheme
) -> None:
    assert not verify(pem, token, signature, scheme)
    assert not verify("-----BEGIN PUBLIC KEY-----\n" + pem, token, signature, scheme)
