"""A command on a board whose caller is interrupted again and again: it is killed all the same."""

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import logging, signal, sys
    from labctl import interrupts
    from labctl.transport.sentinel import Framed, execute

    interrupts.install()
    interrupts.begin()
    logging.basicConfig(format="%(message)s", stream=sys.stdout)


    class Board:
        '''A board's shell. It is pressed while each script is sent and while its answer comes.'''

        failure = None

        def __init__(self, answers):
            self.scripts, self.answers = [], answers

        def __call__(self, script, *, timeout):
            self.scripts.append(script)
            signal.raise_signal(signal.SIGINT)
            interrupts.sleep(0.01)
            if script.startswith("{"):
                yield b""
                yield script.partition("echo ")[2].partition("$$")[0].encode() + b"123\\n"
                yield b"working\\n"
                raise AssertionError("the command was not interrupted")
            signal.raise_signal(signal.SIGINT)
            interrupts.sleep(0.01)
            if self.answers:
                yield b"done\\n"
            signal.raise_signal(signal.SIGINT)
            interrupts.sleep(0.01)


    board, printed = Board(ANSWERS), []
    try:
        execute(board, Framed.around("work"), label="b", timeout=9, write=printed.append)
    except KeyboardInterrupt:
        print("interrupted")
    interrupts.finish()
    print(*("kill -9 -123" in script for script in board.scripts), *printed)
"""


@pytest.mark.parametrize("answers", [True, False])
def test_a_command_is_killed_however_often_it_is_interrupted(answers: bool) -> None:
    """The first signal comes before the board has told which process is to be killed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT.replace("ANSWERS", str(answers)))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    said = [] if answers else ["b: it may still run on the board: work"]
    assert done.stdout.splitlines() == [*said, "interrupted", "False True"]
