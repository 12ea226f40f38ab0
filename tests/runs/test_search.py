"""Settings of a search, and its rounds from the records of its trials."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from records_made import model, timing, trial

from labctl.build.artifact import Artifact
from labctl.config.recipe import Recipe
from labctl.config.tuning import Tuning
from labctl.deploy.plan import describe
from labctl.engines.base import Inputs, Tool
from labctl.engines.llama_cpp.engine import LlamaCpp
from labctl.engines.llama_cpp.kl_divergence import LlamaKlDivergence
from labctl.engines.llama_cpp.tuning import built_in_space, thread_counts
from labctl.errors import Blame, ConfigError, JobError
from labctl.models.cache import ModelFile
from labctl.performance.prediction import Rate, Rates
from labctl.records.board import BoardFacts, CpuFacts, Execution
from labctl.records.timing import Measure
from labctl.records.trial import Failure, TrialRecord, TrialState
from labctl.records.tuning import TuningRecord
from labctl.runs.context import RunContext
from labctl.runs.inputs.prepare import Prepared
from labctl.runs.planning.forecast import resolve_defaults
from labctl.runs.planning.settings import plan_search, variants_of
from labctl.runs.planning.trials import PlannedTrial
from labctl.runs.record.directory import RunDirectory
from labctl.runs.search import Search
from labctl.stats.proposals import MOST_WITHOUT

SMALL = model("q8", "Q8_0", size_bytes=1_000_000_000, tensor_bytes=1_000_000_000,
              bytes_per_token=1_000_000_000)  # fmt: skip
FACTS = BoardFacts(
    execution=Execution.BOARD,
    machine="aarch64",
    kernel="5.10",
    boot_id="b",
    cpus=(CpuFacts(count=4),),
    memory_total_bytes=4_000_000_000,
    memory_available_bytes=3_000_000_000,
)
#: A token takes a second at least.
RATES = Rates(memory={None: Rate(1e9, "a test")})


def prepared(tune: dict[str, Any], **parameters: Any) -> Prepared:
    recipe = Recipe.model_validate(
        {
            "name": "search",
            "target": "rk3568",
            "engine": {"name": "llama_cpp"},
            "models": {"q8": {"file": "q8.gguf"}},
            "prompt": "x",
            "parameters": {"tokens": 8, **parameters},
            "tune": tune,
            "max_time": "2h",
        }
    )
    return Prepared(
        lab_root=Path("/lab"),
        recipe=recipe,
        engine=LlamaCpp(),
        artifact=None,
        tool=Tool("llama-completion", "completion"),
        program=None,
        prompt="x",
        files={},
        models={"q8": ModelFile(Path("q8.gguf"), SMALL)},
    )


def planned(tune: dict[str, Any], budget: float = 7200, **parameters: Any) -> TuningRecord:
    return plan_search(prepared(tune, **parameters), FACTS, None, budget)[1]


def test_the_default_is_resolved_and_in_no_other_setting() -> None:
    record = planned({"space": {"threads": [2, 4], "repack": [True, False]}})
    assert record.parameters["threads"] == 4  # one for each core
    assert record.patches == {
        "threads-2": {"threads": 2},
        "threads-2-repack-false": {"threads": 2, "repack": False},
        "repack-false": {"repack": False},
    }
    assert record.settings["threads-2"] == {"threads": 2, "threads_batch": 2}
    default, *others = variants_of(record)
    assert default.slug == "default"
    assert others[0].parameters == {**default.parameters, **record.settings["threads-2"]}


NEW = Tool("llama-completion", "completion")


def resolved_with(patch: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    """The parameters of a recipe with a patch, as a later run resolves them."""
    (found,), _ = resolve_defaults(prepared({}, **{**parameters, **patch}), FACTS)
    return dict(found.parameters)


@pytest.mark.parametrize(
    ("tune", "parameters"),
    [
        ({}, {}),
        ({"objectives": ["prefill", "decode"]}, {"threads": 3}),
        ({"space": {"cache_type_v": ["f16", "q8_0"], "threads": [2, 4]}}, {}),
    ],
)
def test_a_recipe_with_the_patch_has_the_proven_parameters(
    tune: dict[str, Any], parameters: dict[str, Any]
) -> None:
    record = planned(tune, **parameters)
    for variant in variants_of(record)[1:]:
        patch = record.patches[variant.slug]
        assert resolved_with(patch, **parameters) == variant.parameters, variant.slug
    assert {"cache_type_v": "q8_0", "flash_attention": True} in record.patches.values()
    if "prefill" in tune.get("objectives", ()):  # each with and without the other
        pairs = {(one.parameters["threads"], one.parameters["threads_batch"])
                 for one in variants_of(record)}  # fmt: skip
        assert {(2, 3), (3, 2), (2, 2)} <= pairs


def test_an_own_value_of_the_recipe_stays_while_others_change() -> None:
    record = planned({}, poll=20)
    changes = list(record.patches.values())
    assert {"repack": False} in changes
    assert {"poll": 0} in changes
    assert sum("poll" not in one for one in changes) > 10


def test_a_setting_of_the_same_effect_runs_once() -> None:
    found = planned({"objectives": ["prefill"]})  # a prompt of a token or so
    assert not any({"batch", "ubatch", "threads"} & one.keys() for one in found.patches.values())


def test_weights_that_cannot_be_locked_are_not_tried() -> None:
    facts = FACTS.model_copy(update={"memory_available_bytes": 600_000_000})
    record = plan_search(prepared({}), facts, None, 7200)[1]
    assert not any(one.get("mlock") for one in record.settings.values())
    (why,) = (one.reason for one in record.impossible if one.setting == "mlock-true")
    assert why.startswith("memory to lock: ")


def test_a_setting_whose_option_the_build_lacks_is_impossible() -> None:
    options = frozenset(every_option()) - {"--poll"}
    artifact = SimpleNamespace(
        manifest=SimpleNamespace(tools={NEW.name: SimpleNamespace(options=options)})
    )
    wanted = replace(prepared({"space": {"poll": [0, 50], "threads": [2, 4]}}),
                     artifact=cast("Artifact", artifact))  # fmt: skip
    record = plan_search(wanted, FACTS, None, 7200)[1]
    assert set(record.settings) == {"threads-2"}
    assert {one.setting for one in record.impossible} == {"poll-0", "poll-0 threads-2"}
    assert "has no option --poll" in record.impossible[0].reason


def every_option() -> list[str]:
    engine = LlamaCpp()
    changes = {"threads": 2, "poll": 0, "flash_attention": True, "repack": False}
    found = engine.parameters({"tokens": 8, **changes})
    return [*engine.command(NEW, found, Inputs("any", "any", "any", {})), "-tb"]


def test_a_model_without_flash_attention_needs_no_parameter() -> None:
    grok = SMALL.model_copy(update={"architecture": "grok"})
    engine = LlamaCpp()
    found = engine.resolved(NEW, {"tokens": 8}, FACTS, grok)
    assert found.parameters.flash_attention is False
    assert engine.resolved(NEW, {"tokens": 8}, FACTS, SMALL).parameters.flash_attention is True
    with pytest.raises(ConfigError, match="no flash attention for grok"):
        engine.resolved(NEW, {"tokens": 8, "flash_attention": True}, FACTS, grok)


def test_an_empty_tune_is_a_search() -> None:
    document = {"name": "r", "target": "t", "engine": {"name": "llama_cpp"}, "prompt": "x",
                "models": {"m": {"file": "m.gguf"}}, "max_time": "1m"}  # fmt: skip
    assert Recipe.model_validate({**document, "tune": None}).tune == Tuning()
    assert Recipe.model_validate(document).tune is None
    assert Recipe.model_validate(Recipe.model_validate(document).resolved()).tune is None


def test_named_and_refused_combinations_never_run() -> None:
    space = {"context": [16, 512], "tokens": [8, 64]}
    record = planned({"space": space, "never": [{"tokens": 64, "context": 512}]}, context=128)
    assert "tokens-64" not in record.settings
    assert set(record.settings) == {"context-16", "context-512"}
    (one,) = record.impossible
    assert one.setting == "context-16 tokens-64"
    assert "context 16 is too small for 64 tokens" in one.reason


def test_what_cannot_fit_in_memory_is_kept_with_its_reason() -> None:
    record = planned({"space": {"context": [512, 16_000_000], "threads": [2, 4]}}, context=512)
    assert set(record.settings) == {"threads-2"} or not SMALL.kv_bytes_per_position
    assert all(one.reason.startswith("memory: ") for one in record.impossible)


@pytest.mark.parametrize(
    ("tune", "budget", "message"),
    [
        ({"space": {"threads": [3, 4]}, "never": [{"threads": 3}]}, 7200, "one point"),
        (
            {"space": {"threads": [2, 4]}},
            1,
            "the budget is too small: the 8 trials of the smallest search",
        ),
    ],
)
def test_a_search_that_can_show_nothing_is_refused(
    tune: dict[str, Any], budget: float, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_search(prepared(tune), FACTS, RATES, budget)


def test_the_built_in_space_is_what_the_program_has() -> None:
    fields = LlamaCpp().parameters_model.model_fields
    space = built_in_space(fields, FACTS, ("decode",))
    assert space["threads"] == (1, 2, 3, 4)
    assert space["repack"] == (True, False)
    assert space.keys() <= fields.keys()
    assert "ubatch" not in space
    assert "ubatch" in built_in_space(fields, FACTS, ("prefill",))
    assert thread_counts(8) == (2, 4, 6, 7, 8)
    record = planned({})
    assert all(len({*one} - {"flash_attention"}) <= 2 for one in record.patches.values())
    assert len(record.settings) > 5


class Played:
    """A search whose trials a test makes up."""

    def __init__(
        self,
        folder: Path,
        record: TuningRecord,
        rates: Rates | None = None,
        guard: Prepared | None = None,
    ):
        wanted = prepared({"space": {"threads": [2, 4]}})
        forecast, _ = plan_search(wanted, FACTS, rates, 7200)
        self.clock = SimpleNamespace(spent=0.0, took_of=lambda _slug: 2.0)
        self.notes: list[str] = []
        self.directory = RunDirectory(folder)
        context = SimpleNamespace(
            prepared=wanted,
            guard=guard,
            run=SimpleNamespace(facts=FACTS),
            forecast=forecast,
            directory=self.directory,
            clock=self.clock,
            observer=SimpleNamespace(note=self.notes.append),
        )
        self.context = cast("RunContext", context)
        self.search = Search(record, self.context)
        self.records: dict[int, TrialRecord] = {}
        self.plan: list[PlannedTrial] = []

    def round(self) -> list[PlannedTrial]:
        found = self.search.more(self.records, len(self.plan))
        self.plan += found
        return found

    def run(self, one: PlannedTrial, gap_ms: float, text: str = "a b", **changes: Any) -> None:
        record = trial(one.number, variant=one.variant.slug, slug=one.slug, repeat=one.repeat,
                       took_ns=2 * 10**9, timing=timing([gap_ms] * 4), **changes)  # fmt: skip
        folder = self.directory.trial_path(one.number, one.slug)
        folder.mkdir(parents=True)
        for name in ("stdout", "stderr", "timeline"):
            (folder / name).write_text(text if name == "stdout" else "")
        self.records[one.number] = record
        self.clock.spent += 2.0


def begin(played: Played) -> PlannedTrial:
    """Run the first two trials, both of the default."""
    for _ in range(2):
        (first,) = played.round()
        played.run(first, 100)
    return first


@pytest.fixture
def played(tmp_path: Path) -> Played:
    return Played(tmp_path, planned({"space": {"threads": [2, 3, 4]}}, 100))


def test_a_search_goes_on_from_its_file(played: Played, tmp_path: Path) -> None:
    while wanted := played.round():
        for one in wanted:
            played.run(one, {"default": 100, "threads-2": 90, "threads-3": 130}[one.variant.slug])
    record = played.directory.tuning()
    assert record is not None
    assert record.named == {"decode": "threads-2"}
    assert {one.setting: one.reason for one in record.dropped} == {
        "threads-3": "decode 30.8% worse than threads-2"
    }
    assert played.notes == list(record.said)
    assert "fresh pairs at a noise of 0.0% show a true gain of 2.0%" in record.said[0]
    assert played.clock.spent <= 100
    # Killed after the file was written, before the plan was: the same trials come again.
    for cut in range(1, len(record.rounds)):
        last = record.rounds[cut]
        rounds = record.rounds[: cut + 1]
        named = record.named if last.kind in ("proof", "parts") else None
        again = Played(tmp_path, record.model_copy(update={"rounds": rounds, "named": named}))
        again.records = {n: one for n, one in played.records.items() if n < last.first}
        again.plan = played.plan[: last.first - 1]
        assert [one.variant.slug for one in again.round()] == list(last.order)


MANY = {"threads": [1, 2, 3, 4], "poll": [*range(0, 100, 5)]}


def test_a_search_of_many_settings_tries_what_is_proposed(tmp_path: Path) -> None:
    played = Played(tmp_path, planned({"space": MANY}, 400))
    assert len(played.search.record.settings) > MOST_WITHOUT
    while wanted := played.round():
        for one in wanted:
            values = one.variant.parameters
            played.run(one, 100 + 8 * (values["threads"] - 2) ** 2 + values["poll"] / 10)
    record = played.search.record
    tries = [one for one in record.rounds if one.kind == "try"]
    assert len(tries) > 2
    tried = [slug for one in tries for slug in one.order if slug != "default"]
    assert len({*tried}) == len(tried)
    raced = {slug for one in record.rounds if one.kind == "race" for slug in one.order}
    assert raced < {"default", *tried}
    assert (record.named or {})["decode"].startswith(("threads-2", "poll-0-threads-2"))
    reasons = {one.setting: one.reason for one in record.dropped}
    never = record.settings.keys() - {*tried}
    assert {reasons[one] for one in never} == {f"not proposed: {len(tried)} others were tried"}
    # Killed before the round was written: the same settings are proposed again.
    for cut in range(2, 2 + len(tries)):
        last = record.rounds[cut]
        before = {"rounds": record.rounds[:cut], "named": None, "dropped": ()}
        again = Played(tmp_path / str(cut), record.model_copy(update=before))
        again.directory = played.directory
        again.search.context = played.context
        again.records = {n: one for n, one in played.records.items() if n < last.first}
        again.plan = played.plan[: last.first - 1]
        played.clock.spent = 2.0 * len(again.plan)
        assert [one.variant.slug for one in again.round()] == list(last.order)


def test_many_settings_need_optuna_and_few_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    planned({"space": {"threads": [1, 2, 3, 4], "poll": [0, 20, 50]}})
    with pytest.raises(ConfigError, match="more than 60 settings needs Optuna") as caught:
        planned({"space": MANY})
    assert "labctl-boards[tune]" in (caught.value.hint or "")


def test_a_built_in_space_is_never_so_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    facts = FACTS.model_copy(update={"cpus": (CpuFacts(count=8),)})
    record = plan_search(prepared({}), facts, None, 7200)[1]
    assert len(record.settings) == MOST_WITHOUT
    assert {"threads": 2} in record.patches.values()
    assert {"poll": 100} in record.patches.values()
    assert any(one.reason.startswith("not drawn: ") for one in record.impossible)


def test_a_setting_with_another_text_is_dropped_by_the_guard(played: Played) -> None:
    begin(played)
    for one in played.round():
        played.run(one, 50, "a c" if one.variant.slug == "threads-2" else "a b")
    assert {one.variant.slug for one in played.round()} == {"default", "threads-3"}
    (dropped,) = played.search.record.dropped
    assert (dropped.setting, dropped.reason) == (
        "threads-2",
        "guard: other tokens than the default's",
    )


def test_a_default_that_is_not_always_the_same_ends_the_search(played: Played) -> None:
    begin(played)
    for one in played.round():
        played.run(one, 100, f"a {one.number}" if one.variant.slug == "default" else "a b")
    with pytest.raises(ConfigError, match="the default itself fails the guard"):
        played.round()


def guard_of(search: Prepared) -> Prepared:
    """The guard of a search whose logits have chunks of 64 tokens."""
    values = {"context": 64, "batch": 64}
    recipe = search.recipe.model_copy(update={"parameters": values, "tune": None})
    return replace(search, recipe=recipe, engine=LlamaKlDivergence(),
                   tool=Tool("llama-perplexity", "completion"))  # fmt: skip


def diverge(played: Played, one: PlannedTrial, value: float, **changes: Any) -> None:
    """Run a trial of the guard."""
    measure = Measure(name="kl_divergence", unit="1", values=(value,), value=value, error=0.001)
    record = trial(one.number, variant=one.variant.slug, slug=one.slug, repeat=one.repeat,
                   took_ns=4 * 10**9, timing=timing([1.0], measures=(measure,)))  # fmt: skip
    played.records[one.number] = record.model_copy(update=changes)
    played.clock.spent += 4.0


@pytest.fixture
def guarded(tmp_path: Path) -> Played:
    search = prepared({"space": {"threads": [2, 3, 4]}})
    guard = guard_of(search)
    record = plan_search(search, FACTS, None, 80)[1].model_copy(update={"divergence": 0.01})
    return Played(tmp_path, record, guard=guard)


def test_the_guard_measures_the_divergence_of_the_default_first_and_of_each_odd_finalist(
    guarded: Played,
) -> None:
    (first,) = guarded.round()
    assert (first.guard, first.variant.slug, first.repeat) == (True, "guard-default", 0)
    values = first.parameters
    assert (values["threads"], values["context"], values["ubatch"]) == (4, 64, 64)
    assert "tokens" not in values
    diverge(guarded, first, 0.002)
    assert begin(guarded).repeat == 1
    guards: list[str] = []
    while wanted := guarded.round():
        for one in wanted:
            if one.guard:
                guards.append(one.variant.slug.removeprefix("guard-"))
                diverge(guarded, one, 0.0085 if len(guards) == 1 else 0.0075)
            else:  # both others generate other tokens, and are as fast
                gap, own = 80 + 4 * math.sin(37 * one.number), one.variant.slug == "default"
                guarded.run(one, 100 if own else gap, "a b" if own else "a c")
    record = guarded.search.record
    assert sorted(guards) == ["threads-2", "threads-3"]
    (dropped,) = record.dropped
    assert dropped.setting == guards[0]
    assert dropped.reason == "guard: KL divergence 0.0085 ± 0.002, more than 0.01"
    assert record.named == {"decode": guards[1]}  # within two standard errors
    assert [one.kind for one in record.rounds].count("proof") >= 2
    assert guarded.clock.spent <= 80
    # From its file alone, the same search asks for nothing else.
    again = Played(guarded.directory.path, record, guard=guarded.context.guard)
    again.records, again.plan, again.clock.spent = guarded.records, guarded.plan, 100.0
    assert again.round() == []
    assert again.search.record.named == record.named


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({}, ConfigError, "the default itself fails the guard: KL divergence 0.5 ± 0.002, more"),
        (
            {"state": TrialState.SKIPPED, "skip_reason": "max_time: stopped after 4 s"},
            ConfigError,
            "the budget of 80.0 s is too small: guard: not measured: max_time: stopped",
        ),
        (
            {
                "state": TrialState.FAILED,
                "failure": Failure(kind="ProgramFailed", blame=Blame.JOB, message="no memory"),
            },
            JobError,
            "the guard of the default failed: guard: no memory",
        ),
    ],
)
def test_a_default_that_fails_the_guard_is_told_before_anything_is_timed(
    guarded: Played, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    (first,) = guarded.round()
    assert not guarded.search.may_drop(first)
    diverge(guarded, first, 0.5, **changes)
    with pytest.raises(error, match=message):
        guarded.round()
    assert [one.kind for one in guarded.search.record.rounds] == ["guard"]


def test_logits_of_another_model_are_refused_before_any_trial(tmp_path: Path) -> None:
    search = prepared({"space": {"threads": [2, 4]}})
    logits = tmp_path / "base.bin"
    logits.write_bytes(b"x")
    item = describe(logits)
    about = {"sha256": item.sha256, "model_sha256": "0" * 64}
    (tmp_path / "base.bin.json").write_text(json.dumps(about))
    guard = replace(guard_of(search), files={"base_logits": item})
    with pytest.raises(ConfigError, match=r"base.bin has the logits of another model \(0000"):
        plan_search(search, FACTS, None, 100, guard)
    (tmp_path / "base.bin.json").unlink()
    record = plan_search(search, FACTS, None, 100, guard)[1]
    assert record.divergence == 0.01
    little = FACTS.model_copy(update={"memory_available_bytes": 1000})
    with pytest.raises(ConfigError, match=r"the guard needs .* of memory"):
        plan_search(search, little, None, 100, guard)


@pytest.mark.parametrize(("budget", "trials", "needed"), [(3, 1, "19.5 s"), (18, 2, "19.0 s")])
def test_a_budget_that_is_too_small_says_how_long_the_smallest_search_takes(
    budget: float, trials: int, needed: str, tmp_path: Path
) -> None:
    played = Played(tmp_path, planned({"space": {"threads": [2, 4]}}, budget))
    for _ in range(trials):
        (first,) = played.round()
        played.run(first, 100)
    with pytest.raises(ConfigError, match=f"too small: the smallest search takes about {needed}"):
        played.round()


def test_a_budget_below_the_tokens_of_the_first_trial_is_told_after_it(tmp_path: Path) -> None:
    played = Played(tmp_path, planned({"space": {"threads": [2, 4]}}, 20))
    (first,) = played.round()
    played.run(first, 1000)  # seven more trials generate for 28 s at least
    with pytest.raises(ConfigError, match="is too small: the smallest search"):
        played.round()


def failed(played: Played, one: PlannedTrial) -> None:
    why = Failure(kind="ProgramFailed", blame=Blame.JOB, message="killed by SIGKILL")
    played.run(one, 100, state=TrialState.FAILED, failure=why)


def test_a_default_that_fails_ends_the_search(played: Played) -> None:
    (first,) = played.round()
    failed(played, first)
    with pytest.raises(JobError, match="the default failed in its first trial: killed by SIGKILL"):
        played.round()


def test_a_default_that_fails_later_is_tried_again(played: Played) -> None:
    begin(played)
    for _ in range(2):
        for one in played.round():
            (failed(played, one) if one.variant.slug == "default" else played.run(one, 100))
    for one in played.round():
        played.run(one, 100)
    assert [one.kind for one in played.search.race.of("race")] == ["race"]
    for _ in range(3):
        for one in played.round():
            (failed(played, one) if one.variant.slug == "default" else played.run(one, 100))
    with pytest.raises(JobError, match="the default failed in its last 3 trials"):
        played.round()


def test_what_one_alternative_can_show_is_said(tmp_path: Path) -> None:
    played = Played(tmp_path, planned({"space": {"threads": [3, 4]}}, 100))
    while wanted := played.round():
        for one in wanted:
            noise = 1 + 0.01 * math.sin(37 * one.number)
            played.run(one, 100 * noise * (1 if one.variant.slug == "default" else 0.9))
    assert "fresh pairs at a noise of" in played.notes[0]


def test_physics_drops_what_cannot_be_faster(tmp_path: Path) -> None:
    played = Played(tmp_path, planned({"space": {"threads": [2, 4]}}, 100), RATES)
    begin(played)  # the test's rate allows a second
    assert played.round() == []
    (dropped,) = played.search.record.dropped
    assert dropped.reason.startswith("physics: at least 1.0")


def test_failed_and_slow_trials_leave_and_the_cut_off_is_three_times_the_default(
    played: Played,
) -> None:
    first = begin(played)
    assert played.search.limit(first) is None
    for one in played.round():
        slow = {"state": TrialState.SKIPPED, "skip_reason": "slower than 3 times the default's 2 s"}
        played.run(one, 100, **(slow if one.variant.slug == "threads-2" else {}))
        if one.variant.slug == "threads-2":
            limit = played.search.limit(one)
            assert limit is not None
            assert (limit.seconds, limit.source) == (6.0, "3 times the default's 2.00 s")
    assert "threads-2" not in {one.variant.slug for one in played.round()}
    played.clock.spent = 99.0
    assert "the budget: 1.0 s left" in (played.search.reason_to_skip(first) or "")
