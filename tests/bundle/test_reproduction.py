"""Making a run again: nothing that a bundle names is run, and each number gets an honest word."""

import copy
import hashlib
import itertools
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from compared import side_of
from records_made import BEGAN, model, planned_run, run, timing, trial

from labctl.bundle.form import NotABundle
from labctl.bundle.make import make_bundle, write_zip
from labctl.bundle.reader import open_bundle
from labctl.bundle.records import bundled_run
from labctl.bundle.trusted_recipe import LEFT, REPLACED, TAKEN, TrustedRecipe, trusted_recipe
from labctl.bundle.verdicts import Judgement, Measured, Number, judge, texts
from labctl.compare.sides import Side
from labctl.config.lab import Board
from labctl.config.recipe import Recipe
from labctl.errors import ConfigError
from labctl.records.board import BoardFacts, Execution
from labctl.records.run import ArtifactIdentity, PlanRecord, RunEnd
from labctl.records.trial import TrialBound, TrialRecord
from labctl.runs.record.directory import RunDirectory
from labctl.transport.hdc import HdcTcpConfig
from labctl.transport.local import LocalConfig

RECIPE: dict[str, Any] = {
    "name": "q2", "target": "rk3568", "engine": {"name": "llama_cpp"}, "max_time": "1h",
    "models": {"q2_k": {"file": "models/q2_k.gguf"}}, "prompt": "once upon",
    "parameters": {"tokens": 4}, "comparison": {"same_within": 0.5},
}  # fmt: skip
MODEL_BYTES = b"a model"
MODEL = model(sha256=hashlib.sha256(MODEL_BYTES).hexdigest())
BUILD = ArtifactIdentity(
    product="llama.cpp", version="new", target="rk3568", key="k", toolchain="zig", tools={"a": "b"}
)
BOARD = Board(target="rk3568", transport=HdcTcpConfig(address="127.0.0.1:1"))


def bundled(tmp_path: Path, recipe: dict[str, Any], **plan: Any) -> Path:
    """The bundle of a run of a recipe."""
    lab = tmp_path / "there"
    if "prompt" in recipe:
        plan["prompt_sha256"] = hashlib.sha256(recipe["prompt"].encode()).hexdigest()
    record = run(recipe_resolved=recipe, artifacts=(BUILD,), models=(MODEL,))
    directory = planned_run(lab / "runs", record, PlanRecord(trials=(), max_seconds=60, **plan))
    directory.add(trial(1, model=MODEL))
    directory.finish(RunEnd(state="finished", finished=BEGAN))
    make_bundle(RunDirectory(directory.path), tmp_path / "x.labctl.zip")
    return tmp_path / "x.labctl.zip"


def changed(path: Path, entry: str, change: Callable[[Any], None]) -> Path:
    """The bundle as an attacker makes it: whole, with another entry."""
    with open_bundle(path) as bundle:
        manifest, files = bundle.manifest, {name: bundle.read(name) for name in bundle.names}
    document = json.loads(files[entry])
    change(document)
    files[entry] = json.dumps(document).encode()
    write_zip(path, files.items(), lambda made: manifest.model_copy(update={"entries": made}))
    return path


def trusted(path: Path, tmp_path: Path, board: Board = BOARD, **given: Any) -> TrustedRecipe:
    options: dict[str, Any] = {
        "files": {},
        "inputs": {},
        "program": None,
        "lab_root": None,
        **given,
    }
    with open_bundle(path) as bundle:
        return trusted_recipe(
            bundle, bundled_run(bundle), board, folder=tmp_path / "reproductions", **options
        )


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "own.gguf"
    path.write_bytes(MODEL_BYTES)
    return path


def test_a_recipe_is_taken_with_the_users_own_file_and_limits(tmp_path: Path, gguf: Path) -> None:
    found = trusted(bundled(tmp_path, RECIPE), tmp_path, files={"q2_k": gguf})
    assert found.missing == []
    assert found.document["models"] == {"q2_k": {"file": str(gguf), "lock": False}}
    assert found.document["engine"] == {"name": "llama_cpp", "version": "new"}
    assert found.document["prompt"] == "once upon"
    assert "comparison" not in found.document  # the bundle does not set what counts as the same


def test_what_cannot_be_had_is_named_with_its_cure(tmp_path: Path) -> None:
    (missing,) = trusted(bundled(tmp_path, RECIPE), tmp_path).missing
    assert "'q2_k' (q2_k.gguf) has no public source" in missing.what
    assert f"the file with SHA-256 {MODEL.sha256}" in missing.cure
    assert "--model q2_k=FILE" in missing.cure


