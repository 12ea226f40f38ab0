"""The git revision of a lab, as a run's record has it."""

import re
from pathlib import Path

import pytest

from labctl import process
from labctl.runs.context import lab_revision


def test_a_lab_in_a_repository_has_its_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("GIT_DIR", "GIT_WORK_TREE"):
        monkeypatch.delenv(variable, raising=False)
    assert lab_revision(tmp_path) is None
    lab = tmp_path / "repository" / "lab"
    lab.mkdir(parents=True)
    (lab / "devices.yaml").write_text("lab: one\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "first")):
        done = process.run(["git", "-C", str(lab.parent), *words], timeout=60)
        assert done.exit_status == 0, done.stderr
    clean = lab_revision(lab)
    assert clean is not None
    assert re.fullmatch("[0-9a-f]{40}", clean)
    (tmp_path / "link").symlink_to(lab)
    assert lab_revision(tmp_path / "link") == clean
    (lab / "devices.yaml").write_text("lab: two\n")
    assert lab_revision(lab) == f"{clean}-dirty"
    for variable in ("GIT_DIR", "GIT_WORK_TREE"):  # as a hook of another repository has them
        monkeypatch.setenv(variable, str(tmp_path))
    assert lab_revision(lab) == f"{clean}-dirty"
    assert lab_revision(tmp_path) is None
