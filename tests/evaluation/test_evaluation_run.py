"""Evaluations of scripted servers: exact accuracies, and what goes wrong on the way."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evaluations import boxed, evaluate, no_board, number_of, recipe_of, recipe_text, sums_lab
from scripted_answers import Answer, Asked
from scripted_endpoint import scripted_endpoint

from labctl.cli.evaluation_view import show_evaluation
from labctl.cli.root import run_cli
from labctl.errors import Blame, ConfigError, ExitStatus, HostError
from labctl.evaluation.directory import EvaluationDirectory
from labctl.evaluation.results import table_of
from labctl.evaluation.run import resume_evaluation
from labctl.records.evaluation import GradeRecord
from labctl.records.events import Answers, AnyEvent, End, Evaluation
from labctl.runs.observer import Observer
from labctl.runs.record.directory import RunDirectory

#: Busy, and to be asked again at once.
BUSY: Any = {"status": 503, "headers": {"Retry-After": "0"}}


def right(asked: Asked) -> str:
    return boxed(2 * number_of(asked))


def half_right(asked: Asked) -> str:
    """Right for even numbers, and the more words the larger the number."""
    n = number_of(asked)
    return boxed(2 * n if n % 2 == 0 else 0, words=n)


def test_accuracies_are_exact_and_interleaved(tmp_path: Path) -> None:
    lab, events = sums_lab(tmp_path / "lab", 8), list[AnyEvent]()
    with scripted_endpoint(right) as good, scripted_endpoint(half_right) as half:
        recipe = recipe_of(recipe_text({"good": [good.address], "half": [half.address]}))
        outcome = evaluate(lab, recipe, events)
    found = {cell.variant: (cell.right, cell.total) for cell in outcome.table.cells}
    assert found == {"good/plain": (8, 8), "half/plain": (4, 8)}
    assert outcome.exit_status == ExitStatus.OK
    assert outcome.end.questions == 8
    assert isinstance(next(e for e in events if e.event != "note"), Evaluation)
    last = [event for event in events if isinstance(event, Answers)][-1]
    assert (last.done, last.planned) == (16, 16)
    assert isinstance(events[-1], End)


def test_a_recipe_that_a_server_cannot_serve_is_not_said_to_continue(tmp_path: Path) -> None:
    """`unlimited` of an API that ends after 16 tokens: the same recipe fails again."""
    lab, events = sums_lab(tmp_path / "lab", 2), list[AnyEvent]()
    with scripted_endpoint(right) as server:
        server.missing.add("/tokenize")
        text = recipe_text({"m": [server.address]}, api="openai-completions", budgets=["unlimited"])
        with pytest.raises(ConfigError, match="`unlimited` is not possible here"):
            evaluate(lab, recipe_of(text), events)
    notes = [event.text for event in events if event.event == "note"]
    assert not any("to continue: labctl resume" in note for note in notes)
    assert any("start a new evaluation" in note for note in notes)


def test_a_server_whose_engine_is_dead_is_named_before_any_question(tmp_path: Path) -> None:
    """VLLM goes on to list its models then, but its ``/health`` says 503."""
    lab = sums_lab(tmp_path / "lab", 2)
    with scripted_endpoint(lambda _: Answer(status=500, message="EngineCore died")) as server:
        server.health = 503
        with pytest.raises(HostError, match=r"EngineCore died .*/health: status 503"):
            evaluate(lab, recipe_of(recipe_text({"m": [server.address]})))
        assert len(server.answered) == 1


@pytest.mark.parametrize("api", ["openai-completions", "openai-chat"])
@pytest.mark.parametrize("refuses", [False, True])
def test_a_server_that_answers_is_asked_whatever_its_health_says(
    tmp_path: Path, api: str, refuses: bool
) -> None:
    """A gateway in front of it answers 503 for each path that it does not know."""

    def script(asked: Asked) -> Answer | str:
        if asked.body.get("max_tokens") == 1:
            return Answer(status=400, message="too short") if refuses else " Hi"
        return right(asked)

    lab, events = sums_lab(tmp_path / "lab", 2), list[AnyEvent]()
    prompts = {"plain": {"layout": "chat" if api == "openai-chat" else "plain"}}
    with scripted_endpoint(script) as server:
        server.health = 503
        text = recipe_text({"m": [server.address]}, api=api, prompts=prompts, budgets=[60])
        outcome = evaluate(lab, recipe_of(text), events)
    assert outcome.end.accuracies[0].correct == 2
    notes = [event.text for event in events if event.event == "note"]
    assert any("note: endpoint m-0 answers, although it says http://" in one for one in notes)
    assert any("answers, although it says" in one for one in outcome.directory.record().plan_notes)


def test_one_generation_serves_all_budgets(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 12)
    with scripted_endpoint(half_right) as server:
        recipe = recipe_of(recipe_text({"half": [server.address]}, budgets=[5, 9, "unlimited"]))
        outcome = evaluate(lab, recipe)
    # The box of N has N words before it, and an end token after it.
    found = {cell.budget: cell.right for cell in outcome.table.cells}
    assert found == {5: 2, 9: 4, None: 6}
    answers = [one for one in outcome.directory.generations() if one.check is None]
    assert {one.max_tokens for one in answers} == {None}
    (check,) = outcome.end.truncation
    assert (check.questions, check.disagreements, check.cutting) == (12, 0, True)
    assert len(server.answered) == 24


@pytest.mark.parametrize(
    ("api", "unasked"),
    [
        ("openai-completions", {"logprobs": 5}),
        ("openai-chat", {"logprobs": True, "top_logprobs": 5}),
        ("llama-server", {"n_probs": 5}),
    ],
)
@pytest.mark.parametrize("budgets", [[60], [5, 9, 60]])
def test_probabilities_that_nobody_asked_for_are_no_answer(
    tmp_path: Path, api: str, unasked: dict[str, Any], budgets: list[int]
) -> None:
    def likely(asked: Asked) -> Answer:
        return Answer(half_right(asked), top={"A": -0.1, " word": -2.5})

    lab = sums_lab(tmp_path / "lab", 12)
    prompts = {"plain": {"layout": "chat" if api == "openai-chat" else "plain"}}
    with scripted_endpoint(likely) as server:
        server.unasked = unasked
        models = {"half": [server.address]}
        text = recipe_text(models, api=api, budgets=budgets, prompts=prompts)
        outcome = evaluate(lab, recipe_of(text))
    found = {cell.budget: cell.right for cell in outcome.table.cells}
    assert found == {budget: {5: 2, 9: 4, 60: 6}[budget] for budget in budgets}
    answers = [one for one in outcome.directory.generations() if one.max_tokens == 60]
    assert len(answers) >= 12
    assert all(one.letter_logprobs is None and "boxed" in one.text for one in answers)


def test_a_stated_budget_is_asked_for_each_time(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 3)
    prompts = {"told": {"layout": "plain", "state_budget": True}}
    with scripted_endpoint(half_right) as server:
        text = recipe_text({"half": [server.address]}, prompts=prompts, budgets=[20, 40])
        outcome = evaluate(lab, recipe_of(text))
    stated = [one.stated_budget for one in outcome.directory.generations()]
    assert sorted(filter(None, stated)) == [10, 10, 10, 20, 20, 20]
    assert outcome.end.truncation == ()


def test_a_busy_server_is_asked_again(tmp_path: Path) -> None:
    def busy_first(asked: Asked) -> Answer | str:
        if asked.attempt == 1:
            return Answer(status=429, headers={"Retry-After": "0"})
        return right(asked)

    lab, events = sums_lab(tmp_path / "lab", 4), list[AnyEvent]()
    with scripted_endpoint(busy_first) as server:
        outcome = evaluate(lab, recipe_of(recipe_text({"m": [server.address]})), events)
    assert [one.attempts for one in outcome.directory.generations()] == [2] * 4
    assert [event for event in events if isinstance(event, Answers)][-1].retries == 4
    assert outcome.end.accuracies[0].correct == 4


def test_the_questions_of_a_dead_endpoint_go_to_the_others(tmp_path: Path) -> None:
    def dies(asked: Asked) -> Answer | str:
        return right(asked) if number_of(asked) < 4 else Answer(**BUSY)

    lab, events = sums_lab(tmp_path / "lab", 20), list[AnyEvent]()
    with (
        scripted_endpoint(dies) as dying,
        scripted_endpoint(lambda asked: Answer(right(asked), first_s=0.05)) as other,
    ):
        dying.missing |= {"/props", "/v1/models", "/health"}
        text = recipe_text({"m": [dying.address, other.address]})
        outcome = evaluate(lab, recipe_of(text), events)
    assert outcome.end.accuracies[0].correct == 20
    assert outcome.exit_status == ExitStatus.OK
    notes = [event.text for event in events if event.event == "note"]
    assert any("endpoint m-0 is lost" in text and "go to m-1" in text for text in notes)


def test_without_an_endpoint_the_run_ends_and_can_go_on(tmp_path: Path) -> None:
    alive = False

    def mortal(asked: Asked) -> Answer | str:
        return right(asked) if alive or number_of(asked) < 4 else Answer(**BUSY)

    lab = sums_lab(tmp_path / "lab", 6)
    with scripted_endpoint(mortal) as server:
        recipe = recipe_of(recipe_text({"m": [server.address]}))
        with pytest.raises(HostError, match="endpoint m-0"):
            evaluate(lab, recipe)
        (run,) = lab.root.glob("runs/2*")
        directory = EvaluationDirectory(RunDirectory(run))
        end = directory.end()
        assert end is not None
        assert end.state == "failed"
        assert end.failure is not None
        assert end.failure.blame is Blame.INFRA
        alive = True
        outcome = resume_evaluation(directory.run, lab, no_board, Observer())
    assert outcome.end.accuracies[0].correct == 6
    assert (outcome.end.resumed, outcome.end.failed) == (1, 0)


def test_a_refused_question_is_a_result_of_the_server(tmp_path: Path) -> None:
    def choosy(asked: Asked) -> Answer | str:
        return Answer(status=400, message="too long") if number_of(asked) == 2 else right(asked)

    lab = sums_lab(tmp_path / "lab", 4)
    with scripted_endpoint(choosy) as server:
        outcome = evaluate(lab, recipe_of(recipe_text({"m": [server.address]})))
    (failed,) = [one for one in outcome.directory.generations() if one.failure]
    assert failed.failure is not None
    assert failed.failure.blame is Blame.JOB
    assert (outcome.end.answered, outcome.end.failed) == (3, 1)
    (cell,) = outcome.table.cells
    assert (cell.right, cell.total, len(cell.failed)) == (3, 3, 1)
    # Three of three right is not the whole truth.
    assert outcome.exit_status == ExitStatus.JOB
    (note,) = outcome.end.notes
    assert note.startswith("1 generation has no answer, the first: ")
    assert "too long" in note


def test_a_server_that_refuses_every_question_is_told_by_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = sums_lab(tmp_path / "lab", 4)
    monkeypatch.chdir(lab.root)
    with scripted_endpoint({"": Answer(status=400, message="no such template")}) as server:
        (lab.root / "sums.yaml").write_text(recipe_text({"m": [server.address]}))
        assert run_cli(["run", "sums.yaml"]) == ExitStatus.JOB
        assert len(server.answered) == 4
    told = capsys.readouterr().err
    assert "no such template (4 generations have no answer)" in told
    assert "labctl resume" not in told
    assert run_cli(["report", "latest"]) == ExitStatus.JOB
    assert "no such template" in capsys.readouterr().err


def test_an_interrupt_during_the_last_grading_is_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> Iterator[GradeRecord]:
        raise KeyboardInterrupt
        yield

    lab = sums_lab(tmp_path / "lab", 4)
    with scripted_endpoint(right) as server:
        recipe = recipe_of(recipe_text({"m": [server.address]}))
        with monkeypatch.context() as patch:
            patch.setattr("labctl.evaluation.ending.grade_answers", interrupted)
            with pytest.raises(KeyboardInterrupt):
                evaluate(lab, recipe)
        (run,) = lab.root.glob("runs/2*")
        directory = EvaluationDirectory(RunDirectory(run))
        end = directory.end()
        assert end is not None
        assert (end.state, end.answered, end.accuracies) == ("interrupted", 4, ())
        outcome = resume_evaluation(directory.run, lab, no_board, Observer())
        assert len(server.answered) == 4
    assert (outcome.end.state, outcome.end.accuracies[0].correct) == ("finished", 4)


def test_cutting_ends_where_real_limits_contradict_it(tmp_path: Path) -> None:
    def two_faced(asked: Asked) -> str:
        """Under a limit it answers at once, as some servers do that know their limit."""
        limited = asked.body.get("n_predict") not in (None, -1)
        return boxed(2 * number_of(asked), words=0 if limited else 9)

    lab, events = sums_lab(tmp_path / "lab", 12), list[AnyEvent]()
    with scripted_endpoint(two_faced) as server:
        text = recipe_text({"m": [server.address]}, budgets=[5, "unlimited"])
        outcome = evaluate(lab, recipe_of(text), events)
    (check,) = outcome.end.truncation
    assert not check.cutting
    # Cut at 5 tokens none would have its box.
    assert {cell.budget: cell.right for cell in outcome.table.cells} == {5: 12, None: 12}
    assert not any(grade.truncated_here for grade in outcome.directory.grades())
    notes = [event.text for event in events if event.event == "note"]
    assert any("every budget is asked from now on" in text for text in notes)


def test_where_no_tokens_are_told_each_budget_is_asked_for(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 4)
    with scripted_endpoint(lambda asked: Answer(half_right(asked), no_tokens=True)) as server:
        text = recipe_text({"m": [server.address]}, api="openai-completions", budgets=[3, 50])
        outcome = evaluate(lab, recipe_of(text))
    answers = [one for one in outcome.directory.generations() if one.check is None]
    assert {one.max_tokens for one in answers} == {3, 50}
    assert {cell.budget: cell.right for cell in outcome.table.cells} == {3: 1, 50: 2}


def test_a_run_that_is_cut_off_compares_the_same_questions(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 200)
    fast, slow = (Answer("\\boxed{1}", first_s=seconds) for seconds in (0, 0.1))
    with scripted_endpoint(lambda _: fast) as one, scripted_endpoint(lambda _: slow) as two:
        text = recipe_text(
            {"a": [one.address], "b": [two.address]}, max_time="2s",
            prompts={"p": {"layout": "plain"}, "q": {"layout": "plain", "system": "Hm."}},
        )  # fmt: skip
        outcome = evaluate(lab, recipe_of(text))
        # The fast one, too, is not asked what the slow one will not come to.
        assert len(one.answered) <= len(two.answered) + 2 * 12
    asked = [{grade.question for grade in cell.grades} for cell in outcome.table.cells]
    assert len(asked) == 4
    assert all(questions == asked[0] for questions in asked)
    assert outcome.end.questions == len(asked[0]) > 0
    assert table_of(outcome.directory) == outcome.table
    assert any("max_time is over" in note for note in outcome.end.notes)
    assert outcome.end.state == "finished"


def test_a_run_that_is_cut_off_before_two_have_the_same_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def only(*numbers: int) -> Any:
        return lambda asked: Answer(right(asked), first_s=0 if number_of(asked) in numbers else 30)

    lab = sums_lab(tmp_path / "lab", 4)
    with scripted_endpoint(only(1)) as one, scripted_endpoint(only(2)) as two:
        text = recipe_text(
            {"a": [one.address], "b": [two.address]},
            concurrency=8, max_time="2s", budgets=[20, 40, "unlimited"],
        )  # fmt: skip
        outcome = evaluate(lab, recipe_of(text))
    assert (outcome.exit_status, outcome.table.cells) == (ExitStatus.JOB, ())
    show_evaluation(outcome.directory.run)
    assert "no question is answered by every variant" in capsys.readouterr().out


def test_a_run_that_is_cut_off_can_go_on(tmp_path: Path) -> None:
    seconds = 0.4
    lab = sums_lab(tmp_path / "lab", 12)
    with scripted_endpoint(lambda asked: Answer(right(asked), first_s=seconds)) as server:
        outcome = evaluate(lab, recipe_of(recipe_text({"m": [server.address]}, max_time="2s")))
        assert outcome.end.questions < 12
        assert any("labctl resume" in note for note in outcome.end.notes)
        seconds = 0
        again = resume_evaluation(outcome.directory.run, lab, no_board, Observer())
        assert (again.end.questions, again.end.resumed, again.end.notes) == (12, 1, ())
        with pytest.raises(ConfigError, match="nothing to resume"):
            resume_evaluation(outcome.directory.run, lab, no_board, Observer())


def test_a_run_that_died_has_the_rest_of_its_time(tmp_path: Path) -> None:
    dies = True

    def mortal(asked: Asked) -> Answer:
        if dies and number_of(asked) > 2:
            return Answer(**BUSY)
        return Answer(right(asked), first_s=0.6 if dies else 30)

    lab = sums_lab(tmp_path / "lab", 12)
    with scripted_endpoint(mortal) as server:
        recipe = recipe_of(recipe_text({"m": [server.address]}, max_time="1h", concurrency=1))
        with pytest.raises(HostError, match="endpoint m-0"):
            evaluate(lab, recipe)
        (run,) = lab.root.glob("runs/2*")
        dies = False
        records = list(EvaluationDirectory(RunDirectory(run)).generations())
        late = records[1].model_copy(update={"total_ns": 3600 * 10**9})
        lines = (run / "generations.jsonl").read_text().splitlines(keepends=True)
        lines[1] = late.model_dump_json() + "\n"
        (run / "generations.jsonl").write_text("".join(lines))  # it took nearly all of the time
        again = resume_evaluation(RunDirectory(run), lab, no_board, Observer())
    assert again.end.answered == 2
    assert any("max_time is over" in note for note in again.end.notes)


def test_a_variant_without_an_answer_is_named(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 4)
    never = Answer("x", first_s=600)
    with scripted_endpoint(right) as one, scripted_endpoint(lambda _: never) as two:
        text = recipe_text({"a": [one.address], "b": [two.address]}, max_time="5s")
        outcome = evaluate(lab, recipe_of(text))
    assert {cell.variant for cell in outcome.table.cells} == {"a/plain"}
    assert "b/plain has no answer, and so no row" in outcome.end.notes


def test_a_server_of_another_version_does_not_go_on(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 4)
    with scripted_endpoint(right) as server:
        outcome = evaluate(lab, recipe_of(recipe_text({"m": [server.address]})))
        path = outcome.directory.path / "evaluation.json"
        path.write_text(path.read_text().replace("b1-scripted", "b0-scripted"))
        (outcome.directory.path / "end.json").unlink()
        with pytest.raises(ConfigError, match="the server of endpoint m-0 has changed"):
            resume_evaluation(outcome.directory.run, lab, no_board, Observer())


def test_asking_stops_once_the_accuracy_is_known(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 300)
    with scripted_endpoint(right) as server:
        rule = {"half_width": "10%", "min_questions": 20}
        text = recipe_text({"m": [server.address]}, stop_when=rule)
        outcome = evaluate(lab, recipe_of(text))
    assert 20 <= outcome.end.questions < 300
    assert any("stop_when" in note for note in outcome.end.notes)


@pytest.mark.parametrize("status", [400, 500])
def test_an_unanswered_question_does_not_keep_asking_from_its_end(
    tmp_path: Path, status: int
) -> None:
    def choosy(asked: Asked) -> Answer | str:
        if number_of(asked) == 2:
            return Answer(status=status, message="too long", headers={"Retry-After": "0"})
        return right(asked)

    lab = sums_lab(tmp_path / "lab", 300)
    with scripted_endpoint(choosy) as server:
        rule = {"half_width": "10%", "level": 0.9, "min_questions": 20}
        text = recipe_text(
            {"m": [server.address]}, stop_when=rule, attempts=2, budgets=[50, "unlimited"]
        )
        outcome = evaluate(lab, recipe_of(text))
        assert 20 <= outcome.end.questions < 200
        assert any("± 10 points at 90%" in note for note in outcome.end.notes)
        if status == 400:  # what is refused is not asked again, and does not count then either
            (outcome.directory.path / "end.json").unlink()
            again = resume_evaluation(outcome.directory.run, lab, no_board, Observer())
            assert again.end.questions < 250


def test_a_missed_gate_is_a_failure_of_the_job(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 8)
    gates = [
        {"metric": "accuracy", "min": 0.9, "where": {"model": "m"}},
        {"metric": "accuracy", "max": 0.9},
    ]
    with scripted_endpoint(half_right) as server:
        text = recipe_text({"m": [server.address]}, gates=gates)
        outcome = evaluate(lab, recipe_of(text))
    assert [gate.passed for gate in outcome.end.gates] == [False, True]
    assert outcome.exit_status == ExitStatus.JOB


def test_the_same_time_is_another_limit_for_each_model(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 2)
    with scripted_endpoint(right) as server:
        text = recipe_text(
            {"small": [server.address], "large": [server.address]},
            budgets={
                "equal_to": "small",
                "tokens": [100, 200, 300, "unlimited"],
                "time_per_token": {"small": "18.18s", "large": "49.73s"},
            },
        )
        outcome = evaluate(lab, recipe_of(text))
    assert outcome.record.model_budgets == {
        "small": (100, 200, 300, None),
        "large": (37, 73, 110, None),
    }
    assert outcome.record.budget_seconds == (1818.0, 3636.0, 5454.0, None)


def test_a_time_in_which_a_model_makes_no_token_is_refused(tmp_path: Path) -> None:
    lab = sums_lab(tmp_path / "lab", 2)
    text = recipe_text(
        {"small": ["http://127.0.0.1:9"], "large": ["http://127.0.0.1:9"]},
        budgets={
            "equal_to": "small",
            "tokens": [1, 2],
            "time_per_token": {"small": "18.18s", "large": "49.73s"},
        },
    )
    with pytest.raises(ConfigError, match=r"budgets.tokens\[0\].*large cannot generate even"):
        evaluate(lab, recipe_of(text))


def test_a_count_that_the_tokenizer_contradicts_is_noted(tmp_path: Path) -> None:
    lab, events = sums_lab(tmp_path / "lab", 5), list[AnyEvent]()
    answer = Answer("word " * 20, usage=60, no_tokens=True)
    with scripted_endpoint(lambda _: answer) as server:
        recipe = recipe_of(recipe_text({"m": [server.address]}, budgets=[64]))
        outcome = evaluate(lab, recipe, events)
    notes = [event.text for event in events if event.event == "note"]
    assert sum("reports 60 tokens for an answer, its tokenizer 21" in text for text in notes) == 1
    assert outcome.record.endpoints[0].prompt_cache is False