def test_a_prompt_with_a_name_left_out_is_not_the_measured_one(tmp_path: Path, gguf: Path) -> None:
    recipe = {**RECIPE, "prompt": f"What is in {tmp_path}/there/x?"}
    (missing,) = trusted(bundled(tmp_path, recipe), tmp_path, files={"q2_k": gguf}).missing
    assert "a name or path was left out" in missing.what
    assert "--with-identity" in missing.cure


def test_another_model_than_the_measured_one_is_refused(tmp_path: Path, gguf: Path) -> None:
    gguf.write_bytes(b"another")
    path = bundled(tmp_path, RECIPE)
    with pytest.raises(ConfigError, match="is not the measured file: its SHA-256 is"):
        trusted(path, tmp_path, files={"q2_k": gguf})
    with pytest.raises(ConfigError, match="no such model in the bundle"):
        trusted(path, tmp_path, files={"q8": gguf})


def test_hashes_of_models_must_be_those_of_the_run(tmp_path: Path, gguf: Path) -> None:
    def lie(document: Any) -> None:
        document["models"][0]["sha256"] = hashlib.sha256(b"evil").hexdigest()

    path = changed(bundled(tmp_path, RECIPE), "models.json", lie)
    with pytest.raises(NotABundle, match=r"different hashes of q2_k"):
        trusted(path, tmp_path, files={"q2_k": gguf})


def test_an_address_in_the_own_network_is_never_asked(tmp_path: Path) -> None:
    def point(document: Any) -> None:
        url = {"address": "http://192.168.1.1/reset", "sha256": MODEL.sha256}
        document["models"][0] |= {"source": {"url": url}, "public": True}

    found = trusted(changed(bundled(tmp_path, RECIPE), "models.json", point), tmp_path)
    assert found.document["models"] == {}
    assert found.missing


def test_public_models_are_pinned_to_the_measured_bytes(tmp_path: Path) -> None:
    def publish(document: Any) -> None:
        hub = {"repository": "owner/name", "file": "q2_k.gguf"}
        document["models"][0] |= {"source": {"hub": hub}, "public": True, "commit": "c0ffee"}

    found = trusted(changed(bundled(tmp_path, RECIPE), "models.json", publish), tmp_path)
    assert found.document["models"]["q2_k"]["hub"] == {
        "repository": "owner/name", "file": "q2_k.gguf", "revision": "c0ffee",
        "sha256": MODEL.sha256,
    }  # fmt: skip


