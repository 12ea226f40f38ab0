"""Agreement of two servers of one model: planted differences are found where they are."""

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from labctl.cli.root import run_cli
from labctl.errors import ConfigError
from labctl.evaluation.agreement import Agreement, Answers, agreements
from labctl.evaluation.contact import differences
from labctl.evaluation.directory import EvaluationDirectory
from labctl.gguf.adapter import adapted
from labctl.records.board import Execution
from labctl.records.evaluation import (
    DatasetRecord,
    EndpointRecord,
    EvaluationRecord,
    GenerationRecord,
    GradeRecord,
    PromptRecord,
    SamplingRecord,
)
from labctl.records.trial import AdapterIdentity, ModelIdentity
from labctl.runs.record.directory import RunDirectory
from labctl.stats.proportions import wilson_interval

Printed = pytest.CaptureFixture[str]
BEGAN = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
TOKENS = 8
R_HOST, R_BOARD, R_BOTH = (
    f"20261122T09{minute}00Z-{name}-abc123"
    for minute, name in ((10, "host"), (20, "board"), (30, "both"))
)


def model(key: str, digest: str = "1") -> ModelIdentity:
    return ModelIdentity(key=key, file="small.gguf", sha256=digest * 64, size_bytes=1)


def endpoint(name: str, key: str, execution: Execution | None, slots: int = 1) -> EndpointRecord:
    return EndpointRecord(
        name=name,
        api="llama-server",
        address=None if execution else "http://far:80",
        model=key,
        sha256_proven=execution is not None,
        board="vb" if execution is Execution.EMULATED else None,
        execution=execution,
        parameters={"parallel": slots},
        template_sha256="3" * 64,
    )


def record(
    name: str,
    questions: int,
    *,
    endpoints: Sequence[EndpointRecord],
    models: Sequence[ModelIdentity] = (model("small"),),
    temperature: float = 0.0,
    prompt_sha256: str = "2" * 64,
) -> EvaluationRecord:
    ids = tuple(f"q-{number}" for number in range(1, questions + 1))
    return EvaluationRecord(
        id=name,
        recipe="sums",
        recipe_resolved={"name": "sums"},
        dataset=DatasetRecord(
            name="sums", source="s.jsonl", sha256="0" * 64, size=questions, questions=ids
        ),
        models=tuple(models),
        prompts=(PromptRecord(name="plain", layout="plain", sha256=prompt_sha256),),
        endpoints=tuple(endpoints),
        sampling=SamplingRecord(temperature=temperature),
        budgets=(TOKENS,),
        graders=("boxed",),
        variants=tuple(f"{one.key}/plain" for one in models),
        planned=questions,
        labctl_version="0.1.0",
        host="lab",
        started=BEGAN,
    )


def answers(
    of: EvaluationRecord,
    *,
    differing: dict[int, int] | None = None,
    right: set[int],
    key: str = "small",
    known: bool = True,
) -> Answers:
    """Each token is two characters; question N differs from token ``differing[N]`` on."""
    generations, grades = [], []
    for number, question in enumerate(of.dataset.questions, 1):
        chance = random.Random(number)
        ids = [chance.randrange(10, 50) for _ in range(TOKENS)]
        for place in range((differing or {}).get(number, TOKENS + 1) - 1, TOKENS):
            ids[place] = 90 + place
        text = "".join(map(str, ids))
        generations.append(
            GenerationRecord(
                question=question,
                variant=f"{key}/plain",
                max_tokens=TOKENS,
                stated_budget=None,
                endpoint="e",
                text=text,
                finish="length",
                completion_tokens=TOKENS,
                token_ids=tuple(ids) if known else None,
                sent=BEGAN,
                total_ns=1,
            )
        )
        grades.append(
            GradeRecord(
                question=question,
                variant=f"{key}/plain",
                budget=TOKENS,
                grader="boxed",
                version="1",
                extracted="7",
                correct=number in right,
                complete=False,
                truncated_here=False,
                tokens=TOKENS,
            )
        )
    return Answers(of, generations, grades)


HOST = endpoint("here", "small", Execution.NATIVE_HOST)
BOARD = endpoint("there", "small", Execution.EMULATED)


