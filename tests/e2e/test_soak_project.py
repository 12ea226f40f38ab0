"""Nights of a project with 26 commits on two boards: all that was planted is found, and no else."""

import json
import os
from typing import Any

import pytest
from labs import LabUnderTest, said
from night_lab import second_board
from night_project import HISTORY, Project, give_project

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(14_400)]

#: Nights at most, for a host that is busy.
NIGHTS = int(os.environ.get("LABCTL_SOAK_NIGHTS", "100"))
#: Commit that is head, exit status, verdict, and the number of the commit that is named.
EXPECTED: tuple[tuple[int, int, str, int | None], ...] = (
    (2, 0, "same program", None),
    (4, 1, "slower", 3),
    (4, 1, "slower", 3),  # repeated, not searched again
    (6, 0, "same program", None),
    (8, 0, "good", None),
    (9, 1, "does not build", None),
    (10, 0, "same program", None),
    (11, 1, "fails", None),
    (14, 0, "same program", None),
    (17, 1, "slower", 16),  # by its merge
    (19, 1, "slower", None),  # of two commits: a range, or one of both
    (20, 0, "same program", None),
    # A line less is like two lines that came together: nobody knows, and no commit is blamed.
    (21, 3, "not measured", None),
    (23, 0, "same program", None),
    (25, 1, "slower", 24),
)


def night(lab: LabUnderTest, project: Project, head: int) -> tuple[int, dict[str, Any], str]:
    project.push(head)
    done = lab.run("nightly", "plan.yaml", "--json", timeout=7200)
    print(f"head {head} ({HISTORY[head].note}): status {done.exit_status}")
    result = json.loads(done.text)
    for line in (*result["headlines"], *(one["reason"] for one in result["searches"])):
        print("   ", line)
    for one in result["findings"]:
        print("   ", one["row"], one["verdict"], one["pairs"], one["reason"][:150])
    return done.exit_status, result, said(done)


def test_all_that_was_planted_is_found_and_nothing_else(native_lab: LabUnderTest) -> None:
    lab = native_lab
    with second_board(lab.root):
        project = give_project(lab.root, ["vb", "vb2"])
        for head, status, verdict, named in EXPECTED[:NIGHTS]:
            found, result, told = night(lab, project, head)
            assert found == status, told
            assert {one["verdict"] for one in result["findings"]} == {verdict}
            firsts = [one["first"] for one in result["searches"]]
            if named is not None:
                assert firsts == [project.ids[named]]
            elif verdict == "slower":
                planted = {project.ids[16], project.ids[18]}
                (search,) = result["searches"]
                assert search["first"] in {None, *planted}
                assert search["first"] or planted & {*search["candidates"]}
            else:
                assert firsts == []