COMMAND = {
    "name": "command",
    "arguments": ["-c", "id"],
    "tokens": {"stream": "stdout", "each": "line"},
}
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "a program on the board": (
        {"engine": {**COMMAND, "program": {"board": "/bin/sh"}}}, "the program /bin/sh of a board",
    ),
    "a program of this host": (
        {"engine": {**COMMAND, "program": {"file": "/bin/sh"}}}, "that labctl did not build",
    ),
    "an engine of a package": ({"engine": {"name": "theirs"}}, "the engine 'theirs'"),
    "a key of the engine": (
        {"engine": {"name": "llama_cpp", "wrapper": "/bin/sh"}}, r"engine\.wrapper",
    ),
    "a key of the recipe": ({"hooks": {"before": "/bin/sh"}}, "the recipe's key 'hooks'"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_no_program_that_only_a_bundle_names_is_started(
    tmp_path: Path, gguf: Path, what: str
) -> None:
    change, why = HOSTILE[what]

    def harm(document: Any) -> None:
        document["recipe_resolved"].update(change)

    path = changed(bundled(tmp_path, RECIPE), "run/run.json", harm)
    with pytest.raises(ConfigError, match=why):
        trusted(path, tmp_path, files={"q2_k": gguf})


def test_a_program_of_ones_own_must_be_the_measured_one(tmp_path: Path, gguf: Path) -> None:
    recipe = copy.deepcopy(RECIPE)
    recipe["engine"] = {**COMMAND, "program": {"file": "tools/talker"}}
    own = tmp_path / "talker"
    own.write_text("#!/bin/sh\n")
    path = bundled(tmp_path, recipe, program_sha256=hashlib.sha256(own.read_bytes()).hexdigest())
    found = trusted(path, tmp_path, files={"q2_k": gguf}, program=own)
    assert found.document["engine"]["program"] == {"file": str(own)}
    own.write_text("#!/bin/sh\nevil\n")
    with pytest.raises(ConfigError, match="is not the measured file"):
        trusted(path, tmp_path, files={"q2_k": gguf}, program=own)


def test_no_file_of_this_host_is_read_as_prompt(tmp_path: Path, gguf: Path) -> None:
    recipe = {key: value for key, value in RECIPE.items() if key != "prompt"}
    recipe |= {"prompt_file": "/etc/passwd", "files": {}}
    (missing,) = trusted(bundled(tmp_path, recipe), tmp_path, files={"q2_k": gguf}).missing
    assert "inputs/prompt.txt is not in the bundle" in missing.what
    secret = Path("/etc/hostname")
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    recipe["prompt_file"] = str(secret)
    path = tmp_path / "second"
    found = trusted(bundled(path, recipe, prompt_sha256=digest), tmp_path, files={"q2_k": gguf})
    assert found.document["prompt_file"] == str(tmp_path / "reproductions" / "inputs/prompt.txt")


def test_changes_of_a_board_are_said_and_never_made_on_this_host(
    tmp_path: Path, gguf: Path
) -> None:
    recipe = {**RECIPE, "conditions": {"stop_processes": ["launcher"], "governor": "performance"}}
    path = bundled(tmp_path, recipe)
    cautions = trusted(path, tmp_path, files={"q2_k": gguf}).cautions
    assert cautions == ["stops while it measures: launcher", "sets governor: performance"]
    here = Board(target="rk3568", transport=LocalConfig(), workdir=str(tmp_path / "w"))
    with pytest.raises(ConfigError, match="is this host"):
        trusted(path, tmp_path, here, files={"q2_k": gguf})


def test_a_file_that_was_too_large_for_the_bundle_is_given_by_its_hash(
    tmp_path: Path, gguf: Path
) -> None:
    content = b"x" * ((16 << 20) + 1)
    style = tmp_path / "there" / "style.gguf"
    style.parent.mkdir()
    style.write_bytes(content)
    recipe = {**RECIPE, "files": {"style": str(style)}, "lora": [{"file": "style"}]}
    digest = hashlib.sha256(content).hexdigest()
    path = bundled(tmp_path, recipe, files_sha256={"style": digest})
    (missing,) = trusted(path, tmp_path, files={"q2_k": gguf}).missing
    assert f"SHA-256 {digest}, then add --file style=FILE" in missing.cure
    own = tmp_path / "own"
    own.write_bytes(content)
    found = trusted(path, tmp_path, files={"q2_k": gguf}, inputs={"style": own})
    assert found.missing == []
    assert found.document["files"] == {"style": str(own)}
    own.write_bytes(b"another")
    with pytest.raises(ConfigError, match=r"--file style: .* is not the measured file"):
        trusted(path, tmp_path, files={"q2_k": gguf}, inputs={"style": own})
    with pytest.raises(ConfigError, match="--file no file 'styl' in the recipe"):
        trusted(path, tmp_path, files={"q2_k": gguf}, inputs={"styl": own})


@pytest.mark.parametrize("place", ["parameters", "matrix", "tune"])
def test_threads_before_other_programs_are_a_caution(
    tmp_path: Path, gguf: Path, place: str
) -> None:
    asked = {
        "parameters": {"tokens": 4, "prio": 2},
        "matrix": {"prio": [0, 2]},
        "tune": {"space": {"prio": [0, 2]}},
    }
    path = bundled(tmp_path, {**RECIPE, place: asked[place]})
    cautions = trusted(path, tmp_path, files={"q2_k": gguf}).cautions
    assert cautions == ["runs before other programs, prio 2"]
    here = Board(target="rk3568", transport=LocalConfig(), workdir=str(tmp_path / "w"))
    with pytest.raises(ConfigError, match="is this host"):
        trusted(path, tmp_path, here, files={"q2_k": gguf})


def test_every_key_of_a_recipe_is_decided() -> None:
    assert set(Recipe.model_fields) == TAKEN | REPLACED | LEFT


def test_adapters_are_taken_with_their_files(tmp_path: Path, gguf: Path) -> None:
    style = tmp_path / "there" / "style.gguf"
    style.parent.mkdir()
    style.write_bytes(b"an adapter")
    digest = hashlib.sha256(b"an adapter").hexdigest()
    recipe = Recipe.model_validate(
        {**RECIPE, "files": {"style": str(style)}, "lora": [{"file": "style", "scale": 0.5}]}
    )
    path = bundled(tmp_path, recipe.resolved(), files_sha256={"style": digest})
    found = trusted(path, tmp_path, files={"q2_k": gguf})
    assert found.missing == []
    assert found.document["lora"] == [{"file": "style", "scale": 0.5}]
    assert found.document["files"] == {"style": str(tmp_path / "reproductions/inputs/files/style")}


RUN_IDS = (f"20261120T223000Z-q2-{number:06x}" for number in itertools.count())


def measured(*times: float, share: float | None = None, **changes: Any) -> Measured:
    """A run of its own."""
    bound = None
    if share is not None:
        bound = TrialBound(
            measured=True,
            kind="storage", share=share, shares={"storage": share, "dram": 0.1},
            bytes_per_token=1, bytes_per_second=1.0, sentence="",
        )  # fmt: skip
    facts = BoardFacts(
        execution=changes.pop("execution", Execution.BOARD),
        machine="aarch64",
        kernel="5",
        boot_id="b",
    )
    trials: list[TrialRecord] = [
        trial(
            number, repeat=number, timing=timing([value, value], ttft_ns=None, prompt_eval_ns=None),
            execution=facts.execution,
            bound=None if bound is None else bound.model_copy(
                update={"shares": {"storage": share * (1 + number / 1000), "dram": 0.1}}
            ),
            **{"comparability": {"threads": 4}, **changes},
        )
        for number, value in enumerate(times, 1)
    ]  # fmt: skip
    return Measured(run(next(RUN_IDS), facts=facts, variants=("q2_k",)), trials)


def one(numbers: list[Number], what: str) -> Number:
    (found,) = [number for number in numbers if number.what == what]
    return found


TIMES = (100, 101, 99, 100.5, 99.5)


@pytest.mark.parametrize("execution", [Execution.EMULATED, Execution.NATIVE_HOST])
def test_an_emulator_reproduces_no_time_and_says_so(execution: Execution) -> None:
    there = measured(*TIMES, execution=execution)
    for here in (there, measured(*TIMES)):
        (number,) = judge(there, here)
        assert number.judgement is Judgement.CANT_TELL
        assert number.reason.startswith(str(execution).upper().replace("-", " "))


def test_another_board_is_judged_by_the_share_of_its_own_ceiling() -> None:
    there = measured(*TIMES, share=0.98)
    faster = measured(*(value / 3 for value in TIMES), share=0.95)
    numbers = judge(there, faster)
    assert one(numbers, "per token").judgement is Judgement.CANT_TELL  # two runs alone cannot tell
    share = one(numbers, "share of the storage ceiling")
    assert (share.judgement, round(share.there or 0, 2)) == (Judgement.REPRODUCED, 0.98)
    far = one(judge(there, measured(*TIMES, share=0.6)), "share of the storage ceiling")
    assert far.judgement is Judgement.NOT_REPRODUCED
    unprobed = one(judge(there, measured(*TIMES)), "share of the storage ceiling")
    assert unprobed.judgement is Judgement.CANT_TELL
    assert "labctl boards probe" in unprobed.reason
    single = one(judge(there, measured(100, share=0.98)), "share of the storage ceiling")
    assert "single repeat" in single.reason


@pytest.mark.parametrize(
    ("times", "judgement"),
    [
        (1.002, Judgement.REPRODUCED), (1.25, Judgement.NOT_REPRODUCED),
        (0.8, Judgement.NOT_REPRODUCED),
    ],
)  # fmt: skip
def test_a_board_of_the_same_kind_is_judged_by_its_times(
    times: float, judgement: Judgement
) -> None:
    there, here = measured(*TIMES), measured(*(value * times for value in TIMES))

    def history(side: Side, without: Collection[str]) -> list[Any]:
        steady = [1.001, 0.999, 1.0005, 0.9995, 1.0, 1.0002]
        return [side_of(f"s{i}", [v * one for v in TIMES]).repeats for i, one in enumerate(steady)]

    number = one(judge(there, here, history), "per token")
    assert number.judgement is judgement, number


def test_unlike_runs_are_not_told_apart_by_their_numbers() -> None:
    there, here = measured(*TIMES), measured(*TIMES, comparability={"threads": 2})
    (number,) = judge(there, here)
    assert number.judgement is Judgement.CANT_TELL
    assert "threads" in number.reason


def test_a_generated_text_is_reproduced_or_not(tmp_path: Path) -> None:
    path = bundled(tmp_path, RECIPE)
    with open_bundle(path) as bundle:
        manifest = bundle.manifest
    digest = hashlib.sha256(b"once upon a time").hexdigest()
    entry = next(iter(manifest.entries.values())).model_copy(update={"sha256": digest})
    manifest = manifest.model_copy(update={"entries": {"run/trials/001-q2_k-r1/stdout": entry}})
    there = Measured(run(recipe_resolved=RECIPE, variants=("q2_k",)), [trial(1)])

    def judged(sha256: str, **changes: Any) -> Judgement:
        here = Measured(run(**changes), [trial(1)])
        (number,) = texts(there, here, manifest, {"q2_k": sha256})
        return number.judgement

    assert judged(digest) is Judgement.REPRODUCED
    assert judged("0" * 64) is Judgement.NOT_REPRODUCED
    other = BoardFacts(execution=Execution.EMULATED, machine="x86_64", kernel="6", boot_id="b")
    assert judged("0" * 64, facts=other) is Judgement.CANT_TELL
