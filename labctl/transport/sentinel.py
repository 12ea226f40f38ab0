"""Exit statuses over a link that carries none: the command's frame and how it is read back.

The frame prints the shell's process id first (so that the whole tree can be killed from another
channel) and the status last. The status line also proves that the output is complete.
"""

import re
import secrets
from dataclasses import dataclass


@dataclass(frozen=True)
class Framed:
    """A command in its frame. The nonce is new for each, so that no output can forge a status."""

    command: str
    nonce: str

    @classmethod
    def around(cls, command: str) -> "Framed":
        """``command`` with a fresh nonce."""
        return cls(command, f"labctl-{secrets.token_hex(16)}")

    @property
    def script(self) -> str:
        """What the board's shell gets."""
        # The newlines let the command end in a comment, its output end without a newline.
        return (
            f"echo {self.nonce}:$$;(\n{self.command}\n)</dev/null; "
            f"printf '\\n{self.nonce}:%d\\n' $?"
        )

    def process_id(self, output: bytes) -> int | None:
        """The id of the shell on the board, None while it is not known."""
        match = re.match(re.escape(self.nonce).encode() + rb":(\d+)\n", output)
        return int(match[1]) if match else None

    def printed(self, output: bytes) -> bytes:
        """What the command itself printed so far."""
        return output if self.process_id(output) is None else output[output.index(b"\n") + 1 :]

    def result(self, output: bytes) -> tuple[int, bytes] | None:
        """The command's exit status and its own output, None when it did not finish.

        What a background child printed after the end belongs to the output.
        """
        if self.process_id(output) is None:
            return None
        printed = self.printed(output)
        pattern = rb"\n" + re.escape(self.nonce).encode() + rb":(\d{1,3})\n"
        matches = list(re.finditer(pattern, printed))
        if not matches:
            return None
        last = matches[-1]
        return int(last[1]), printed[: last.start()] + printed[last.end() :]
