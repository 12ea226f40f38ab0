"""Webhooks of ``devices.yaml``: chats and servers to which events are reported."""

from typing import Literal

from labctl.config.secrets import SecretPlace
from labctl.config.yaml.document import StrictModel
from labctl.text_types import HostName

#: Events that are reported: a board is in quarantine, a night has its verdict, the queue stalls.
EventKind = Literal["board-quarantined", "night-ended", "queue-stuck"]


class Webhook(StrictModel):
    """A chat or a server to which events are reported."""

    form: Literal["feishu", "dingtalk", "slack", "standard"]
    """Form of the message: of a chat's robot, or `standard`: JSON, signed as standardwebhooks.com
    says."""
    host: HostName
    """The only host that is contacted; redirections are not followed."""
    address: SecretPlace
    """Place of the whole address, which holds the right to send: env:VARIABLE or file:PATH."""
    secret: SecretPlace | None = None
    """Place of the key that signs each message; Slack has none."""
    events: tuple[EventKind, ...] = ("board-quarantined", "night-ended", "queue-stuck")
    """Events that are sent."""
    private: bool = False
    """Allow a host with a private address, and plain http."""
