import subprocess
import sys
from pathlib import Path

import pytest
from interleaved import medians, show

pytestmark = pytest.mark.bench


def test_help_costs_little_more_than_importing_click() -> None:
    labctl = Path(sys.executable).with_name("labctl")

    def run(*words: str | Path) -> None:
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    found = medians(
        40,
        {
            "import click": lambda: run(sys.executable, "-c", "import click"),
            "labctl --help": lambda: run(labctl, "--help"),
        },
    )
    show("start-up", found, "import click")
    assert found["labctl --help"] <= 1.6 * found["import click"]