def planted(differing: dict[int, int], **more: bool) -> Agreement:
    host = answers(record("a", 60, endpoints=[HOST]), right=set(range(1, 31)))
    board = answers(
        record("b", 60, endpoints=[BOARD]), differing=differing, right=set(range(3, 31)), **more
    )
    (found,) = agreements(host, board)
    return found


def test_planted_differences_are_found_where_they_are() -> None:
    found = planted({5: 1, 9: 3, 20: 4, 33: 8})
    assert (found.compared, len(found.differences), found.unpaired) == (60, 4, 0)
    assert found.identical.mean == pytest.approx(56 / 60)
    assert found.identical.low < 56 / 60 < found.identical.high
    assert found.tokens == (1, 3, 4, 8)
    assert found.median_token == 3.5
    assert {name: count for name, count in found.histogram.items() if count} == {
        "1": 1,
        "2-4": 2,
        "5-16": 1,
    }
    # 10 to 49 become 90 and more: the first digit differs, two characters a token.
    assert [one.character for one in found.differences] == [1, 5, 7, 15]
    assert found.is_emulated
    assert found.notes == ()
    (gap,) = found.gaps
    assert (gap.first, gap.second) == (0.5, pytest.approx(28 / 60))
    assert gap.interval.mean == pytest.approx(-2 / 60)
    assert gap.interval.low < -2 / 60 < gap.interval.high


def test_a_model_with_an_adapter_is_another_model() -> None:
    styled = adapted(model("small"), [adapter("4", 1.0)])
    host = answers(record("a", 60, endpoints=[HOST]), right={1})
    with pytest.raises(ConfigError, match="no common answers of one model"):
        agreements(host, answers(record("b", 60, endpoints=[BOARD], models=[styled]), right={1}))
    both = [
        answers(record(name, 60, endpoints=[BOARD], models=[styled]), right={1}) for name in "ab"
    ]
    assert agreements(*both)


def adapter(digest: str, scale: float) -> AdapterIdentity:
    return AdapterIdentity(file="x.gguf", sha256=digest * 64, tensor_bytes=1, scale=scale)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"adapters": (adapter("5", 1.0),)}, "the adapters of endpoint here have changed"),
        ({"adapters": (adapter("4", 0.5),)}, "the adapters of endpoint here have changed"),
        ({"adapters": ()}, "the adapters of endpoint here have changed"),
        ({"draft_sha256": "7" * 64}, "the draft of endpoint here has changed"),
        ({"draft_sha256": None}, "the draft of endpoint here has changed"),
    ],
)
def test_a_resumed_server_keeps_its_adapters_and_draft(change: dict[str, Any], told: str) -> None:
    was = HOST.model_copy(update={"adapters": (adapter("4", 1.0),), "draft_sha256": "6" * 64})
    now = was.model_copy(update=change)
    assert differences([was], [was]) == []
    assert differences([was], [now]) == differences([now], [was]) == [told]


def test_answers_to_a_question_within_several_limits_are_one_cluster() -> None:
    def at_limits(side: Answers, limits: Sequence[int]) -> Answers:
        # As greedy servers answer: within a smaller limit the same text, cut off.
        cut = [
            one.model_copy(update={"max_tokens": n, "text": one.text[: 2 * n], "token_ids": None})
            for one in side.generations
            for n in limits
        ]
        return Answers(side.record, cut, ())

    host = answers(record("a", 60, endpoints=[HOST]), right=set())
    differing = dict.fromkeys(range(1, 16), 1)
    board = answers(record("b", 60, endpoints=[BOARD]), differing=differing, right=set())
    (one,) = agreements(at_limits(host, [8]), at_limits(board, [8]))
    (four,) = agreements(at_limits(host, [2, 4, 6, 8]), at_limits(board, [2, 4, 6, 8]))
    assert (one.compared, four.compared) == (60, 240)
    known = wilson_interval(45, 60)
    for found in (one.identical, four.identical):
        assert (found.mean, found.low, found.high) == pytest.approx(
            (known.mean, known.low, known.high)
        )
    (same,) = agreements(at_limits(host, [2, 4, 6, 8]), at_limits(host_again(), [2, 4, 6, 8]))
    assert same.identical.low == pytest.approx(wilson_interval(60, 60).low)


def host_again() -> Answers:
    return answers(record("b", 60, endpoints=[BOARD]), right=set())


