import inspect

import pytest

from labctl import errors
from labctl.errors import Blame, ConfigError, ExitStatus, InfraError, JobError, LabctlError

TREE = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, LabctlError) and error is not LabctlError
]


@pytest.mark.parametrize("error", TREE)
def test_every_error_has_one_blame_and_its_exit_status(error: type[LabctlError]) -> None:
    by_blame = {
        Blame.CONFIG: (ConfigError, ExitStatus.CONFIG),
        Blame.INFRA: (InfraError, ExitStatus.INFRA),
        Blame.JOB: (JobError, ExitStatus.JOB),
    }
    base, status = by_blame[error.blame]
    assert issubclass(error, base)
    assert error.exit_status == status


def test_no_text_of_a_board_controls_a_terminal() -> None:
    error = ConfigError("cannot: \x1b]0;owned\x07\x1b[2J\nübel", hint="\x9b2J")
    assert str(error) == error.message == "cannot: \\x1b]0;owned\\x07\\x1b[2J\nübel"
    assert error.hint == "\\x9b2J"


@pytest.mark.parametrize("error", TREE)
def test_the_docstring_draws_the_whole_tree(error: type[LabctlError]) -> None:
    assert f" {error.__name__}" in str(errors.__doc__)
