"""What is left out of a bundle, in every form that programs write it."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_made import run

from labctl.bundle.identity import secrets_of, vocabulary_of
from labctl.bundle.redact import Redactor, Secret
from labctl.errors import ConfigError

SECRETS = [
    Secret("lab", "/home/alice/labs/rk"),
    Secret("home", "/home/alice"),
    Secret("user", "alice"),
    Secret("host", "vm"),
    Secret("serial", "7001005458323933"),
    Secret("path", "/mnt/näs/models"),
]


def redactor(*words: str) -> Redactor:
    return Redactor(SECRETS, frozenset(words))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("load /home/alice/labs/rk/models/x.gguf", "load <lab>/models/x.gguf"),
        ("/home/alice/labs/rk2/x, /home/bob/y", "<home>/labs/rk2/x, <home>/y"),
        ("alice@vm: vm-extra, kvm, vmlinux, VM", "<user>@<host>: vm-extra, kvm, vmlinux, VM"),
        ("serial 7001005458323933.", "serial <serial>."),
        ('{"p": "\\/mnt\\/n\\u00e4s\\/models\\/q"}', '{"p": "<path>\\/q"}'),
        ('{"p": "/mnt/n\\u00e4s/models"}', '{"p": "<path>"}'),
        ("C:\\Users\\Bob\\x", "<home>\\x"),
        ("192.168.1.20:5555 and 127.0.0.1:80", "<address>:5555 and 127.0.0.1:80"),
        ("OpenHarmony 5.0.0.71, hdc 3.1.0.200", "OpenHarmony 5.0.0.71, hdc 3.1.0.200"),
        ("from 10.1.2.3, http://8.8.4.4/x", "from <address>, http://<address>/x"),
        ("mac 02:42:ac:11:00:02 at 11:38:53", "mac <address> at 11:38:53"),
        ("fe80::1ff:fe23:4567:890a std::abc::fed", "<address> std::abc::fed"),
        ("someone@example.org", "<address>"),
        ("https://bob:secret@example.org/x", "https://<key>@example.org/x"),
        ("Authorization: Bearer abcdefghijklmnopqrst", "Authorization: Bearer <key>"),
        ("hf_abcdefghijklmnopqrstuvwx", "<key>"),
        ("sk-proj-abcdefghij0123456789 task-proj", "<key> task-proj"),
        ("xoxb-123456789012-abcdef", "<key>"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl", "<key>"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUt/nFEMI", "AWS_SECRET_ACCESS_KEY=<key>"),
        ("PGPASSWORD=hunter2 psql", "PGPASSWORD=<key> psql"),
        ('password: "hunter2", x', 'password: "<key>", x'),
        ('{\\"api_key\\": \\"abcd1234\\"}', '{\\"api_key\\": \\"<key>\\"}'),
        ("CI_JOB_TOKEN=abcdefgh01234567", "CI_JOB_TOKEN=<key>"),
        ("eos_token = 151643, EOS_TOKEN=2", "eos_token = 151643, EOS_TOKEN=2"),
        ("Authorization: Basic Ym9iOnNlY3JldA==", "Authorization: Basic <key>"),
        ("mac 02-42-AC-11-00-FF.", "mac <address>."),
        ("connect to 81.92.13.5 port 22", "connect to <address> port 22"),
        ("Connected to 81.92.13.5.", "Connected to <address>."),
        ("inet addr:81.92.13.5, host 81.92.13.6", "inet addr:<address>, host <address>"),
        (r"\\fileserver\models\x.gguf", r"\\<host>\models\x.gguf"),
        (r'"\\\\fileserver\\models"', r'"\\\\<host>\\models"'),
        (r"\d\\w\\s", r"\d\\w\\s"),
        ("at vm.local, vm.lan.example.org.", "at <host>, <host>."),
        ("vm.context_length u32, vm.Q8_0.gguf", "vm.context_length u32, vm.Q8_0.gguf"),
        ('password="correct horse battery" x', 'password="<key>" x'),
        ("secret: 'it\"s so', x", "secret: '<key>', x"),
        (r'password="a \"b\" c" x', 'password="<key>" x'),
        (r"{\"password\": \"a b c\", \"x\": 1}", r"{\"password\": \"<key>\", \"x\": 1}"),
        ("passphrase='cut off here\nx", "passphrase='<key>\nx"),
        ("password=abc, password: no", "password=<key>, password: no"),
        ("/Users/Jane Doe/x, /home/bob in /x", "<home>/x, <home> in /x"),
        (r"C:\Users\Jane Doe\x, c:\\users\\Jo Doe\\x", r"<home>\x, <home>\\x"),
        ("version 1.2.3.4 port 5, 1.2.3.4 port 5", "version 1.2.3.4 port 5, <address> port 5"),
    ],
)
def test_an_identity_is_replaced_and_what_only_looks_like_one_is_not(text: str, shown: str) -> None:
    assert redactor().text("x", text) == shown


def test_a_private_key_in_a_log_is_replaced_whole() -> None:
    body = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\nBBBB\n-----END OPENSSH PRIVATE KEY-----"
    assert redactor().text("x", f"a\n{body}\nb") == "a\n<key>\nb"


@given(
    st.lists(
        st.sampled_from(
            [s.text for s in SECRETS] + [" ", "\n", "token", "\xff", "vm.lan", "PGPASSWORD=ab12"]
        )
    )
)
def test_a_raw_log_keeps_its_length_so_that_the_timeline_fits(parts: list[str]) -> None:
    raw = " ".join(parts).encode("utf-8") + b"\xff\x00"
    shown = redactor().raw("stdout", raw)
    assert len(shown) == len(raw)
    for secret in SECRETS:
        if secret.kind != "host":
            assert secret.text.encode() not in shown
    for place, byte in enumerate(raw):  # lines stay lines
        assert (byte == 10) == (shown[place] == 10)


def test_json_keeps_its_keys_and_its_form() -> None:
    document = {"host": "build7", "vm": "on vm", "list": ["/home/alice/x", 1, None], "serial": None}
    made = redactor().json("x.json", json.dumps(document).encode())
    assert json.loads(made) == {
        "host": "<host>", "vm": "on <host>", "list": ["<home>/x", 1, None], "serial": None,
    }  # fmt: skip
    lines = redactor().json("x.jsonl", b'{"a": "vm"}\n{"b": 2}\n', lines=True)
    assert [json.loads(line) for line in lines.splitlines()] == [{"a": "<host>"}, {"b": 2}]
    assert redactor().json("x.json", b"cut off: alice") == b"cut off: xxxxx"


def test_a_word_of_the_experiment_stays_and_that_is_said() -> None:
    found = redactor("vm", "alice")
    assert found.text("x", "recipe vm of alice in /home/alice") == "recipe vm of alice in <home>"
    assert found.kept == {"host 'vm'", "user 'alice'"}


def test_a_name_in_a_path_or_a_description_is_none_of_the_experiment() -> None:
    record = run(
        recipe="q2",
        recipe_resolved={
            "description": "measured by alice",
            "prompt_file": "alice/prompt.txt",
            "files": {"grammar": "alice/x.gbnf"},
            "models": {
                "a": {"file": "alice/tiny.gguf"},
                "b": {"hub": {"repository": "vm/tiny", "file": "x.gguf"}},
            },
        },
    )
    found = Redactor(SECRETS, vocabulary_of(record))
    told = found.value("x", record.recipe_resolved)
    assert "alice" not in json.dumps(told)
    assert told["models"]["a"] == {"file": "<user>/tiny.gguf"}
    assert told["models"]["b"] == record.recipe_resolved["models"]["b"]
    assert found.kept == {"host 'vm'"}
    found = Redactor([Secret("host", "x")], vocabulary_of(record))
    assert found.text("x", "x.gguf of x.lan, x") == "x.gguf of <host>, <host>"


def test_counts_say_what_was_left_out_and_where() -> None:
    found = redactor()
    found.text("a", "vm alice vm")
    found.raw("b", b"/home/alice")
    assert dict(found.counts) == {("a", "host"): 2, ("a", "user"): 1, ("b", "home"): 1}


@pytest.mark.parametrize(
    ("home", "text", "shown"),
    [
        ("/tmp", "/tmp/x, tmp, /data/local/tmp", "/tmp/x, tmp, /data/local/tmp"),
        ("/data", "/data/local/tmp data", "/data/local/tmp data"),
        ("/labctl", "/tmp/labctl/x labctl /labctl/y", "/tmp/labctl/x labctl <home>/y"),
        ("/home/labctl", "/tmp/labctl/x labctl /home/labctl/y", "/tmp/labctl/x labctl <home>/y"),
        ("/home/jane", "jane /home/jane/x", "<user> <home>/x"),
        ("/nfs/home/lab/jane", "jane -I/nfs/home/lab/jane/x", "<user> -I<home>/x"),
    ],
)
def test_only_a_home_of_a_person_names_one(
    home: str, text: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container the user has a number, and a home that is any folder."""
    monkeypatch.setattr("labctl.bundle.identity.user_name", lambda: "1000")
    monkeypatch.setenv("HOME", home)
    record = run(recipe_resolved={"name": "q2"})
    found = Redactor(secrets_of(record, tmp_path / "runs" / record.id, None))
    assert found.text("x", text) == shown


