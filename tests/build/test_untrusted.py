"""Builds of sources that nobody vouches for, and which test tries each line of their page."""

import re
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from labctl.build.artifact import find_artifact, find_artifacts
from labctl.build.builder import build
from labctl.build.container import ContainerBuilder
from labctl.build.spec import GitSource
from labctl.build.toolchain import Needs
from labctl.build.untrusted import untrusted_source
from labctl.config.target import load_target
from labctl.errors import ConfigError, HostError

ROOT = Path(__file__).parents[2]
E2E = "e2e/test_untrusted_build.py"
RUN = "build/test_container_run.py"
#: Each line of the table "What a source may do" in docs/security.md, and the tests that try it.
TRIED = {
    "read the lab, the home folder, the environment": [f"{E2E}::test_what_a_build_cannot_do"],
    "read a CI's token in `.git/config`": [
        f"{E2E}::test_what_a_build_cannot_do",
        "build/test_source.py::test_what_git_keeps_for_itself_is_found_wherever_it_is",
    ],
    "reach a network": [
        f"{E2E}::test_what_a_build_cannot_do",
        "build/test_untrusted.py::test_an_engine_that_cannot_keep_the_network_away_is_refused",
    ],
    "change its source, the system, another build's compiler cache": [
        f"{E2E}::test_what_a_build_cannot_do",
        f"{E2E}::test_what_is_built_is_marked_and_never_started_here",
    ],
    "get rights": [f"{E2E}::test_what_a_build_cannot_do"],
    "run for ever, print for ever, fill memory": [
        f"{E2E}::test_a_program_has_limits",
        f"{E2E}::test_a_build_cannot_print_for_ever",
    ],
    "outlive labctl": [
        f"{E2E}::test_a_source_cannot_outlive_labctl",
        f"{RUN}::test_a_container_that_comes_after_the_death_of_labctl_is_removed",
    ],
    "fill the disk": [
        f"{E2E}::test_a_build_cannot_fill_the_disk",
        f"{E2E}::test_what_lies_too_deep_is_removed",
        "build/test_disk_limit.py::test_too_many_files_are_too_much",
        "build/test_disk_limit.py::test_a_hole_in_a_product_is_not_written_out",
        "build/test_disk_limit.py::test_folders_too_deep_to_be_looked_into_are_too_much",
    ],
    "run a program of this host through git": [
        f"{E2E}::test_a_repository_whose_settings_name_a_program",
        "build/test_untrusted.py::test_a_repository_is_named_by_its_commit",
    ],
    "leave a link in place of the program": [
        f"{E2E}::test_what_a_build_leaves_in_place_of_its_program",
        f"{RUN}::test_no_link_leads_out_of_the_tree",
    ],
    "blame the host, so that a CI tries again": [
        f"{E2E}::test_what_a_source_says_and_does_is_not_the_fault_of_the_host",
        f"{RUN}::test_the_host_alone_says_that_it_is_at_fault",
        "build/test_diagnose.py::test_what_a_source_prints_does_not_blame_the_host",
    ],
    "cost the host memory by a false program file": [
        "build/test_hostile_elf.py::test_what_an_untrusted_source_made_wrongly_is_its_own_fault",
        "build/test_hostile_elf.py::test_a_hole_in_place_of_the_names_of_symbols",
    ],
    "be started on this host": [f"{E2E}::test_what_is_built_is_marked_and_never_started_here"],
    "take the place of a good build": [
        f"{E2E}::test_what_is_built_is_marked_and_never_started_here",
        "build/test_untrusted.py::test_only_an_untrusted_run_takes_what_an_untrusted_source_made",
    ],
}


def test_each_line_of_the_page_is_tried() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    table = page.partition("## What a source may do")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (.+?) \| ", table, re.MULTILINE)[1:] == list(TRIED)
    for test in {test for tests in TRIED.values() for test in tests}:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text()


@pytest.mark.parametrize("ref", ["main", "v1", "0123456", "g" * 40, "0" * 39])
def test_a_repository_is_named_by_its_commit(ref: str) -> None:
    with pytest.raises(ConfigError, match="an untrusted source is named by its commit"):
        untrusted_source(GitSource(git="https://example.org/llama.cpp", ref=ref))
    known = untrusted_source(GitSource(git="https://example.org/llama.cpp", ref="0" * 40))
    assert known.identity.commit == "0" * 40


def test_an_engine_that_cannot_keep_the_network_away_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("labctl.build.container.builder.ensure_image", lambda *_: "sha256:1")
    engine = FakeEngine.install("podman", tmp_path)
    engine.reply("", status="0\n")
    engine.reply("^version", "5.4.2\n")
    engine.reply("^run .*--network none", stderr="cannot make a namespace", exit_status=126)
    builder = ContainerBuilder(None, untrusted=True)
    with pytest.raises(HostError, match=r"podman 5.4.2 cannot keep containers from the network"):
        builder.offer(load_target("rk3568", None), Needs(cmake=True))


@pytest.mark.usefixtures("own_cache")
def test_only_an_untrusted_run_takes_what_an_untrusted_source_made(tiny_lab) -> None:  # type: ignore[no-untyped-def]
    made = build(tiny_lab.request("one"))
    manifest = made.path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"untrusted": false', '"untrusted": true'))
    with pytest.raises(ConfigError, match="built from a source that nobody vouches for"):
        find_artifact("rk3568", "tiny", lab_root=tiny_lab.root)
    (taken,) = find_artifacts("rk3568", "tiny", lab_root=tiny_lab.root, untrusted=True)
    assert taken.path == made.path
