"""Secrets that somebody writes into devices.yaml all the same: no message repeats them."""

from pathlib import Path

import pytest

from labctl.config.lab import find_lab
from labctl.errors import ConfigError
from labctl.transport.built_in import TRANSPORTS

SWITCH = """lab: x
boards:
  rk1:
    target: rk3568
    transport: {kind: hdc, link: tcp, address: "192.168.1.20:5555"}
    switches: {reflash: {kind: http, address: "http://10.0.0.1/", authorization_env: %s}}
"""
HOOK = "lab: x\nboards: {}\nwebhooks:\n  chat: {form: slack, host: h.example.org, %s}\n"
HOST = "lab: x\nboards: {}\nwebhooks:\n  chat: {form: slack, host: '%s', address: env:HOOK}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HOOK % "address: https://h.example.org/86420SECRET", "has to be env:VARIABLE or file:"),
        (SWITCH % "Bearer 86420", "has to be the name of an environment variable"),
        (HOOK % "address: 86420", "has to be env:VARIABLE or file:PATH"),
        (HOOK % "address: env:HOOK, secret: 86420SECRET", "has to be env:VARIABLE or file:PATH"),
        ("lab: x\nboards: {}\ndatabase: 'postgresql://[86420@x/y'\n", "has to be a URL such as"),
        ("lab: x\nboards: {}\ndatabase: 'postgresql://u:[86420]@x/y'\n", "has to be a URL such"),
        ("lab: x\nboards: {}\ndatabase: 'postgresql://86420@x:99999/y'\n", "has to be a URL such"),
        ("lab: x\nboards: {}\ndatabase: 86420\n", "has to be a URL such as"),
        ("lab: x\nboards: {}\ndatabase: [86420]\n", "has to be a URL such as"),
        (HOST % "https://h.example.org/hook/86420", "not 'https://h.example.org/...'"),
        (HOST % "https://h.example.org?token=86420", "not 'https://h.example.org/...'"),
        (HOST % "https://me:8642/86420@h.example.org/a", "not 'https://...'"),
        (HOST % "h.example.org/hook/86420", "not 'h.example.org/...'"),
        (HOST % "http://h.example.org", "not 'http://h.example.org'"),
        ("lab: x\nboards: {}\nhttps://h.example.org/86420: 1\n", "'https://h.example.org/...'"),
    ],
)
def test_no_message_repeats_a_secret(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "devices.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        find_lab(tmp_path, TRANSPORTS)
    error = refused.value
    shown = f"{error.message} {error.hint} {error.details}"
    assert says in shown
    assert "86420" not in shown


@pytest.mark.parametrize("url", ["postgresql://[86420@x/y", "postgresql://u@x:99999/86420"])
def test_nor_one_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("LABCTL_DATABASE", url)
    (tmp_path / "devices.yaml").write_text("lab: x\nboards: {}\n")
    with pytest.raises(ConfigError, match="LABCTL_DATABASE has to be a URL") as refused:
        _ = find_lab(tmp_path, TRANSPORTS).database
    assert "86420" not in str(refused.value)
