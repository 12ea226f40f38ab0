"""Forms of messages: the robots of Feishu, DingTalk and Slack, and signed JSON.

Sources of the forms and signatures: open.feishu.cn, "Custom bot usage guide"; open.dingtalk.com,
"Custom robot, security settings"; api.slack.com, "Incoming webhooks" and "Formatting text";
standardwebhooks.com, "Signature scheme".
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from labctl.config.printed import read_json
from labctl.errors import ConfigError

_JSON = {"Content-Type": "application/json; charset=utf-8"}
#: Prefix of a secret in the form of standardwebhooks.com.
_STANDARD_PREFIX = "whsec_"


@dataclass(frozen=True)
class Message:
    """A signed message; the address and the headers are secrets."""

    address: str = field(repr=False)
    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: _JSON, repr=False)


def message_of(
    form: str, event: Mapping[str, Any], address: str, secret: str | None, now: float
) -> Message:
    """Return an event as a message of a form, signed at ``now`` (s since 1970).

    Raises ConfigError if the form needs a secret and the webhook has none.
    """
    if form == "standard":
        return _standard(event, address, secret, now)
    title, lines = _words(event)
    if form == "feishu":
        document: dict[str, Any] = {
            "msg_type": "text",
            "content": {"text": "\n".join([title, *lines])},
        }
        if secret is not None:
            document |= {"timestamp": f"{now:.0f}", "sign": feishu_signature(secret, now)}
        return Message(address, _bytes(document))
    if form == "dingtalk":
        if secret is not None:
            signed = {"timestamp": f"{now * 1000:.0f}", "sign": dingtalk_signature(secret, now)}
            address = f"{address}{'&' if '?' in address else '?'}{urlencode(signed)}"
        document = {"msgtype": "text", "text": {"content": "\n".join([title, *lines])}}
        return Message(address, _bytes(document))
    text = "\n".join(map(_slack, (title, *lines)))
    # mrkdwn off: text from a board must make no links and mention no people.
    return Message(address, _bytes({"text": text, "mrkdwn": False, "link_names": False}))


def refusal(form: str, status: int, body: bytes) -> str | None:
    """Return why an answer refuses a message; None: accepted. Robots refuse with status 200."""
    if not 200 <= status < 300:
        return f"status {status}"
    if form not in ("feishu", "dingtalk"):
        return None
    try:
        said = read_json(body)
    except ValueError:
        return "its answer is not JSON"
    if not isinstance(said, dict):
        return "its answer is not a JSON object"
    code = said.get("errcode") if form == "dingtalk" else said.get("code", said.get("StatusCode"))
    if code == 0 and not isinstance(code, bool):
        return None
    return f"code {code}" if isinstance(code, int) else "its answer has no code"


def feishu_signature(secret: str, now: float) -> str:
    """Sign with HMAC-SHA256 of an empty message; the key is the time in s and the secret."""
    key = f"{now:.0f}\n{secret}".encode()
    return _base64(hmac.new(key, b"", hashlib.sha256).digest())


def dingtalk_signature(secret: str, now: float) -> str:
    """Sign with HMAC-SHA256 of the time in ms and the secret; the key is the secret."""
    text = f"{now * 1000:.0f}\n{secret}".encode()
    return _base64(hmac.new(secret.encode(), text, hashlib.sha256).digest())


def standard_signature(secret: str, identity: str, now: float, body: bytes) -> str:
    """Sign with HMAC-SHA256 of id, time in s and body. Raises ConfigError for a wrong secret."""
    key = secret.encode()
    if secret.startswith(_STANDARD_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_STANDARD_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError("the webhook's secret is not base64 after whsec_") from None
    signed = f"{identity}.{now:.0f}.".encode() + body
    return f"v1,{_base64(hmac.new(key, signed, hashlib.sha256).digest())}"


def _standard(event: Mapping[str, Any], address: str, secret: str | None, now: float) -> Message:
    if secret is None:
        raise ConfigError("a webhook of the form standard needs a secret, which signs its messages")
    body = _bytes(event)
    # The same event has the same id in each attempt, so that a receiver recognizes it.
    identity = f"msg_{hashlib.sha256(body).hexdigest()[:32]}"
    headers = {
        **_JSON,
        "webhook-id": identity,
        "webhook-timestamp": f"{now:.0f}",
        "webhook-signature": standard_signature(secret, identity, now, body),
    }
    return Message(address, body, headers)


def _words(event: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return an event for people: a title, and further lines."""
    facts = [f"{name}: {value}" for name, value in event["facts"].items()]
    return f"[{event['lab']}] {event['title']}", [*filter(None, [event["text"]]), *facts]


def _slack(text: str) -> str:
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return text


def _bytes(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
