"""Documents: every fault is one line with file, line, column, key and what to do."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import pytest
from clocks import an_hour_later
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, model_validator

from labctl.config.types import Duration, Size
from labctl.config.yaml.document import MOST_BYTES, Document, StrictModel, load, parse, refuse
from labctl.errors import ConfigError
from labctl.files import write_atomic


class Cat(StrictModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=1, le=9)] = 9


class Dog(StrictModel):
    kind: Literal["dog"]
    tricks: tuple[str, ...] = ()


class Zoo(StrictModel):
    name: str
    open: bool = True
    weight: float = 1.0
    animals: dict[str, Annotated[Cat | Dog, Field(discriminator="kind")]] = Field(
        default_factory=dict
    )
    mood: Literal["calm", "wild"] = "calm"
    any: bool | int | float | str | None = None
    nap: Duration | None = None
    food: Size | None = None
    pair: Annotated[tuple[int, ...], Field(min_length=2, max_length=2)] | None = None

    @model_validator(mode="after")
    def _no_ghosts(self) -> "Zoo":
        if "ghost" in self.animals:
            raise refuse("ghosts are {not} animals", "animals", "ghost")
        return self


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, Zoo, "zoo.yaml")
    return caught.value.message


BAD_DOCUMENTS = {
    # what the text is not
    "empty": ("", "zoo.yaml:1:1: the file is empty, expected a mapping with the key name"),
    "only a comment": (
        "# hi\n",
        "zoo.yaml:1:1: the file is empty, expected a mapping with the key name",
    ),
    "a list": ("- a\n", "zoo.yaml:1:1: found a list, expected a mapping with the key name"),
    "a word": ("zoo", "zoo.yaml:1:1: found 'zoo', expected a mapping with the key name"),
    # YAML that cannot be understood
    "tab": (
        "name: x\n\tmood: calm\n",
        "zoo.yaml:2:1: a tab is used for indentation; YAML wants spaces",
    ),
    "open bracket": ("name: [1\nmood: calm\n", "zoo.yaml:2:5: a ',' or ']' is missing"),
    "two colons": (
        "name: a: b",
        "zoo.yaml:1:8: a ':' cannot stand here; check the indentation, or put the text in quotes",
    ),
    "open quote": ("name: 'x\n", "zoo.yaml:1:7: a quote is opened and never closed"),
    "no such anchor": ("name: *x", "zoo.yaml:1:7: the anchor &x does not exist"),
    "reserved character": ("name: @x", "zoo.yaml:1:7: text that begins with @ must be in quotes"),
    "indentation": (
        "a:\n  b: 1\n c: 2",
        "zoo.yaml:3:2: the indentation does not fit the lines above",
    ),
    "two documents": (
        "name: x\n---\nname: y\n",
        "zoo.yaml:2:1: a second document ('---') begins here; one file holds one",
    ),
    "control character": (
        "name: x\x07",
        "zoo.yaml:1:8: a character that text files do not have (U+0007)",
    ),
    "impossible escape": (
        'name: "\\UFFFFFFFF"',
        "zoo.yaml:1:10: this escape or number is out of range",
    ),
    "too deep": ("[" * 50, "zoo.yaml:1:40: lists and mappings are nested more than 40 deep"),
    "alias bomb": (
        "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
        + "".join(
            f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]\n"
            for before, after in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "zoo.yaml:1:32: more than 50000 values, aliases counted out",
    ),
    # YAML that is not for us
    "key twice": (
        "name: x\nname: y",
        "zoo.yaml:2:1: name: this key is given twice (first on line 1)",
    ),
    "merge key": (
        "<<: {}\nname: x",
        "zoo.yaml:1:1: '<<': merge keys are not supported; write the keys out",
    ),
    "tag": (
        "name: !!python/object:os.system x",
        "zoo.yaml:1:7: name: the tag !!python/object:os.system has no meaning here",
    ),
    "key is a list": (
        "name: x\n? [1]\n: 2",
        "zoo.yaml:2:3: a key must be text, not a list or mapping",
    ),
    "contains itself": ("name: &a [*a]", "zoo.yaml:1:7: name[0]: an anchor contains itself"),
    "huge number": ("name: 99999999999999999999", "zoo.yaml:1:7: name: this number is too large"),
    "half a surrogate": (
        'name: "\\ud800"',
        "zoo.yaml:1:7: name: this text has half of a surrogate pair in it",
    ),
    # values that do not fit
    "missing": ("mood: calm", "zoo.yaml:1:1: name: this key is required"),
    "unknown key": ("name: x\nmod: calm", "zoo.yaml:2:1: mod: unknown key (did you mean 'mood'?)"),
    "unknown key, none near": (
        "name: x\nanimals: {tom: {kind: cat, colour: red}}",
        "zoo.yaml:2:28: animals.tom.colour: unknown key; known here: kind, lives",
    ),
    "unknown kind": (
        "name: x\nanimals: {tom: {kind: cta}}",
        "zoo.yaml:2:23: animals.tom.kind: must be cat or dog, not 'cta' (did you mean 'cat'?)",
    ),
    "no kind": (
        "name: x\nanimals: {tom: {}}",
        "zoo.yaml:2:16: animals.tom: the key 'kind' is required",
    ),
    "unknown word": (
        "name: x\nmood: clam",
        "zoo.yaml:2:7: mood: must be calm or wild, not 'clam' (did you mean 'calm'?)",
    ),
    "number for text": (
        "name: 1.10",
        "zoo.yaml:1:7: name: must be text, not 1.1; put it in quotes",
    ),
    "text for number": (
        "name: x\nweight: heavy",
        "zoo.yaml:2:9: weight: must be a number, not 'heavy'",
    ),
    "yes for true": (
        "name: x\nopen: yes",
        "zoo.yaml:2:7: open: must be true or false; yes is only text",
    ),
    "nothing written": ("name:\n", "zoo.yaml:1:6: name: must be text, but nothing is written here"),
    "out of bounds": (
        "name: x\nanimals: {tom: {kind: cat, lives: 10}}",
        "zoo.yaml:2:35: animals.tom.lives: must be at most 9, not 10",
    ),
    "element of a list": (
        "name: x\nanimals:\n  rex:\n    kind: dog\n    tricks: [sit, 3]",
        "zoo.yaml:5:19: animals.rex.tricks[1]: must be text, not 3; put it in quotes",
    ),
    "list too short": ("name: x\npair: [1]", "zoo.yaml:2:7: pair: must have at least 2 entries"),
    "neither of many types": (
        "name: x\nany: []",
        (
            "zoo.yaml:2:6: any: must be true or false, a whole number, a number or text,"
            " not an empty list"
        ),
    ),
    "duration without unit": (
        "name: x\nnap: 90",
        "zoo.yaml:2:6: nap: a duration needs a unit; write 90s for seconds",
    ),
    "clock for duration": (
        "name: x\nnap: 10:30",
        "zoo.yaml:2:6: nap: must be a duration such as 90s, 10m or 1h30m, not '10:30'",
    ),
    "unknown unit": (
        "name: x\nfood: 2XB",
        (
            "zoo.yaml:2:7: food: must be a size such as 512MiB, 2GB or a whole number of bytes,"
            " not '2XB'"
        ),
    ),
    "a rule between keys": (
        "name: x\nanimals:\n  ghost: {kind: cat}",
        "zoo.yaml:3:10: animals.ghost: ghosts are {not} animals",
    ),
    "control characters in a value": (
        'name: x\nmood: "\\e[31m"',
        r"zoo.yaml:2:7: mood: must be calm or wild, not '\x1b[31m'",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD_DOCUMENTS.values(), ids=BAD_DOCUMENTS.keys())
def test_bad_document(text: str, message: str) -> None:
    assert refusal(text) == message


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    assert refusal("weight: x\nanimals: {tom: {kind: cat, lives: 0}}\nmod: 1").splitlines() == [
        "zoo.yaml:1:1: name: this key is required",
        "zoo.yaml:1:9: weight: must be a number, not 'x'",
        "zoo.yaml:2:35: animals.tom.lives: must be at least 1, not 0",
        "zoo.yaml:3:1: mod: unknown key (did you mean 'mood'?)",
    ]


def test_a_flood_of_problems_is_cut_short() -> None:
    lines = refusal("name: x\n" + "".join(f"k{n}: 1\n" for n in range(30))).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "zoo.yaml: and 10 more problems"


def test_plain_words_mean_what_people_write() -> None:
    zoo = parse("name: no\nany: on\nnap: 1h30m\nfood: 2GB\nweight: 012", Zoo, "zoo.yaml")
    assert (zoo.name, zoo.any, zoo.nap, zoo.food, zoo.weight) == ("no", "on", 5400, 2 * 10**9, 12)


def test_anchors_and_aliases_work() -> None:
    text = "name: x\nanimals:\n  tom: &tom {kind: cat, lives: 7}\n  tim: *tom"
    animals = parse(text, Zoo, "zoo.yaml").animals
    assert animals["tim"] == animals["tom"] == Cat(kind="cat", lives=7)


def test_explicit_tags_of_plain_types_work() -> None:
    assert parse("name: !!str 10", Zoo, "zoo.yaml").name == "10"


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    file = tmp_path / "zoo.yaml"
    file.write_bytes(b"\xef\xbb\xbfname: x\n")
    assert load(file, Zoo).name == "x"


def unreadable_files(folder: Path) -> dict[str, tuple[Path, str]]:
    (folder / "folder").mkdir()
    (folder / "latin1").write_bytes(b"name: x\nmood: \xe4\n")
    (folder / "huge").write_bytes(b"#" * (MOST_BYTES + 1))
    return {
        "missing": (folder / "none.yaml", "{}: no such file"),
        "folder": (folder / "folder", "{}: this is a directory, not a file"),
        "encoding": (folder / "latin1", "{}:2: not UTF-8 text (byte 0xe4)"),
        "huge": (folder / "huge", "{}: larger than 1000 kB; is this the right file?"),
        "below a file": (folder / "latin1" / "x", "{}: cannot be read: Not a directory"),
        "too long a name": (folder / ("x" * 300), "{}: cannot be read: File name too long"),
        "endless": (Path("/dev/zero"), "{}: larger than 1000 kB; is this the right file?"),
    }


@pytest.mark.parametrize(
    "case", ["missing", "folder", "encoding", "huge", "below a file", "too long a name", "endless"]
)
def test_unreadable_file(case: str, tmp_path: Path) -> None:
    path, message = unreadable_files(tmp_path)[case]
    with pytest.raises(ConfigError) as caught:
        load(path, Zoo)
    assert caught.value.message == message.format(path)


def test_path_with_a_nul_character() -> None:
    with pytest.raises(ConfigError, match="not a path"):
        load(Path("a\0b"), Zoo)


def test_an_override_is_blamed_on_whoever_said_it() -> None:
    document = Document.parse("name: x\nmood: calm\n", "zoo.yaml")
    document.override(("mood",), "clam", "--set mood=clam")
    document.override(("animals", "tom", "kind"), "cat", "--set animals.tom.kind=cat")
    document.override(("animals", "tom", "lifes"), 3, "--set animals.tom.lifes=3")
    with pytest.raises(ConfigError) as caught:
        document.validated(Zoo)
    assert sorted(caught.value.message.splitlines()) == [
        "--set animals.tom.lifes=3: animals.tom.lifes: unknown key (did you mean 'lives'?)",
        "--set mood=clam: mood: must be calm or wild, not 'clam' (did you mean 'calm'?)",
    ]


def test_null_is_a_value_that_an_override_can_give() -> None:
    document = Document.parse("name: x\nmood: calm\n", "zoo.yaml")
    document.override(("mood",), None, "--set mood=null")
    document.override(("animals", "tom"), None, "--set animals.tom=null")
    assert document.value == {"name": "x", "mood": None, "animals": {"tom": None}}
    document.remove(("mood",), "--set mood=")
    document.remove(("animals", "tim"), "--set animals.tim=")
    assert document.value == {"name": "x", "animals": {"tom": None}}


def complaint(read: Callable[[], object]) -> str | None:
    """The message of a ConfigError, ``None`` without one; anything else fails the test."""
    try:
        read()
    except ConfigError as error:
        return error.message
    return None


def is_placed(message: str | None, name: str) -> bool:
    return message is None or all(line.startswith(name + ":") for line in message.splitlines())


@given(st.text())
def test_any_text_is_a_model_or_a_config_error(text: str) -> None:
    assert is_placed(complaint(lambda: parse(text, Zoo, "zoo.yaml")), "zoo.yaml")


PIECES = (
    *("name", "animals", "kind", "cat", ": ", ":", "\n", "\n  ", "- ", "[", "]", "{", "}", ", "),
    *(
        "&a ",
        "*a",
        "!!int ",
        "!!str ",
        "!t ",
        "'",
        '"',
        "\\",
        "\\x",
        "\\U",
        "#",
        "|",
        ">",
        "%YAML ",
    ),
    *(
        "---\n",
        "...\n",
        "? ",
        "<<",
        "~",
        "1",
        "0x",
        "1e9",
        "9" * 30,
        "true",
        "\t",
        "\x85",
        "\u2028",
    ),
    *("\ufeff", "@", "`", "\ud800"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_any_text_of_yaml_pieces_is_a_model_or_a_config_error(text: str) -> None:
    assert is_placed(complaint(lambda: parse(text, Zoo, "zoo.yaml")), "zoo.yaml")


@given(st.binary())
def test_any_bytes_are_a_model_or_a_config_error(raw: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(raw)
        file.flush()
        assert is_placed(complaint(lambda: load(Path(file.name), Zoo)), file.name)


def test_a_file_at_rest_is_read_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    an_hour_later(monkeypatch)
    file = tmp_path / "zoo.yaml"
    write_atomic(file, "name: a\n")
    reads: list[str] = []
    monkeypatch.setattr(
        Document,
        "read",
        lambda path, _read=Document.read: (reads.append(path.name), _read(path))[1],
    )
    first = load(file, Zoo)
    assert (load(file, Zoo), reads) == (first, ["zoo.yaml"])
    write_atomic(file, "name: b\n")
    assert (load(file, Zoo).name, len(reads)) == ("b", 2)
    write_atomic(file, "nam: b\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match="nam: unknown key"):
            load(file, Zoo)
