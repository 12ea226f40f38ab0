"""Data sets: what a file of questions may hold, and which of them are asked."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from labctl.config.yaml import document
from labctl.errors import ConfigError
from labctl.evaluation.datasets.kept import keep_questions, kept_questions
from labctl.evaluation.datasets.load import load_dataset
from labctl.evaluation.datasets.source import DatasetSource
from labctl.evaluation.question import Dataset


def written(folder: Path, rows: list[Any], name: str = "sums.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sums(count: int) -> list[dict[str, str]]:
    return [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(count)]


def load(folder: Path, **keys: Any) -> Dataset:
    return load_dataset(DatasetSource.model_validate({"file": "sums.jsonl", **keys}), folder)


def refused(folder: Path, content: bytes, **keys: Any) -> ConfigError:
    (folder / "sums.jsonl").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(folder, **keys)
    return caught.value


def test_a_file_gives_its_questions_in_order_with_its_hash(tmp_path: Path) -> None:
    path = written(tmp_path, sums(3))
    dataset = load(tmp_path)
    assert [one.text for one in dataset.questions] == [row["question"] for row in sums(3)]
    assert [one.answer for one in dataset.questions] == ["1", "2", "3"]
    assert dataset.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (dataset.name, dataset.source, dataset.size) == ("sums", "sums.jsonl", 3)
    assert [one.id for one in dataset.questions] == [
        "sums-0001-2e42e4b8",
        "sums-0002-adf563bf",
        "sums-0003-5d0e376f",
    ]


@pytest.mark.parametrize("file", ["/dev/zero", "."])
def test_a_device_or_folder_has_no_questions(tmp_path: Path, file: str) -> None:
    with pytest.raises(ConfigError, match="is a folder or device, not a file with questions"):
        load(tmp_path, file=file, name="zeros")


def test_a_windows_file_is_read_as_any_other(tmp_path: Path) -> None:
    lines = "".join(json.dumps(row) + "\r\n" for row in sums(2))
    (tmp_path / "sums.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.encode() + b"\r\n  \n")
    dos = load(tmp_path)
    written(tmp_path, sums(2))
    assert dos.questions == load(tmp_path).questions
    assert dos.sha256 != load(tmp_path).sha256


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Two and three.\n#### 5", "5"),
        ("It is <<2*540=1080>>1,080.\n#### 1,080", "1080"),
        ("#### -3", "-3"),
        ("of #### 4 first\n#### $1,450,000 ", "1450000"),
        ("half\n#### 0.5\n", "0.5"),
    ],
)
def test_gsm8k_answers(tmp_path: Path, answer: str, expected: str) -> None:
    written(tmp_path, [{"question": "?", "answer": answer}])
    assert load(tmp_path, format="gsm8k").questions[0].answer == expected


def test_a_derivation_loses_the_notes_for_a_calculator(tmp_path: Path) -> None:
    written(tmp_path, [{"question": "?", "answer": "Ann has 2*3=<<2*3=6>>6 nuts.\n#### 6"}])
    assert load(tmp_path, format="gsm8k").questions[0].solution == "Ann has 2*3=6 nuts."


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(7, "7"), (0.10, "0.1"), (-3, "-3"), (1e21, "1000000000000000000000"), ("  x\n", "x")],
)
def test_plain_answers_may_be_numbers(tmp_path: Path, answer: object, expected: str) -> None:
    written(tmp_path, [{"question": "?", "answer": answer}])
    assert load(tmp_path).questions[0].answer == expected


def test_a_number_keeps_the_digits_that_it_is_written_with(tmp_path: Path) -> None:
    (tmp_path / "sums.jsonl").write_text('{"question": "?", "answer": 0.10}')
    assert load(tmp_path).questions[0].answer == "0.10"


CHOICES = {"question": "Which is even?", "choices": ["1", "2", "3"], "answer": 1}


@pytest.mark.parametrize("answer", [1, "B", "b", " (B) "])
def test_the_answer_of_a_choice_is_a_letter(tmp_path: Path, answer: object) -> None:
    written(tmp_path, [CHOICES | {"answer": answer}])
    (question,) = load(tmp_path, format="choice").questions
    assert (question.choices, question.answer) == (("1", "2", "3"), "B")


def test_labels_of_choices_and_fields_inside_fields(tmp_path: Path) -> None:
    inner = {"text": ["red", "green", "blue"], "label": ["1", "2", "3"]}
    written(tmp_path, [{"stem": "Which is the sky?", "choices": inner, "key": "3"}])
    (question,) = load(
        tmp_path,
        format="choice",
        question="stem",
        choices="choices.text",
        labels="choices.label",
        answer="key",
    ).questions
    assert (question.answer, question.choices[2]) == ("C", "blue")


@pytest.mark.parametrize(
    ("line", "keys", "says"),
    [
        (b'{"question": "a"', {}, "not JSON: Expecting"),
        (b"[1]", {}, "not a JSON object"),
        (b'{"qestion": "a", "answer": 1}', {}, "no field 'question' (did you mean 'qestion'?)"),
        (b'{"a": 1, "b": 2}', {}, "no field 'question'; it has 'a', 'b'"),
        (b'{"question": 5, "answer": 1}', {}, "'question' must be text, not a number"),
        (b'{"question": " ", "answer": 1}', {}, "'question' is empty"),
        (b'{"question": "a", "answer": null}', {}, "must be text or a number, not null"),
        (b'{"question": "a", "answer": true}', {}, "must be text or a number, not true or false"),
        (b'{"question": "a", "answer": ""}', {}, "'answer' is empty"),
        (b'{"question": "a", "answer": NaN}', {}, "NaN is not JSON"),
        (b'{"question": "\\ud800", "answer": 1}', {}, "half of a character"),
        (b'{"question": "\xff", "answer": 1}', {}, "not UTF-8 text (byte 0xff)"),
        (b'{"question": ' + b"[" * 100_000, {}, "not JSON that can be read"),
        (b'{"question": "' + b"a" * 1_000_000 + b'"}', {}, "longer than 1,000,000 bytes"),
        (b'{"question": "a", "answer": "5"}', {"format": "gsm8k"}, "does not end with `#### `"),
        (b'{"question": "a", "answer": "#### five"}', {"format": "gsm8k"}, "does not end with"),
        (b'{"question": "a", "choices": ["1"]}', {"format": "choice"}, "a list of 2 to 26 texts"),
        (
            b'{"question": "a", "choices": ["x", "y"], "answer": 2}',
            {"format": "choice"},
            "the answer must be 0 to 1, or a letter A to B, not 2",
        ),
    ],
)
def test_a_line_that_is_no_question_is_named(
    tmp_path: Path, line: bytes, keys: dict[str, str], says: str
) -> None:
    answer = {"gsm8k": "#### 1"}.get(keys.get("format", ""), "A")
    good = json.dumps({"question": "?", "choices": ["1", "2"], "answer": answer}).encode()
    error = refused(tmp_path, good + b"\n\n" + line + b"\n", **keys)
    assert error.message.startswith("sums.jsonl:3: ")
    assert says in error.message
    assert (error.file, error.line) == ("sums.jsonl", 3)


def test_files_that_are_none(tmp_path: Path) -> None:
    assert "no question in this file" in refused(tmp_path, b"\n\n").message
    with pytest.raises(ConfigError, match=r"no file nothing\.jsonl with questions"):
        load(tmp_path, file="nothing.jsonl")


def test_a_question_that_is_there_twice_is_asked_once(tmp_path: Path) -> None:
    written(tmp_path, [*sums(3), sums(3)[1]])
    dataset = load(tmp_path)
    assert (dataset.size, len(dataset.questions)) == (4, 3)
    assert dataset.notes == ("sums.jsonl: 1 question repeated, asked once (line 4)",)


def test_a_question_with_two_answers_is_refused(tmp_path: Path) -> None:
    written(tmp_path, [*sums(3), sums(3)[1] | {"answer": "7"}])
    with pytest.raises(ConfigError, match=r"sums\.jsonl:4: repeats the question of line 2"):
        load(tmp_path)


def test_the_subset_of_a_seed_is_the_same_for_ever(tmp_path: Path) -> None:
    written(tmp_path, sums(200))
    twenty = load(tmp_path, subset_seed=1, limit=20)
    assert [one.answer for one in twenty.questions[:8]] == [
        "156",
        "10",
        "146",
        "6",
        "103",
        "124",
        "129",
        "164",
    ]
    hundred = load(tmp_path, subset_seed=1, limit=100)
    assert hundred.questions[:20] == twenty.questions
    assert load(tmp_path, subset_seed=2, limit=20).questions != twenty.questions
    assert sorted(one.id for one in load(tmp_path, subset_seed=1).questions) == sorted(
        one.id for one in load(tmp_path).questions
    )


def test_the_order_of_a_seed_does_not_depend_on_the_file(tmp_path: Path) -> None:
    written(tmp_path, sums(50))
    forward = load(tmp_path, subset_seed=3, limit=9)
    written(tmp_path, sums(50)[::-1])
    backward = load(tmp_path, subset_seed=3, limit=9)
    assert [one.text for one in forward.questions] == [one.text for one in backward.questions]


def test_a_limit_above_the_file_is_told(tmp_path: Path) -> None:
    written(tmp_path, sums(3))
    dataset = load(tmp_path, limit=5)
    assert len(dataset.questions) == 3
    assert dataset.notes == ("sums.jsonl has only 3 questions, fewer than the limit",)


def test_worked_examples_of_the_same_file_are_never_asked(tmp_path: Path) -> None:
    written(tmp_path, sums(30))
    few, many = (load(tmp_path, limit=n, shots={"count": 4}) for n in (5, 26))
    assert few.examples == many.examples
    assert len(many.questions) == 26
    assert not {one.text for one in many.examples} & {one.text for one in many.questions}
    other = load(tmp_path, shots={"count": 4, "seed": 2})
    assert other.examples != few.examples


def test_worked_examples_of_another_file_leave_out_what_is_asked(tmp_path: Path) -> None:
    written(tmp_path, sums(10))
    written(tmp_path, sums(12), "train.jsonl")
    dataset = load(tmp_path, shots={"count": 2, "file": "train.jsonl"})
    assert len(dataset.questions) == 10
    assert {one.answer for one in dataset.examples} == {"11", "12"}
    with pytest.raises(ConfigError, match=r"train\.jsonl has only 2 questions that could be"):
        load(tmp_path, shots={"count": 3, "file": "train.jsonl"})


def test_questions_that_come_with_labctl_need_no_copy_in_the_lab(tmp_path: Path) -> None:
    source = {"file": "recipes/questions/arithmetic.jsonl"}
    shipped = load(tmp_path, **source)
    assert shipped.size == 20
    (tmp_path / "recipes" / "questions").mkdir(parents=True)
    written(tmp_path / "recipes" / "questions", sums(2), "arithmetic.jsonl")
    assert load(tmp_path, **source).size == 2


def test_parquet_is_read_as_json_lines_are(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    written(tmp_path, sums(5))
    parquet.write_table(pyarrow.Table.from_pylist(sums(5)), tmp_path / "sums.parquet")
    assert load(tmp_path, file="sums.parquet").questions == load(tmp_path).questions
    (tmp_path / "sums.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(ConfigError, match=r"sums\.parquet: not a Parquet file"):
        load(tmp_path, file="sums.parquet")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("limit: 5", "give exactly one of file or hub"),
        ("file: a.jsonl\nhub: {repository: o/n}", "exactly one of file or hub"),
        ("file: a.jsonl\nlimt: 5", "limt: unknown key (did you mean 'limit'?)"),
        ("file: a.jsonl\nlimit: 0", "limit: must be at least 1"),
        ("file: a.jsonl\nchoices: options", "choices: goes with format: choice"),
        ("hub: {repository: gsm8k}", "hub.repository: must be OWNER/NAME"),
        ("hub: {repository: o/n, file: ../x.jsonl}", "path of one file in the repository"),
        ("hub: {repository: o/n, file: x.csv}", "must be a .jsonl or .parquet file"),
        ("file: a.jsonl\nshots: {count: 0}", "shots.count: must be at least 1"),
    ],
)
def test_a_recipe_that_cannot_be(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        document.parse(text, DatasetSource, "recipe.yaml")
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"file": "data/My set_1.test.jsonl"}, "my-set-1"),
        ({"hub": {"repository": "openai/gsm8k"}}, "gsm8k"),
        ({"file": "x.jsonl", "name": "own"}, "own"),
        ({"file": "数学.jsonl"}, "questions"),
    ],
)
def test_names(source: dict[str, Any], name: str) -> None:
    assert DatasetSource.model_validate(source).label == name


def test_the_questions_of_a_run_are_kept_as_they_were(tmp_path: Path) -> None:
    inner = {"solution": "so", "question": "\u2028 line", "answer": "1"}
    written(tmp_path, [*sums(6), inner])
    dataset = load(tmp_path, shots={"count": 2}, limit=4)
    keep_questions(tmp_path, dataset)
    kept = kept_questions(tmp_path)
    assert (kept.questions, kept.examples) == (dataset.questions, dataset.examples)
    with (tmp_path / "questions.jsonl").open("ab") as file:
        file.write(b"{torn")
    with pytest.raises(ConfigError, match=r"questions\.jsonl:7: this labctl cannot read this line"):
        kept_questions(tmp_path)
