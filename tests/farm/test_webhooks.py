"""Webhooks: the forms of chats, their signatures, and what a hostile receiver or event gets."""

import base64
import hashlib
import hmac
import json
import socket
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from webhook_receiver import receiving

from labctl.config.lab import Lab, LabFile
from labctl.config.webhooks import Webhook
from labctl.errors import LabctlError
from labctl.farm import webhooks
from labctl.farm.webhook_forms import dingtalk_signature, feishu_signature, standard_signature
from labctl.farm.webhooks import LabEvent, notify

EVENT = LabEvent("board-quarantined", "board rk1 is in quarantine", "memory <b>slow", {"by": "x&y"})
OK = {
    "feishu": b'{"code": 0, "msg": "success"}',
    "dingtalk": b'{"errcode": 0, "errmsg": "ok"}',
    "slack": b"ok",
    "standard": b"",
}


def lab(root: Path, monkeypatch: pytest.MonkeyPatch, url: str, /, **hook: object) -> LabFile:
    monkeypatch.setenv("HOOK_ADDRESS", url)
    monkeypatch.setenv("HOOK_SECRET", "top-secret")
    values = {
        "form": "slack",
        "host": hook.pop("host", None) or urlsplit(url).hostname,
        "address": "env:HOOK_ADDRESS",
        "private": True,
        **hook,
    }
    return LabFile(
        root,
        Lab.model_validate(
            {"lab": "kitchen", "boards": {}, "webhooks": {"a": values}}, strict=False
        ),
    )


@pytest.mark.parametrize("form", OK)
def test_each_chat_gets_its_form_and_its_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    secret = {} if form == "slack" else {"secret": "env:HOOK_SECRET"}
    problems: list[str] = []
    with receiving((200, {}, OK[form])) as receiver:
        hooked = lab(
            tmp_path, monkeypatch, f"{receiver.address}/hook?access_token=t", form=form, **secret
        )
        assert notify(hooked, EVENT, note=problems.append) == 1
    assert problems == []
    (path, headers, body), said = receiver.came[0], json.loads(receiver.came[0][2])
    assert headers["host"] == urlsplit(receiver.address).netloc
    if form == "feishu":
        key = f"{said['timestamp']}\ntop-secret".encode()
        assert base64.b64decode(said["sign"]) == hmac.digest(key, b"", "sha256")
        text = said["content"]["text"]
    elif form == "dingtalk":
        query = parse_qs(urlsplit(path).query)
        signed = f"{query['timestamp'][0]}\ntop-secret".encode()
        assert len(query["timestamp"][0]) == 13
        assert base64.b64decode(query["sign"][0]) == hmac.digest(b"top-secret", signed, "sha256")
        assert query["access_token"] == ["t"]
        text = said["text"]["content"]
    elif form == "slack":
        text = said["text"]
        assert "memory &lt;b&gt;slow" in text
        assert "by: x&amp;y" in text
        return
    else:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(b"top-secret", signed, hashlib.sha256).digest())
        assert headers["webhook-signature"] == f"v1,{expected.decode()}"
        assert said["type"] == "board-quarantined"
        text = f"[{said['lab']}] {said['title']} {said['text']} by: {said['facts']['by']}"
    assert "[kitchen] board rk1 is in quarantine" in text
    assert "memory <b>slow" in text
    assert "by: x&y" in text


def test_signatures_are_those_that_others_make() -> None:
    """Feishu and DingTalk: by OpenSSL 3.5; Standard Webhooks: the example of its specification."""
    assert feishu_signature("demo", 1599360473) == "l1N0gAcBjdwBvGm1xMjOF0XSyaLRpR7tuO5dHfhAYc8="
    assert dingtalk_signature("SEC1", 1599360473.123) == (
        "059uB28LZAkEbiPbHc7M4XGYpC9iwOKHa3HHCCBUJZE="
    )
    secret, identity = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert standard_signature(secret, identity, 1614265330, b'{"test": 2432232314}') == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"address": "https://other.example/x"}, "does not belong to the host"),
        ({"address": "https://user:pw@127.0.0.1/x"}, "a login"),
        ({"address": "ftp://127.0.0.1/x"}, "must begin with https://"),
        ({"address": "http://[::1/x"}, "is not an address"),
        ({"private": False}, "must begin with https://"),
        ({"private": False, "https": True}, "has a private address"),
    ],
)
def test_no_other_host_is_contacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], said: str
) -> None:
    problems: list[str] = []
    with receiving() as receiver:
        own = receiver.address.replace("http", "https") if change.pop("https", False) else None
        given = str(change.pop("address", own or receiver.address))
        hooked = lab(tmp_path, monkeypatch, given, host="127.0.0.1", **change)
        assert notify(hooked, EVENT, note=problems.append) == 0
    assert receiver.came == []
    assert said in problems[0]


