"""The files of ``labctl init``: a first devices.yaml and a first recipe."""

import json
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path

from labctl import package_data
from labctl.config.lab import WORKDIR
from labctl.config.yaml.document import Document, read_text
from labctl.config.yaml.edit import replace_value
from labctl.errors import ConfigError, printable_line

#: Address of ``labctl virtual-board`` by default.
VIRTUAL_BOARD_ADDRESS = "127.0.0.1:5555"
#: Folder of its storage, in the lab's folder.
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
  transport: {{{way}}}
"""
_OWN_WORKDIR = """\
  workdir: {workdir} # its own: this board is on this host
"""
_SSH_WORKDIR = """\
  workdir: {workdir} # on the board
"""

_EXAMPLE = """
  # A DAYU200 on a USB cable, its key as `hdc list targets` shows it.
  # rk1:
  #   target: rk3568
  #   transport: {kind: hdc, link: server, key: "7001005458323933328a01ce1c2f3900"}
  #   tags: [dayu200]
  #   limits: {max_time: 8h, storage: 20GB}
  #   description: DAYU200 on the desk, with the small fan
  # One on the network. Once, over USB: `hdc tmode port 5555`; then it listens at its address, which
  # `hdc shell ifconfig` shows.
  # rk2:
  #   target: rk3568
  #   transport: {kind: hdc, link: tcp, address: "192.168.1.20:5555"}
  # A board with sshd. Its host key has to be known: `labctl init --ssh` shows it.
  # rk3:
  #   target: rk3568
  #   transport: {kind: ssh, host: "192.168.1.21", user: root}
  #   workdir: /var/tmp/labctl
"""


def devices_yaml(
    found: Mapping[str, Mapping[str, str | int]] | None = None,
    *,
    target: str = "rk3568",
    virtual: bool = False,
) -> str:
    """Write a commented devices.yaml with the boards that were found.

    Args:
        found: boards by name, each with the keys of its transport (default ``kind``: hdc), and with
            ``workdir`` or ``target`` if they are not the usual ones; the first becomes the default
            board.
        target: target of boards without ``target``.
        virtual: add the virtual board; it is always added if no board was found.
    """
    boards = found or {}
    text = _HEAD.format(default=next(iter(boards), "virtual"))
    parts = []
    for name, keys in boards.items():
        parts.append(textwrap.indent(board_entry(name, keys, target), "  "))
    if virtual or not boards:
        folder = VIRTUAL_BOARD_FOLDER + WORKDIR
        parts.append(_VIRTUAL.format(target=target, address=VIRTUAL_BOARD_ADDRESS, workdir=folder))
    text += "\n".join(parts)
    text += "" if boards else _EXAMPLE
    return text


def board_entry(name: str, keys: Mapping[str, str | int], target: str) -> str:
    """Write one board, without indentation; its ``keys`` as :func:`devices_yaml` takes them."""
    ways = {"kind": "hdc", **keys}
    target = str(ways.pop("target", target))
    workdir = ways.pop("workdir", None)
    way = ", ".join(f"{k}: {_written(k, v)}" for k, v in ways.items())
    entry = _FOUND.format(name=name, target=target, way=way)
    if workdir is not None:
        text_of = _SSH_WORKDIR if ways["kind"] == "ssh" else _OWN_WORKDIR
        entry += text_of.format(workdir=_quoted(workdir))
    return entry


def _written(key: str, value: str | int) -> str:
    """Format a value of a transport: kinds and links are plain words."""
    return value if key in ("kind", "link") and isinstance(value, str) else _quoted(value)


def _quoted(text: str | int) -> str:
    """Quote a text as JSON for YAML, which cannot read a character written as two escapes."""
    return json.dumps(text, ensure_ascii=False)


def recipe_yaml(target: str, place: Path) -> str:
    """Return a first recipe for a target, ``q8_q2_latency.yaml``, to be written to ``place``."""
    return recipe_copy(package_data.RECIPES / "q8_q2_latency.yaml", place, target)


def recipe_copy(recipe: Path, place: Path, target: str | None = None) -> str:
    """Return the text of a recipe for a copy: its comments name ``place`` instead of its own file.

    ``place``: as a command takes it. ``target``: the copy's target, if another. Raises ConfigError
    if the recipe's style does not allow another target.
    """
    text = read_text(recipe) if target is None else _for_target(recipe, target)
    own, named = f"recipes/{recipe.name}", shlex.quote(printable_line(str(place)))
    return "".join(
        line.replace(own, named) if line.startswith("#") else line
        for line in text.splitlines(keepends=True)
    )


def _for_target(recipe: Path, target: str) -> str:
    text = read_text(recipe)
    before = Document.parse(text, str(recipe)).value
    wanted = {**before, "target": target} if isinstance(before, dict) else None
    try:
        changed = replace_value(text, "target", target)
        after = Document.parse(changed, str(recipe)).value
    except ConfigError:
        after = None
    if wanted is None or after != wanted:
        raise ConfigError(
            f"{recipe}: its target cannot be changed here",
            hint="copy it without --target, and change the copy by hand",
        )
    return changed