def test_without_tokens_the_characters_tell() -> None:
    found = planted({9: 3}, known=False)
    assert (found.tokens, found.median_token, found.median_character) == ((), None, 5)


def test_what_makes_a_comparison_weak_is_told() -> None:
    host = answers(record("a", 20, endpoints=[HOST], temperature=0.7), right=set())
    far = endpoint("far", "small", None, slots=4)
    other = answers(record("b", 20, endpoints=[far], temperature=0.7), right=set())
    (found,) = agreements(host, other)
    told = " ".join(found.notes)
    for word in ("fewer than 50", "temperature 0.7", "as declared", "several questions at once"):
        assert word in told
    assert not found.is_emulated


def test_what_was_not_asked_the_same_way_is_refused() -> None:
    host = answers(record("a", 3, endpoints=[HOST]), right=set())
    for other, why in (
        (record("b", 3, endpoints=[BOARD], temperature=0.5), "other sampling"),
        (record("b", 3, endpoints=[BOARD], models=[model("small", "8")]), "no common answers"),
        (record("b", 3, endpoints=[BOARD], prompt_sha256="9" * 64), "no common answers"),
        (record("a", 3, endpoints=[HOST]), "no common answers"),
    ):
        with pytest.raises(ConfigError, match=why):
            agreements(host, answers(other, right=set()))


def test_a_failure_is_no_answer() -> None:
    host = answers(record("a", 60, endpoints=[HOST]), right=set())
    board = answers(record("b", 60, endpoints=[BOARD]), right=set())
    few = Answers(board.record, board.generations[:55], board.grades[:55])
    (found,) = agreements(host, few)
    assert (found.compared, found.unpaired) == (55, 5)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, and a third one with both servers as two models of one file."""
    (tmp_path / "devices.yaml").write_text("boards: {}\n")
    monkeypatch.chdir(tmp_path)

    def keep(*sides: Answers) -> None:
        directory = EvaluationDirectory(RunDirectory(tmp_path / "runs" / sides[0].record.id))
        directory.path.mkdir(parents=True)
        directory.start(sides[0].record, None)
        for side in sides:
            for one in side.generations:
                directory.add(one)
        directory.write_grades([grade for side in sides for grade in side.grades])

    one, two = record(R_HOST, 60, endpoints=[HOST]), record(R_BOARD, 60, endpoints=[BOARD])
    keep(answers(one, right={1, 2, 3}))
    keep(answers(two, right={1, 2}, differing={5: 2, 7: 3}))
    both = record(
        R_BOTH,
        60,
        endpoints=[
            endpoint("here", "mine", Execution.NATIVE_HOST),
            endpoint("there", "boards", Execution.EMULATED),
        ],
        models=[model("mine"), model("boards")],
    )
    keep(
        answers(both, right={1}, key="mine"),
        answers(both, right={1}, key="boards", differing={2: 1}),
    )
    return tmp_path


def test_two_runs_as_a_person_sees_them(lab: Path, capsys: Printed) -> None:
    assert run_cli(["compare", R_HOST, R_BOARD]) == 0
    text = capsys.readouterr().out
    assert "EMULATED" in text
    assert "small, prompt plain: this host (native-host) and board vb (emulated)" in text
    assert "58 of 60 answers are identical: 96.7%" in text
    assert "the median first difference is token 2.5" in text
    assert "different: q-5 (token 2), q-7 (token 3)" in text
    assert "-1.7 points" in text


def test_one_run_with_both_servers_and_json(lab: Path, capsys: Printed) -> None:
    assert run_cli(["compare", R_BOTH, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["compared"], found["identical"], found["emulated"]) == (60, 59, True)
    assert found["differences"][0]["token"] == 1
    assert found["accuracy"][0]["difference"]["mean"] == 0


def test_wrong_use_is_told(lab: Path, capsys: Printed) -> None:
    assert run_cli(["compare", R_HOST]) == 2
    assert "no common answers" in capsys.readouterr().err
    assert run_cli(["compare", "r-hots", R_BOARD]) == 2
    assert "is compared with evaluations only" in capsys.readouterr().err
    assert run_cli(["compare", R_HOST, R_BOARD, "--figure", "ttft_ms"]) == 2
    assert "--figure: an evaluation does not have this option" in capsys.readouterr().err
