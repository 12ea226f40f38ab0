"""``labctl compare``: what a person sees."""

import json
import random
import shutil
from pathlib import Path

import pytest
from records_made import BEGAN, model, plan, planned_run, run, timing, trial

from labctl.cli.root import run_cli
from labctl.config.lab import find_lab
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.records.run import Origin, RunEnd
from labctl.records.trial import TrialBound, TrialState
from labctl.runs.record.directory import RunDirectory
from labctl.state.state import lab_state
from labctl.transport.built_in import TRANSPORTS

MODELS = {"q2_k": model(), "q8_0": model("q8_0", "Q8_0")}
RECIPE = {"name": "q2", "matrix": {"model": ["q2_k", "q8_0"]}}


def made(lab: Path, name: str, q2: float = 100, *, sigma: float = 0.005, **changes: object) -> str:
    """A run of five interleaved rounds of two models, the second of which takes 300 ms a token."""
    chance = random.Random(name)
    run_id = f"20261120T{int(name, 16) % 10**6:06d}Z-q2-{name}"
    facts = changes.pop("facts", None)
    variants = changes.pop("variants", tuple(MODELS))
    assert isinstance(variants, tuple)
    moved_before = changes.pop("moved_before", 99)
    assert isinstance(moved_before, int)
    transport = changes.pop("transport", None)
    record = run(
        run_id,
        variants=variants,
        models=tuple(MODELS.values()),
        recipe_resolved=RECIPE,
        transport=transport,
        **({"facts": facts} if facts else {}),
    )
    directory = planned_run(lab / "runs", record, plan())
    number = 0
    for repeat in range(1, 6):
        for variant in variants:
            number += 1
            ms = q2 if variant == "q2_k" else 300.0
            directory.add(
                trial(
                    number,
                    slug=f"{variant}-r{repeat}",
                    repeat=repeat,
                    variant=variant,
                    model=MODELS.get(variant, MODELS["q8_0"]),
                    timing=timing(
                        [ms * chance.gauss(1, sigma)],
                        ttft_ns=round(2e9 * chance.gauss(1, sigma)),
                        prompt_eval_ns=round(5e8 * chance.gauss(1, sigma)),
                    ),
                    **{
                        "comparability": {"threads": 4},
                        "board": "rk1" if repeat < moved_before else "rk2",
                        **changes,
                    },
                )
            )
    directory.finish(RunEnd(state="finished", finished=BEGAN))
    return run_id


@pytest.fixture
def lab(empty_lab: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "80")
    return empty_lab


