"""Files of tests that `make quick` leaves out: some seconds of a processor each.

They try many values of damage, hostile texts or chance, simulate days, or start many processes.
In `make quick`, `pytest --durations 20` shows which ones to add.
"""

from pathlib import Path

#: folder of tests/ -> NAMEs of its files test_NAME.py
_NAMES = {
    "": "signals",
    "board": "agent_source cputimes",
    "bundle": "bundles redaction reproduction",
    "cli": "commands_without_database grade_command latency_match_command output_encoding"
    " output_options report_files root shells_complete start_up",
    "compare": "relative_gates",
    "engines": "command",
    "evaluation": "evaluation_resume evaluation_run",
    "evaluation/graders": "hostile_texts pool",
    "evaluation/serving": "load_test_command server_clock",
    "farm": "night_jobs night_journal nightly_night nights_in_a_row recovery",
    "hdc": "server_tasks",
    "models": "hub_models pypi_model",
    "readers": "fuzzed_readers",
    "report": "figures page",
    "runs": "repository untrusted_recipe",
    "state": "board_leases claims damaged_rows database_away job_order lab_state new_state uses",
    "stats": "accuracy_intervals coverage rhythm step_detection",
    "virtual": "sandbox",
    "web": "damaged_files damaged_state hostile_client load_test_pages serve_command",
}
SLOW = frozenset(
    Path(__file__).parents[1] / folder / f"test_{name}.py"
    for folder, names in _NAMES.items()
    for name in names.split()
)
