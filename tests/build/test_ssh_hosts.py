"""Which build host is taken, and what is made of what it says."""

import sys
from pathlib import Path

import pytest

from labctl.build.builders import ssh_builder
from labctl.build.remote.builder import _jobs, _machine, _system
from labctl.config.lab import BuildHost
from labctl.errors import ConfigError, HostError, ToolMissing


def lab(tmp_path: Path, *names: str) -> Path:
    hosts = "".join(f"  {name}: {{address: {name}.example.org}}\n" for name in names)
    (tmp_path / "devices.yaml").write_text(f"boards: {{}}\nbuild_hosts:\n{hosts or '  {}'}")
    return tmp_path


def refusal(host: str | None, root: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        ssh_builder(host, root)
    return caught.value


def test_the_only_build_host_need_not_be_named(tmp_path: Path) -> None:
    assert ssh_builder(None, lab(tmp_path, "arm")).kind == "ssh"


def test_one_of_several_has_to_be_named(tmp_path: Path) -> None:
    root = lab(tmp_path, "arm", "x86")
    error = refusal(None, root)
    assert error.message == "devices.yaml has several build hosts"
    assert error.hint == "name one: --host arm or x86"
    assert refusal("amr", root).message == "no build host 'amr' (did you mean 'arm'?)"


def test_a_lab_without_build_hosts_says_how_to_add_one(tmp_path: Path) -> None:
    error = refusal(None, lab(tmp_path))
    assert "names no build host" in error.message
    assert "build_hosts: {NAME: {address:" in (error.hint or "")


def test_without_the_ssh_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over_ssh = ("labctl.build.remote", "labctl.transport.ssh")
    for name in [name for name in sys.modules if name.startswith(over_ssh)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises(ToolMissing) as caught:
        ssh_builder("arm", lab(tmp_path, "arm"))
    assert caught.value.hint == "pip install 'labctl-boards[ssh]'"


def test_a_build_host_keeps_no_tree_by_itself() -> None:
    assert BuildHost(address="a").keep_trees is False


@pytest.mark.parametrize("said", ["", "two words", "x" * 40, "a\x1b[0m", None])
def test_what_is_no_machine_is_refused(said: str | None) -> None:
    with pytest.raises(HostError, match="does not report its machine type"):
        _machine("arm", said)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (
            'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
            "Debian GNU/Linux 12 (bookworm)",
        ),
        ("PRETTY_NAME=Alpine\n", "Alpine"),
        ('PRETTY_NAME="\x1b]0;x\x07"\n', None),
        ("NAME=x\n", None),
        (None, None),
    ],
)
def test_the_name_of_a_system(said: str | None, name: str | None) -> None:
    assert _system(said) == name


@pytest.mark.parametrize(
    ("nproc", "meminfo", "jobs"),
    [
        ("8\n", "MemTotal: 9 kB\nMemAvailable:   33554432 kB\n", 8),
        ("64\n", "MemAvailable:    4194304 kB\n", 4),
        ("2\n", "MemAvailable:     1000 kB\n", 1),
        ("many", "MemAvailable:    4194304 kB\n", None),
        ("8\n", None, None),
    ],
)
def test_jobs_follow_from_cores_and_memory(
    nproc: str, meminfo: str | None, jobs: int | None
) -> None:
    assert _jobs(nproc, meminfo) == jobs