def test_the_lab_tells_its_own_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "carol"))
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "devices.yaml").write_text(
        "lab: secret-lab\nboards:\n  rk1:\n    target: rk3568\n"
        "    transport: {kind: hdc, link: server, key: 7001005458323933328a01ce1c2f3900,"
        " server: gate:8710}\n"
        "    workdir: /data/local/tmp/labctl\n"
        "build_hosts:\n  big: {address: big.example.org, user: dave, key: /keys/of/dave/id}\n"
    )
    record = run(
        host="desk.example.org",
        recipe_resolved={"name": "q2", "models": {"m": {"file": "/srv/of/carol/m.gguf"}}},
    )
    found = Redactor(secrets_of(record, lab / "runs" / record.id, lab), vocabulary_of(record))
    text = (
        "desk desk.example.org 7001005458323933328a01ce1c2f3900 gate:8710 big.example.org dave"
        " carol"
        f" secret-lab {lab}/x {tmp_path}/home/carol/y /srv/of/carol/m.gguf /keys/of/dave/id"
        " /data/local/tmp/labctl rk1 q2"
    )
    assert found.text("x", text) == (
        "<host> <host> <address> <address> <address> <user> <user>"
        " <lab> <lab>/x <home>/y <path>/m.gguf <path>/id"
        " /data/local/tmp/labctl rk1 q2"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [("boards: {\n", 2), ("lab: secret-lab\nlab: other\n", 2), ("lab: a\n\n? [b]\n: c\n", 3)],
)
def test_a_lab_that_cannot_be_read_is_not_published(text: str, line: int, tmp_path: Path) -> None:
    (tmp_path / "devices.yaml").write_text(text)
    record = run(recipe_resolved={"name": "q2"})
    with pytest.raises(ConfigError, match=rf"devices\.yaml:{line}:") as caught:
        secrets_of(record, tmp_path / "runs" / record.id, tmp_path)
    assert caught.value.line == line


