"""``labctl boards probe`` as a user types it."""

import json
from pathlib import Path

import pytest
from cli_calls import LabctlIn
from labs import LabUnderTest, said
from small_disk import small_disk

from labctl.board.probe_files import latest_probe
from labctl.records.board import Execution
from labctl.records.probe import BoardProbe

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3000)]

#: Rates that others disturbed, with this share of a CPU, are taken again, so often at most.
BUSY, MOST_PROBES = 0.5, 5


def test_a_board_is_probed_kept_and_compared(
    native_lab: LabUnderTest, measuring_briefly: LabctlIn
) -> None:
    done = native_lab.run("boards", "probe", "--json")
    assert done.exit_status == 0, done.tail()
    first = BoardProbe.model_validate_json(done.stdout)
    assert first.execution is Execution.NATIVE_HOST
    assert first.memory[0].threads == 1
    assert first.memory_bytes_per_second()
    assert {rate.pattern for rate in first.storage} == {"sequential", "random", "mapping"}
    assert any("NATIVE-HOST" in note for note in first.notes)
    assert latest_probe(native_lab.root, first.board) == first
    assert latest_probe(native_lab.root, first.board, Execution.BOARD) is None

    # As if the board had been much faster.
    (path,) = native_lab.root.glob("boards/*/probe-*.json")
    document = json.loads(path.read_text())
    for rate in document["memory"]:
        rate["bytes_per_second"] *= 100
    path.write_text(json.dumps(document))
    again, _ = measuring_briefly(native_lab.root, "boards", "probe")
    assert "SLOWER: memory read, 1 thread:" in again
    assert "rates of the host" in again
    newest = latest_probe(native_lab.root, first.board)
    assert newest is not None
    assert newest.compared_with == first.taken
    assert len(list(native_lab.root.glob("boards/*/probe-*.json"))) == 2

    workdir = native_lab.board.workdir
    left = native_lab.run("shell", "vb", "--", "ls", "-A", workdir, f"{workdir}/jobs")
    assert left.exit_status == 0, left.tail()
    assert ".bench" not in left.text
    assert "probe-" not in left.text


def test_the_arithmetic_of_a_small_model(
    native_lab: LabUnderTest, native_llama: None, measuring_briefly: LabctlIn
) -> None:
    broken = native_lab.root / "models" / "broken.gguf"
    whole = (native_lab.root / "models" / "tiny.gguf").read_bytes()
    # The header is whole, and says something that no LLaMA can be.
    broken.write_bytes(whole.replace(b"output_norm.weight", b"output_mron.weight"))
    models = ("--model", str(broken.with_name("tiny.gguf")), "--model", str(broken))
    for _ in range(MOST_PROBES):
        told, _ = measuring_briefly(native_lab.root, "boards", "probe", *models, "--json")
        probe = BoardProbe.model_validate_json(told)
        (rate,) = probe.compute
        assert rate.prompt_tokens_per_second is not None
        assert rate.eval_tokens_per_second is not None
        is_cheaper = rate.prompt_tokens_per_second > rate.eval_tokens_per_second > 10
        if is_cheaper or (rate.others_share or 0.0) < BUSY:
            break
    assert is_cheaper  # a pass over many tokens is cheaper than as many passes
    assert rate.model_file == "tiny.gguf"
    assert rate.parameters > 100_000
    assert rate.bytes_per_token > 100_000
    assert (rate.build_commit or "").startswith("0c1e570-patched ")
    (note,) = [note for note in probe.notes if note.startswith("arithmetic, broken.gguf")]
    assert "llama.cpp failed: the model cannot be loaded" in note
    assert [note for note in probe.notes if "tiny.gguf: not measured" in note] == []


def test_a_model_that_is_none_is_told_before_the_board_is_asked(native_lab: LabUnderTest) -> None:
    (native_lab.root / "models" / "no.gguf").write_bytes(b"GGUF?")
    done = native_lab.run("boards", "probe", "--model", "models/no.gguf")
    assert done.exit_status == 2, said(done)
    assert "no.gguf" in said(done)


def test_an_unknown_board_is_named(native_lab: LabUnderTest) -> None:
    done = native_lab.run("boards", "probe", "nonesuch")
    assert done.exit_status == 2
    assert "nonesuch" in done.tail()


def test_too_little_space_is_a_note_and_memory_is_measured_all_the_same(
    native_lab: LabUnderTest, measuring_briefly: LabctlIn
) -> None:
    """The agent makes no file of less than 4 MiB, and takes a quarter of what is free at most."""
    workdir = Path(native_lab.board.workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    with small_disk(workdir, 8192):
        told, _ = measuring_briefly(native_lab.root, "boards", "probe", "--json")
    found = BoardProbe.model_validate_json(told)
    assert found.memory
    assert (found.storage, found.storage_file_bytes) == ((), None)
    (told,) = (note for note in found.notes if note.startswith("storage"))
    assert "too little space is free to measure storage with" in told
