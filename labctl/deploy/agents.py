"""The agent that belongs on a board, compared with the one that is there."""

from hashlib import sha256
from pathlib import Path

from labctl.board import BoardStore
from labctl.build import Artifact, find_artifact
from labctl.config.target import Target, load_target
from labctl.errors import BoardError, ConfigError, IntegrityError
from labctl.transport import BoardHash, Transport, require

AGENT_PRODUCT = "agent"
#: What ``uname -m`` says to 32-bit programs on a 64-bit kernel.
_COMPATIBLE = {"aarch64": "armv8l"}
#: Far above an agent's own size, far below that of what takes long to hash.
_PART_BYTES = 4 << 20
#: Patience for small questions, the hash of the agent among them.
_ANSWER_SECONDS = 20.0


def is_machine(target: Target, machine: str) -> bool:
    """Return whether ``uname -m`` is the target's; a 32-bit userland may say so of a 64-bit kernel.

    That such a board executes the target's programs is proven by its agent.
    """
    return machine in (target.machine, _COMPATIBLE.get(target.machine))


def agent_artifact(machine: str, target: Target, lab_root: Path) -> Artifact:
    """Find the agent for a machine as ``uname -m`` names it. Raises ConfigError: not built yet."""
    name = target.name if is_machine(target, machine) else f"host-{machine}"
    return find_artifact(name, AGENT_PRODUCT, lab_root=lab_root)


def agent_hash(transport: Transport, workdir: str, target: str, lab_root: Path) -> BoardHash | None:
    """Find how the agent hashes on a board; None unless it is there as this labctl built it.

    It hashes with all CPUs, by parts. The agent's own bytes are hashed twice: by the board's
    ``sha256sum``, which says that they are those that were built, then by the agent itself.
    Raises LinkError.
    """
    try:
        asked = transport.run("uname -m", timeout=_ANSWER_SECONDS)
        machine = require(asked, f"{transport.label}: cannot ask for its machine").text.strip()
        built = agent_artifact(machine, load_target(target, lab_root), lab_root).manifest
        own = built.tools[AGENT_PRODUCT]
        path = BoardStore(transport, workdir).path(own.sha256)
        seen = BoardHash("sha256", ("sha256sum",)).ask(
            transport, path, own.size_bytes, _ANSWER_SECONDS
        )
        if seen.hexadecimal != own.sha256:
            return None
        found = BoardHash("sha256", (path, "hash", "--parts", str(_PART_BYTES)), _PART_BYTES)
        # It is one part, and shows that this agent runs there and knows of parts.
        of_one_part = sha256(bytes.fromhex(own.sha256)).hexdigest()
        seen = found.ask(transport, path, own.size_bytes, _ANSWER_SECONDS)
    except (ConfigError, BoardError, IntegrityError):
        return None  # it was not built here, is not on the board, or does not run there
    return found if seen.hexadecimal == of_one_part else None
