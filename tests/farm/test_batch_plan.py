"""What is known of a batch's boards before any of them is asked."""

from pathlib import Path

import pytest
from artifacts_made import make_artifact

from labctl.config.lab import find_lab
from labctl.errors import ConfigError
from labctl.farm.batch_plan import without_agent
from labctl.transport.built_in import TRANSPORTS

DEVICES = """\
boards:
  old: {target: rk3568, transport: {kind: hdc, link: tcp, address: "10.0.0.1:1"}}
  new: {target: rk3588, transport: {kind: hdc, link: tcp, address: "10.0.0.2:1"}}
"""


def test_boards_without_an_agent_are_told_and_refused_where_no_other_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABCTL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "devices.yaml").write_text(DEVICES)
    lab = find_lab(tmp_path, TRANSPORTS)
    with pytest.raises(ConfigError, match=r"no agent \(current\) is built for target rk3588"):
        without_agent(lab, {"old", "new"})
    make_artifact(tmp_path, "agent", target="rk3568", product="agent", version="current")
    assert list(without_agent(lab, {"old", "new"})) == ["new"]
    with pytest.raises(ConfigError) as refused:
        without_agent(lab, {"new"})
    assert refused.value.hint == "labctl build --target rk3588 --product agent"
