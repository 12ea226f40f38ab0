"""When ``labctl hdc forward`` gives up."""

from dataclasses import dataclass

import pytest

from labctl.cli.hdc.ports import is_over
from labctl.errors import BoardError, CommandTimeout, DeviceLost, LinkError
from labctl.transport.testing import Answer, ScriptedTransport


@dataclass
class Rule:
    """Connections that are carried until they fail."""

    listen: str = "tcp:1"
    failure: LinkError | None = None


@pytest.mark.parametrize(
    ("answer", "over"),
    [
        ("", False),
        (CommandTimeout("a slow user's bytes stand before the answer"), False),
        (DeviceLost("gone"), True),
        (BoardError("no shell"), True),
    ],
)
def test_only_what_is_surely_gone_ends_it(answer: Answer, over: bool) -> None:
    assert is_over(ScriptedTransport(answer), Rule()) is over


def test_a_rule_that_failed_is_over_though_the_board_answers() -> None:
    assert is_over(ScriptedTransport(""), Rule(failure=DeviceLost("the link broke")))
