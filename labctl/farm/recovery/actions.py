"""The actions of switches: a program of this host, or a request to a device in its network."""

import os
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from labctl import process
from labctl.config.switches import Action, CommandAction, HttpAction
from labctl.errors import ConfigError, HostError
from labctl.http import Unreachable, read_body, request

#: Maximum length of an answer. Its content does not matter.
_MOST_BYTES = 64 << 10


def act(action: Action, folder: Path) -> None:
    """Do an action; programs run in ``folder``. Raises HostError if it does not succeed."""
    if isinstance(action, CommandAction):
        _run(action, folder)
    else:
        _ask(action)


def check_secrets(actions: list[Action]) -> None:
    """Raise ConfigError for a secret that is not in the environment."""
    for action in actions:
        if isinstance(action, HttpAction):
            _headers(action)


def _run(action: CommandAction, folder: Path) -> None:
    done = process.run(action.command, timeout=action.timeout, cwd=folder)
    if done.exit_status != 0:
        raise HostError(
            f"{Path(action.command[0]).name} ended with status {done.exit_status}",
            details=done.tail() or None,
        )


def _ask(action: HttpAction) -> None:
    place = urlsplit(action.address).netloc
    content = None if action.body is None else action.body.encode()
    try:
        with request(
            action.method,
            action.address,
            headers=_headers(action),
            content=content,
            connect_s=action.timeout,
            silence_s=action.timeout,
            follow=False,
            direct=True,  # a switch is in this network: no proxy, no ~/.netrc
        ) as answer:
            read_body(answer, within_s=action.timeout, most_bytes=_MOST_BYTES)
            status = answer.status_code
    except Unreachable as error:
        why = f"not within {action.timeout:g} s" if error.timed_out else error.message
        raise HostError(f"the switch at {place} does not answer: {why}") from error
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise HostError(f"the switch at {place} answers with status {status}")


def _headers(action: HttpAction) -> dict[str, str]:
    headers = {} if action.body is None else {"Content-Type": "application/json"}
    if (name := action.authorization_env) is not None:
        if not (value := os.environ.get(name)):
            raise ConfigError(
                f"the environment variable {name}, which a switch needs, is not set",
                hint="set it for the user who runs labctl; devices.yaml has only its name",
            )
        headers["Authorization"] = value
    return headers
