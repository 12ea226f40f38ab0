"""The table of docs/serving.md, which `make soak-servers` makes again."""

import json
from pathlib import Path

BEGIN = "<!-- begin: make soak-servers -->"
END = "<!-- end: make soak-servers -->"
#: Rows in their order: what is tried, as the table calls it.
ROWS = {
    "chat": "chat: TTFT; answer; tokens",
    "completions": "completions: TTFT; answer; tokens",
    "choices": "`n: 2`: tokens",
    "fixed": "fixed lengths",
    "held_back": "stop text: TTFT",
    "rate": "rate, req/s: offered; answered",
    "sweep": "sweep, req/s: knee; most seen",
    "evaluation_chat": "evaluation, chat: tokens",
    "evaluation_completions": "evaluation, completions, three budgets: tokens",
    "unlimited": "unlimited",
    "probability": "choice by probability",
    "resume": "killed, started again, resumed",
}


class Table:
    """Cells by server and row, kept in a file: each worker, and a part of a run, adds to it."""

    def __init__(self, path: Path):
        self._path = path
        self._cells: dict[str, dict[str, str]] = (
            json.loads(path.read_text()) if path.exists() else {}
        )

    def put(self, server: str, row: str, text: str) -> None:
        """Set a cell."""
        assert row == "title" or row in ROWS
        self._cells.setdefault(server, {})[row] = text
        self._path.write_text(json.dumps(self._cells))

    def markdown(self) -> str:
        """Return the table, one column for each server."""
        titles = [cells.get("title", server) for server, cells in self._cells.items()]
        lines = ["|  | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
        for row, shown in ROWS.items():
            cells = [cells.get(row, "not run") for cells in self._cells.values()]
            lines.append(f"| {shown} | " + " | ".join(cells) + " |")
        return "\n".join(lines)


def write_into(page: Path, table: Table) -> None:
    """Replace the table of a page."""
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin
    assert end
    page.write_text(f"{before}{BEGIN}\n\n{table.markdown()}\n\n{END}{after}")
