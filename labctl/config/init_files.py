"""The files of ``labctl init``: a first devices.yaml and a first recipe."""

import json
import re
from collections.abc import Mapping

from labctl import shipped
from labctl.config.lab import WORKDIR
from labctl.config.yaml.document import read_text

#: Where ``labctl virtual-board`` listens when it is not told.
VIRTUAL_BOARD_ADDRESS = "127.0.0.1:5555"
#: Where it keeps its storage then, in the lab's folder.
VIRTUAL_BOARD_FOLDER = "virtual-board"

_HEAD = """\
# The boards of this lab. Commands find this file from any folder below it.
# All keys: docs/devices.md, or `labctl schema devices` for an editor that completes.
default_board: {default}

boards:
"""

_VIRTUAL = """\
  # A board made of software. Start it in another terminal: labctl virtual-board
  virtual:
    target: {target}
    transport: {{kind: hdc, link: tcp, address: "{address}"}}
    workdir: {workdir} # in the lab's folder: this board is on this host
    description: the virtual board on this host
"""

_FOUND = """\
  {name}:
    target: {target}
    transport: {{kind: hdc, link: {link}, {rest}}}
"""
_OWN_WORKDIR = """\
    workdir: {workdir} # its own: this board is on this host
"""

#: What stands in a transport besides its kind and link.
_OF_TRANSPORT = ("address", "key")

_EXAMPLE = """
  # A DAYU200 on a USB cable, its key as `hdc list targets` shows it.
  # rk1:
  #   target: rk3568
  #   transport: {kind: hdc, link: server, key: "7001005458323933328a01ce1"}
  #   tags: [dayu200]
  #   limits: {max_time: 8h, storage: 20GB}
  #   description: DAYU200 on the desk, with the small fan
  # One on the network. Once, over USB: `hdc tmode port 5555`; then it listens at its address, which
  # `hdc shell ifconfig` shows.
  # rk2:
  #   target: rk3568
  #   transport: {kind: hdc, link: tcp, address: "192.168.1.20:5555"}
"""


def devices_yaml(
    found: Mapping[str, Mapping[str, str]] | None = None,
    *,
    target: str = "rk3568",
    virtual: bool = False,
) -> str:
    """Write a commented devices.yaml with the boards that were found.

    Args:
        found: boards by name, each with what its hdc transport has besides its kind, and with a
            ``workdir`` where it is not the usual one; the first becomes the default board.
        target: what they are.
        virtual: add the virtual board; it is there anyhow where no other board is.
    """
    boards = found or {}
    text = _HEAD.format(default=next(iter(boards), "virtual"))
    parts = []
    for name, keys in boards.items():
        rest = ", ".join(f"{k}: {_quoted(v)}" for k, v in keys.items() if k in _OF_TRANSPORT)
        part = _FOUND.format(name=name, target=target, link=keys["link"], rest=rest)
        if "workdir" in keys:
            part += _OWN_WORKDIR.format(workdir=_quoted(keys["workdir"]))
        parts.append(part)
    if virtual or not boards:
        workdir = VIRTUAL_BOARD_FOLDER + WORKDIR
        parts.append(_VIRTUAL.format(target=target, address=VIRTUAL_BOARD_ADDRESS, workdir=workdir))
    text += "\n".join(parts)
    text += "" if boards else _EXAMPLE
    return text


def _quoted(text: str) -> str:
    """Quote a text: YAML understands JSON, but no character that is written as two escapes."""
    return json.dumps(text, ensure_ascii=False)


def recipe_yaml(target: str) -> str:
    """Return a first recipe for a target: the shipped ``q8_q2_latency.yaml``. Raises
    ConfigError.
    """
    text = read_text(shipped.RECIPES / "q8_q2_latency.yaml")
    return re.sub(r"(?m)^target: .*$", f"target: {target}", text)
