"""Reports events of the lab to the chats and servers of devices.yaml.

Only the configured host of a webhook is contacted, at a checked address, without a proxy and
without redirections. A failed report is a line for the log, never an error of the event itself.
"""

import ipaddress
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from labctl.config.lab import LabFile
from labctl.config.secrets import read_secret
from labctl.config.webhooks import EventKind, Webhook
from labctl.errors import ConfigError, HostError, LabctlError, printable_line
from labctl.farm.webhook_forms import Message, message_of, refusal
from labctl.http import Unreachable, read_body, request
from labctl.retry import retry_infra

#: Bounds of one attempt, in s, and of all attempts at one webhook.
_CONNECT_SECONDS, _SILENCE_SECONDS, _ANSWER_SECONDS = 5.0, 10.0, 15.0
_RETRY_SECONDS = 30.0
_MOST_ANSWER_BYTES = 64 * 1024
_LONGEST_TEXT = 2000
_MOST_FACTS = 30

Note = Callable[[str], None]


@dataclass(frozen=True)
class LabEvent:
    """An event for people. ``facts`` are shown one per line."""

    kind: EventKind
    title: str
    text: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    #: Seconds since 1970.
    at: float = field(default_factory=time.time)

    def document(self, lab: str) -> dict[str, object]:
        """Return it for JSON: each text is one line of bounded length, nothing else."""
        facts = list(self.facts.items())[:_MOST_FACTS]
        return {
            "type": self.kind,
            "lab": lab,
            "at": round(self.at, 3),
            "title": _line(self.title),
            "text": _line(self.text),
            "facts": {_line(name): _line(value) for name, value in facts},
        }


def notify(lab: LabFile, event: LabEvent, *, note: Note, seconds: float = _RETRY_SECONDS) -> int:
    """Send an event to each webhook that wants it; return the number of webhooks that accepted it.

    Waits for each webhook at most ``seconds`` and one attempt. ``note`` gets a line for each
    failure, without the webhook's address or secret.
    """
    told = 0
    for name, webhook in lab.lab.webhooks.items():
        if event.kind not in webhook.events:
            continue
        try:
            send(webhook, event.document(lab.name), lab, seconds=seconds)
        except LabctlError as error:
            note(f"webhook {name}: {error.message}")
        else:
            told += 1
    return told


def send(webhook: Webhook, document: Mapping[str, object], lab: LabFile, *, seconds: float) -> None:
    """Send an event to one webhook. Raises ConfigError, HostError, both without secrets."""
    address = _address(webhook, read_secret(webhook.address, lab.root))
    secret = read_secret(webhook.secret, lab.root) if webhook.secret else None

    def attempt() -> None:
        # Sign each attempt again: receivers refuse an old time.
        _post(webhook, message_of(webhook.form, document, address, secret, time.time()))

    retry_infra(attempt, on=(Unreachable,), timeout=seconds)


def _post(webhook: Webhook, message: Message) -> None:
    number = _number(webhook, message.address)
    try:
        status, body = _answer(message, number)
    except Unreachable as error:
        if not error.reason:
            raise
        # The gateway's text may contain the address, which is a secret here.
        raise Unreachable(f"cannot reach {webhook.host}: {error.reason}") from None
    if status >= 500 or status == 429:
        raise Unreachable(f"{webhook.host} answers with status {status}")
    if problem := refusal(webhook.form, status, body):
        raise HostError(
            f"{webhook.host} refuses the message: {problem}",
            hint="check the address and the secret of the webhook in devices.yaml",
        )


def _answer(message: Message, number: str) -> tuple[int, bytes]:
    with request(
        "POST",
        message.address,
        headers=message.headers,
        content=message.body,
        connect_s=_CONNECT_SECONDS,
        silence_s=_SILENCE_SECONDS,
        follow=False,
        direct=True,
        at=number,
    ) as answer:
        body = read_body(answer, within_s=_ANSWER_SECONDS, most_bytes=_MOST_ANSWER_BYTES)
        return answer.status_code, body


def _address(webhook: Webhook, address: str) -> str:
    """Check that an address is of the configured host. Raises ConfigError without the address."""
    where = f"the address in {webhook.address}"
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"{where} is not an address") from None
    if parts.scheme != "https" and not (parts.scheme == "http" and webhook.private):
        raise ConfigError(f"{where} must begin with https://")
    if host is None or host.casefold() != webhook.host.casefold():
        raise ConfigError(f"{where} does not belong to the host {webhook.host}")
    if "@" in parts.netloc or not address.isprintable() or " " in address:
        raise ConfigError(f"{where} has a login or blanks in it")
    return address


def _number(webhook: Webhook, address: str) -> str:
    """Look up the host and return its IP address. Raises ConfigError for a private network."""
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # not a host name: two dots, a part of 64 characters
        why = getattr(error, "strerror", None) or error
        unknown = Unreachable(f"cannot find {webhook.host}: {why}")
        raise unknown from error
    numbers = [str(one[4][0]) for one in found]
    if not webhook.private and not all(_is_public(number) for number in numbers):
        raise ConfigError(
            f"{webhook.host} has a private address, {numbers[0]}",
            hint="`private: true` at the webhook in devices.yaml allows it",
        )
    return numbers[0]


def _is_public(number: str) -> bool:
    address = ipaddress.ip_address(number.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            address = ipaddress.IPv4Address(address.packed[-4:])
        elif address.is_site_local:
            return False
        else:
            address = address.ipv4_mapped or address.sixtofour or address
    return address.is_global and not address.is_multicast


#: RFC 6052: the last 4 bytes are the IPv4 address that a translator reaches.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def _line(text: str) -> str:
    return printable_line(text)[:_LONGEST_TEXT]
