"""The page of one run: its report is a part of it."""

from pathlib import Path

from dashboards import served
from measured_lab import RUNS, measured_lab

from labctl.config.lab import find_lab
from labctl.transport.built_in import TRANSPORTS


def test_a_report_is_sent_once_and_again_when_its_run_changes(tmp_path: Path) -> None:
    root = measured_lab(tmp_path / "lab")
    with served(find_lab(root, TRANSPORTS)) as found, found.client() as client:
        path = f"/runs/{RUNS[0]}"
        whole = client.get(path).text
        assert "<svg" in whole
        assert whole.count("<h1>") == whole.count("<main") == whole.count("<body") == 1
        assert "style=" not in whole, "the policy of pages forbids it"
        stamp = whole.partition('data-stamp="')[2].partition('"')[0]
        known = client.get(path, headers={"Labctl-Known": stamp}).text
        assert "<svg" not in known
        assert f'data-stamp="{stamp}"' in known
        (root / "runs" / RUNS[0] / "annotations.json").write_text('{"schema_version": 1}')
        assert "<svg" in client.get(path, headers={"Labctl-Known": stamp}).text
        assert (
            "<svg"
            in client.get(path, headers={"Accept-Language": "zh", "Labctl-Known": stamp}).text
        )