def test_a_name_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads elsewhere at the second look, as in DNS rebinding, leads nowhere."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def public_first(host: str, *words: object, **more: object) -> object:
        asked.append(str(host))
        if host == "chat.example" and len(asked) > 1:
            raise AssertionError("it is looked up again")
        return real("127.0.0.1" if host == "chat.example" else host, *words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(webhooks.socket, "getaddrinfo", public_first)
    with receiving() as receiver:
        port = urlsplit(receiver.address).port
        hooked = lab(tmp_path, monkeypatch, f"http://chat.example:{port}/x")
        assert notify(hooked, EVENT, note=asked.append) == 1
    assert receiver.came[0][1]["host"] == f"chat.example:{port}"


@pytest.mark.parametrize(
    ("answers", "form", "counts"),
    [
        ([(302, {"Location": "/other"}, b"")], "slack", (0, 1)),
        ([(200, {}, b'{"code": 19021, "msg": "sign match fail"}')], "feishu", (0, 1)),
        ([(200, {}, b'{"errcode": 310000}')], "dingtalk", (0, 1)),
        ([(200, {}, b"[" * 50_000)], "feishu", (0, 1)),
        ([(503, {}, b""), (200, {}, b"ok")], "slack", (1, 2)),
        ([(429, {}, b""), (429, {}, b""), (200, {}, b"ok")], "slack", (1, 3)),
    ],
    ids=["redirect", "refused by feishu", "refused by dingtalk", "deep", "busy", "too many"],
)
def test_answers_are_judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[tuple[int, dict[str, str], bytes]],
    form: str,
    counts: tuple[int, int],
) -> None:
    told, came = counts
    problems: list[str] = []
    with receiving(*answers) as receiver:
        hooked = lab(tmp_path, monkeypatch, f"{receiver.address}/hook-of-mine", form=form)
        assert notify(hooked, EVENT, note=problems.append) == told
    assert len(receiver.came) == came
    assert len(problems) == 1 - told
    assert "hook-of-mine" not in "".join(problems)
    assert "top-secret" not in "".join(problems)


def test_a_host_that_is_gone_is_one_line_without_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        hooked = lab(tmp_path, monkeypatch, f"{receiver.address}/hook-of-mine")
    problems: list[str] = []
    assert notify(hooked, EVENT, note=problems.append, seconds=0) == 0
    assert problems == ["webhook a: cannot reach 127.0.0.1: Connection refused"]


def test_an_event_that_nobody_wants_is_sent_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        hooked = lab(tmp_path, monkeypatch, receiver.address, events=["queue-stuck"])
        assert notify(hooked, EVENT, note=print) == 0
    assert receiver.came == []


@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_a_secret_that_others_may_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    secret = tmp_path / "hook"
    secret.write_text("https://127.0.0.1/x\n")
    secret.chmod(mode)
    problems: list[str] = []
    hooked = lab(tmp_path, monkeypatch, "https://127.0.0.1/x", address="file:hook")
    assert notify(hooked, EVENT, note=problems.append) == 0
    assert "others may read" in problems[0]


def test_a_board_makes_no_lines_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = LabEvent("queue-stuck", "x\n@all\x1b[2J", "y" * 10_000)
    with receiving() as receiver:
        hooked = lab(tmp_path, monkeypatch, receiver.address)
        assert notify(hooked, event, note=print) == 1
    text = json.loads(receiver.came[0][2])["text"]
    assert "\x1b" not in text
    assert text.count("\n") == 1
    assert len(text) < 3000


@pytest.mark.parametrize(
    "number",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
    ],
)
def test_no_way_into_a_private_network(number: str) -> None:
    assert not webhooks._is_public(number)
    assert webhooks._is_public("64:ff9b::0808:0808")
    assert webhooks._is_public("8.8.8.8")


def test_a_host_that_no_name_can_be(tmp_path: Path) -> None:
    hook = Webhook.model_validate(
        {"form": "slack", "host": "a..b", "address": "env:X", "events": ["night-ended"]}
    )
    with pytest.raises(LabctlError, match="cannot find"):
        webhooks._number(hook, "https://a..b/x")