@pytest.fixture
def labctl(lab: Path, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def call(*words: str, status: int = 0) -> str:
        assert run_cli(["--lab", str(lab), "compare", *words]) == status
        out, err = capsys.readouterr()
        return out if status == 0 else out + err

    return call


def verdicts(text: str) -> dict[str, str]:
    """Verdict by side and figure, from the JSON."""
    return {f"{row['right']} {row['figure']}": row["verdict"] for row in json.loads(text)["rows"]}


def test_of_one_run_its_variants_are_compared_with_the_first(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a")
    lines = labctl().splitlines()
    assert lines[0].startswith("q8_0 compared with q2_k: per token takes 3.0")
    assert lines[0].endswith(" times as long, TTFT same, prompt rate same.")
    assert lines[1] == "differ in model: q2_k.gguf / q8_0.gguf (as the recipe varies it)"
    assert lines[2].split() == [
        *("compared", "figure", "reference", "value", "ratio", "interval", "verdict")
    ]
    assert lines[3].split()[:3] == ["q8_0", "per", "token"]
    assert lines[3].split()[-1] == "slower"
    assert all(len(line) <= 80 for line in lines[2:-1])


def test_runs_are_compared_variant_by_variant_and_by_their_history(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    first, second = made(lab, "00000a"), made(lab, "00000b", q2=110)
    suspected = labctl("00000a", "00000b")
    assert "00000b:q2_k compared with 00000a:q2_k: per token perhaps takes 1" in suspected
    assert "0 of 5 comparable runs" in suspected
    for name in ("000001", "000002", "000003", "000004", "000005"):
        made(lab, name)
    made(lab, "000006", comparability={"threads": 2})  # unlike: tells nothing
    found = verdicts(labctl(first, second, "--json"))
    assert found["00000b:q2_k tpot_ms"] == "slower"
    assert found["00000b:q8_0 tpot_ms"] == "same"
    assert len(found) == 6
    assert verdicts(labctl("00000b:q2_k", "00000a/q2_k", "--json"))["00000a:q2_k tpot_ms"] == (
        "faster"
    )


def test_a_baseline_of_several_runs_tells_how_runs_differ(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    runs = [made(lab, f"00000{n}") for n in range(1, 6)]
    made(lab, "00000b", q2=110)
    baselines = lab_state(find_lab(lab, TRANSPORTS)).baselines
    baselines.set("release", runs)
    baselines.set("release-q2", runs[:2], variant="q2_k")
    found = json.loads(labctl("release", "00000b", "--json"))["rows"][0]
    assert (found["left"], found["left_repeats"], found["basis"]) == (
        "release:q2_k",
        25,
        "sessions",
    )
    assert found["verdict"] == "slower"
    assert verdicts(labctl("release-q2", "00000b", "--json")).keys() == {
        f"00000b:q2_k {figure}" for figure in ("tpot_ms", "ttft_ms", "prefill_tokens_per_second")
    }


def test_unlike_runs_need_an_allow_which_the_heading_tells(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a")
    made(lab, "00000b", comparability={"threads": 2})
    text = labctl("00000a", "00000b")
    assert "00000b:q2_k and 00000a:q2_k are unlike: they are not compared." in text
    assert "threads: 4 / 2 (--allow threads compares them)" in text
    text = labctl("00000a", "00000b", "--allow", "threads")
    assert text.splitlines()[2] == "differ in threads: 4 / 2 (allowed)"
    text = labctl("00000a:q2_k", "00000a:q8_0")  # of one run: as its recipe varies them
    assert "times as long" in text
    assert "unlike" in labctl("00000a:q2_k", "00000b:q8_0")


def test_emulated_is_in_plain_sight(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    facts = BoardFacts(execution=Execution.EMULATED, machine="aarch64", kernel="5.10", boot_id="b1")
    made(lab, "00000a", facts=facts, execution=Execution.EMULATED)
    made(lab, "00000b")
    assert labctl("00000a").splitlines()[1].startswith("not measured on a board (EMULATED)")
    text = labctl("00000a", "00000b", "--allow", "execution")
    assert "never compared" in text


def test_the_exit_status_is_zero_unless_a_verdict_is_to_fail(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a")
    labctl("--fail-on", "cant-tell", "--fail-on", "unlike")
    assert "slower" in labctl("--fail-on", "slower", status=1)
    made(lab, "00000b", comparability={"threads": 2})
    labctl("00000a", "00000b", "--fail-on", "unlike", "--json", status=1)


def test_thresholds_are_those_of_the_recipe_or_of_the_command(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a")
    limits = json.loads(labctl("--json"))["thresholds"]
    assert (limits["same_within"], limits["practical"]) == (0.03, 0.02)
    changed = labctl("--json", "--same-within", "400%", status=2)
    assert "below 100%" in changed
    limits = json.loads(labctl("--json", "--same-within", "5%", "--practical", "0.01"))[
        "thresholds"
    ]
    assert (limits["same_within"], limits["practical"]) == (0.05, 0.01)


def test_figures_are_chosen_by_the_names_of_gates(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a")
    found = verdicts(labctl("--figure", "tokens_per_second", "--json"))
    assert found == {"q8_0 tokens_per_second": "slower"}
    assert "no figure 'tpot' (did you mean 'tpot_ms'?)" in labctl("--figure", "tpot", status=2)


def test_markdown_is_for_a_page_and_escapes_names(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a")
    lines = labctl("--markdown").splitlines()
    assert lines[0].startswith("**q8_0 compared with q2_k")
    assert "| compared | figure | reference | value | ratio | interval | verdict |" in lines
    assert "either --json or --markdown" in labctl("--markdown", "--json", status=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing",), "no run 'nothing'"),
        (("00000a:q3",), "no variant 'q3' in 00000a; known: q2_k, q8_0"),
        (("00000a:q2_k",), "nothing to compare it with"),
    ],
)
def test_a_name_that_is_none_is_said(lab: Path, labctl, words, said) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a")
    assert said in labctl(*words, status=2)


def test_a_reason_of_several_figures_is_given_once(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a")
    other = planned_run(
        lab / "runs", run("20261121T223000Z-q2-00000b", variants=tuple(MODELS)), plan()
    )
    other.add(trial(1, variant="q2_k", state=TrialState.FAILED, timing=None))
    lines = labctl("00000a:q2_k", "00000b:q2_k").splitlines()
    said = "no good repeat of 00000b:q2_k has a value"
    assert [line for line in lines if said in line] == [
        f"00000b:q2_k per token, TTFT, prompt rate: can't tell: {said}"
    ]


def test_no_common_variant_names_both_lists(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a")
    other = planned_run(lab / "runs", run("20261121T223000Z-q2-00000b", variants=("x",)), plan())
    other.add(trial(1, variant="x", slug="x"))
    other.add(trial(2, variant="y", slug="y"))
    text = labctl("00000a", "00000b", status=2)
    assert "no variant of the same name" in text
    assert "of q2_k, q8_0" in text
    assert "of x, y" in text


def test_variants_of_one_side_alone_are_named(lab: Path, labctl, capsys) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a")
    made(lab, "00000b", variants=(*MODELS, "more"))
    assert run_cli(["--lab", str(lab), "compare", "00000a", "00000b"]) == 0
    assert "missing on the other side: 00000b:more" in capsys.readouterr().err


def test_a_run_is_not_compared_with_a_baseline_that_has_it(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    runs = [made(lab, f"00000{n}") for n in range(3)]
    lab_state(find_lab(lab, TRANSPORTS)).baselines.set("rel", runs)
    text = labctl("rel", "000001", status=2)
    assert f"rel and 000001 both contain run {runs[1]}" in text


def test_a_run_is_not_compared_with_itself(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    run = made(lab, "00000a")
    lab_state(find_lab(lab, TRANSPORTS)).baselines.set("rel", [run])
    for words in (("rel", "latest"), ("latest", "00000a"), ("00000a:q2_k", "rel:q2_k")):
        assert f"both contain run {run}" in labctl(*words, status=2)
    assert "slower" in labctl("rel:q2_k", "00000a:q8_0")


def test_names_of_others_are_no_pictures(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a", board=":warning:")
    made(lab, "00000b", board=":a:")
    assert ":warning: / :a:" in labctl("00000a", "00000b")


def test_a_run_that_moved_names_its_boards(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a")
    assert "moved between boards" not in labctl()
    made(lab, "00000b", moved_before=4)
    assert "runs moved between boards: rk1, rk2" in labctl()


def test_a_run_without_results_is_a_row(lab: Path, labctl) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a", state=TrialState.FAILED)
    text = labctl("--fail-on", "cant-tell", status=1)
    assert "no good repeat of q2_k and of q8_0 has a value" in text


def test_a_copy_of_a_run_has_its_own_name_and_is_not_compared_with_its_original(  # type: ignore[no-untyped-def]
    lab: Path, labctl, capsys
) -> None:
    run_id = made(lab, "00000a")
    copy = lab / "runs" / run_id.replace("00000a", "0000cc")
    shutil.copytree(lab / "runs" / run_id, copy)
    origin = Origin(kind="bundle", file="their.labctl.zip", sha256="0" * 64, imported=BEGAN)
    RunDirectory(copy).mark_imported(origin)
    for words in (("00000a", "0000cc"), ("0000cc", "00000a", "--allow", "lab")):
        assert "are copies of one run" in labctl(*words, status=2)
    other = made(lab, "00000b")
    assert "0000cc:q2_k and 00000b:q2_k are unlike" in labctl(other, "0000cc")
    assert run_cli(["--lab", str(lab), "report", "00000a", "0000cc"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"run {run_id} " in text
    assert f"run {copy.name}, IMPORTED from their.labctl.zip: not measured by this lab" in text


def test_a_run_that_is_not_at_its_end_is_told(lab: Path, labctl, capsys) -> None:  # type: ignore[no-untyped-def]
    made(lab, "00000a")
    other = RunDirectory(lab / "runs" / made(lab, "00000b"))
    (other.path / "end.json").unlink()
    for words in (("00000a", "00000b"), ("00000a:q2_k", "00000b:q2_k")):
        run_cli(["--lab", str(lab), "compare", *words])
        err = capsys.readouterr().err
        assert err == f"run {other.path.name} is interrupted: its trials so far are compared\n"
    with other.held():
        run_cli(["--lab", str(lab), "compare", "00000b"])
    assert f"run {other.path.name} is running: its trials" in capsys.readouterr().err


def test_boards_differ_in_facts_and_ceilings(lab: Path, labctl, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    facts = BoardFacts(execution=Execution.BOARD, machine="aarch64", kernel="5.10", boot_id="b1")
    fleet = {
        "00000a": ("rk1", "hdc", "Cortex-A55", 4, 0.6, 8e9),
        "00000b": ("phone", "adb", "Cortex-X3", 8, 0.9, 60e9),
    }
    for name, (board, transport, core, count, share, rate) in fleet.items():
        cores = (CpuFacts(implementer="0x41", part="0x1", count=count, model=core),)
        bound = TrialBound(
            kind="dram",
            share=share,
            shares={"dram": share, "compute": 0.2},
            bytes_per_token=1,
            bytes_per_second=1.0,
            ceiling_bytes_per_second=rate,
            measured=True,
            sentence="",
        )
        made(
            lab,
            name,
            facts=facts.model_copy(update={"cpus": cores, "memory_total_bytes": count << 30}),
            transport=transport,
            board=board,
            bound=bound,
        )
    text = labctl("00000a", "00000b")
    assert "board: rk1 / phone (--allow board compares them)" in text
    text = labctl("00000a", "00000b", "--allow", "board")
    for part in (
        "board: rk1 / phone (allowed)",
        "cpu: 4 x Cortex-A55 / 8 x Cortex-X3 (of the boards)",
        "memory: 4.29 GB / 8.59 GB (of the boards)",
        "ceiling: dram 8.00 GB/s / dram 60.0 GB/s (of the boards)",
        "transport: hdc / adb (of the boards)",
    ):
        assert part in text
    markdown = labctl("00000a", "00000b", "--allow", "board", "--markdown")
    assert "| of the ceiling |" in markdown
    assert "| DRAM 60% / DRAM 90% |" in markdown
    row = json.loads(labctl("00000a", "00000b", "--allow", "board", "--json"))["rows"][0]
    assert (row["left_share"][0], round(row["left_share"][1], 3)) == ("dram", 0.6)
    assert (row["right_share"][0], round(row["right_share"][1], 3)) == ("dram", 0.9)
    assert "of the ceiling" not in labctl("00000a", "--markdown")  # variants of one board
    page = tmp_path / "page.html"
    runs = [str(lab / "runs" / one.name) for one in sorted((lab / "runs").glob("2*"))]
    assert run_cli(["report", *runs, "--language", "zh", "-o", str(page)]) == 0
    shown = page.read_text()
    for part in (
        "各板的差异",
        "cpu: 4 x Cortex-A55 / 8 x Cortex-X3",
        "内存 60% / 内存 90%",
        "占上限",
    ):
        assert part in shown