def test_a_lab_with_wrong_keys_tells_its_secrets_too(tmp_path: Path) -> None:
    (tmp_path / "devices.yaml").write_text("boards: {b: {adress: x, user: dave, key: 10:30:59}}\n")
    record = run(recipe_resolved={"name": "q2"})
    found = Redactor(secrets_of(record, tmp_path / "runs" / record.id, tmp_path))
    assert found.text("x", "dave 10:30:59") == "<user> <address>"


def test_a_console_is_named_by_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "devices.yaml").write_text(
        "boards:\n  a: {console: {device: 'socket://serial7.corp:4001'}}\n"
        "  b: {console: {device: 'socket://127.0.0.1:4002'}}\n"
    )
    record = run(recipe_resolved={"name": "q2"})
    found = Redactor(secrets_of(record, tmp_path / "runs" / record.id, tmp_path))
    shown = found.text("x", "at socket://serial7.corp:4001, serial7.corp, socket://127.0.0.1:4002")
    assert "serial7" not in shown
    assert "socket://127.0.0.1:4002" in shown


def test_a_run_outside_a_lab_has_no_devices(tmp_path: Path) -> None:
    record = run(recipe_resolved={"name": "q2"})
    secrets = secrets_of(record, tmp_path / "runs" / record.id, tmp_path)
    assert "address" not in {one.kind for one in secrets}


@pytest.mark.parametrize(
    "piece",
    [
        b"-----BEGIN PRIVATE KEY-----\n", b"1.2.3.4.", b"ab:cd:", b"a@", b"b.c-", b"/home/",
        b"://", b"x", b"password", b"eyJ", b"A_TOKEN", b"\\\\a", b"host ", b"12-", b"vm.",
        b'password="', b'secret=\\"a', b"/home/a A", b"/labctl",
    ],
)  # fmt: skip
def test_a_log_made_to_be_slow_is_not(piece: bytes) -> None:
    """A program writes what it likes: 300 kB of it take a fraction of a second, not minutes."""
    raw = piece * (300_000 // len(piece))
    began = time.process_time()
    redactor().raw("stdout", raw)
    assert time.process_time() - began < 10
