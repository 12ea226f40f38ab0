from pathlib import Path

import pytest

from labctl.errors import HostError
from labctl.transport.attached import AttachedBoard, attached_boards


@pytest.fixture
def hdc_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """A program named hdc that prints what the test gives; ends with 0 whatever it says."""

    def install(text: str) -> None:
        (tmp_path / "said").write_text(text, newline="")
        program = tmp_path / "hdc"
        program.write_text(f"#!/bin/sh\ncat {tmp_path}/said\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return install


def test_no_hdc_no_boards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert attached_boards() == []


@pytest.mark.parametrize("fifth", ["", "\thdc"])
def test_lines_of_all_versions(hdc_says, fifth: str) -> None:  # type: ignore[no-untyped-def]
    hdc_says(
        "[W][2026-11-21 08:24:43] Not support stdio TTY mode\n"
        f"7001005458323933328a01ce1\t\tUSB\tConnected\tlocalhost{fifth}\n"
        f"127.0.0.1:15555\t\tTCP\tOffline\tunknown...{fifth}\n"
    )
    assert attached_boards() == [
        AttachedBoard("7001005458323933328a01ce1", "USB", "Connected", "localhost"),
        AttachedBoard("127.0.0.1:15555", "TCP", "Offline", "unknown..."),
    ]


def test_an_empty_list(hdc_says) -> None:  # type: ignore[no-untyped-def]
    hdc_says("[Empty]\r\n")
    assert attached_boards() == []


def test_a_failure_with_exit_status_0_is_seen(hdc_says) -> None:  # type: ignore[no-untyped-def]
    hdc_says("[Fail]Something is wrong\r\n")
    with pytest.raises(HostError, match="Something is wrong"):
        attached_boards()
