"""The compilers of `pip install 'labctl-boards[build]'` and of a checkout are the same."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_extra_and_the_lock_name_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "requirements.lock").read_text()
    locked = dict(re.findall(r"(?m)^([a-z0-9-]+)==([^ ]+)", lock))
    extra = dict(line.split("==") for line in project["optional-dependencies"]["build"])
    assert extra.keys() == {"cmake", "ninja", "ziglang"}
    assert extra == {name: locked[name] for name in extra}
