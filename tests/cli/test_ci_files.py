"""Files of docs/ci/: each is what its service reads, and says where it was not run."""

import shutil
import sys
from pathlib import Path

import pytest

from labctl import process
from labctl.package_data import DOCS

FILES = DOCS / "ci"


@pytest.mark.parametrize(
    ("schema", "name"),
    [("vendor.github-workflows", "github-actions.yml"), ("vendor.gitlab-ci", "gitlab-ci.yml")],
)
def test_a_file_has_the_schema_of_its_service(schema: str, name: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    checked = process.run([*words, FILES / name], timeout=120)
    assert checked.exit_status == 0, checked.text + checked.tail()
    wrong = tmp_path / name
    wrong.write_text(
        (FILES / name).read_text().replace("runs-on", "runs_on").replace("script:", "scrypt:")
    )
    assert process.run([*words, wrong], timeout=120).exit_status == 1


def test_the_timer_and_its_service_are_units_of_systemd(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for name in ("labctl-nightly.service", "labctl-nightly.timer", "labctl-worker@.service"):
        shutil.copy(FILES / name, tmp_path)
    units = [tmp_path / "labctl-nightly.timer", tmp_path / "labctl-nightly.service"]
    units.append(
        (tmp_path / "labctl-worker@.service").rename(tmp_path / "labctl-worker@lab2.service")
    )
    checked = process.run(["systemd-analyze", "verify", "--man=no", *units], timeout=120)
    assert checked.exit_status == 0, checked.tail()
    assert "labctl-" not in checked.tail()


def test_each_file_says_that_it_was_not_run_on_its_service() -> None:
    names = sorted(path.name for path in FILES.iterdir())
    assert len(names) == 6
    for name in names:
        assert "was not run" in (FILES / name).read_text(), name


def test_no_file_runs_what_strangers_propose_with_the_labs_secrets() -> None:
    import yaml

    found = yaml.safe_load((FILES / "github-actions.yml").read_text())
    assert set(found[True]) == {"schedule", "workflow_dispatch"}
