"""A small C project with a history: slower, faster, broken, crashing and wrong commits, merges."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import agent_builds
from night_lab import RECIPE, SPEC

#: Milliseconds between two lines.
USUAL = 20.0
CODE = """\
/* {note} */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int main(int count, char **words) {{
  struct timespec pause = {{0, {pause}L}};
  for (int n = atoi(words[1]) - {fewer}; n > 0; n--) {{
    printf("tick\\n");
    fflush(stdout);
    nanosleep(&pause, 0);
  }}
  {end}
}}
"""


@dataclass(frozen=True)
class Commit:
    """A commit: its pause beside the usual one, and what is wrong with it."""

    note: str
    pause: float = 1.0
    #: ``broken`` does not compile, ``crash`` ends by a signal, ``wrong`` prints a line less.
    fault: str = ""
    #: Of a branch that is merged by the next commit of the main line.
    on_branch: bool = False


#: 26 commits; the main line has 24 of them.
HISTORY = (
    Commit("first"),
    Commit("docs: say what it prints"),
    Commit("comments only"),
    Commit("sampler: slower by 8 %", 1.08),
    Commit("docs: after the sampler", 1.08),
    Commit("revert the sampler"),
    Commit("docs: after the revert"),
    Commit("loop: faster by 8 %", 0.92),
    Commit("docs: after the loop", 0.92),
    Commit("does not compile", 0.92, "broken"),
    Commit("compiles again", 0.92),
    Commit("crashes", 0.92, "crash"),
    Commit("runs again", 0.92),
    Commit("docs on a branch", 0.92, on_branch=True),
    Commit("merge of docs", 0.92),
    Commit("cache on a branch: slower by 10 %", 1.012, on_branch=True),
    Commit("merge of the cache", 1.012),
    Commit("docs: after the cache", 1.012),
    Commit("lock: slower by another 8 %", 1.093),
    Commit("docs: after the lock", 1.093),
    Commit("revert the lock and the cache", 0.92),
    Commit("prints a line less", 0.92, "wrong"),
    Commit("prints all lines", 0.92),
    Commit("docs", 0.92),
    Commit("loop: slower again by 7 %", 0.984),
    Commit("docs: the end", 0.984),
)


@dataclass
class Project:
    """A repository with that history; ``ids`` by the number of a commit, from 0."""

    folder: Path
    ids: list[str] = field(default_factory=list)

    def git(self, *words: str) -> str:
        """Run git in it."""
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        argv = ["git", "-C", str(self.folder), *identity, *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    def push(self, number: int) -> None:
        """Let branch ``main`` be at a commit."""
        self.git("update-ref", "refs/heads/main", self.ids[number])


def source_of(commit: Commit) -> str:
    """The program of a commit."""
    text = CODE.format(
        note=commit.note,
        pause=round(USUAL * commit.pause * 1e6),
        fewer=int(commit.fault == "wrong"),
        end="abort();" if commit.fault == "crash" else "return 0;",
    )
    return text.replace("int main(", "int main{") if commit.fault == "broken" else text


def make_project(folder: Path) -> Project:
    """Make the repository; ``main`` is at its first commit."""
    folder.mkdir()
    project = Project(folder)
    project.git("init", "--quiet", "--initial-branch", "work")
    for commit in HISTORY:
        if commit.on_branch:
            project.git("switch", "--quiet", "-c", f"branch-{len(project.ids)}")
        elif project.ids and HISTORY[len(project.ids) - 1].on_branch:
            branch = project.git("branch", "--show-current")
            project.git("switch", "--quiet", "work")
            project.git("merge", "--quiet", "--no-ff", "-m", commit.note, branch)
            project.ids.append(project.git("rev-parse", "HEAD"))
            continue
        (folder / "ticker.c").write_text(source_of(commit))
        project.git("add", ".")
        project.git("commit", "--quiet", "-m", commit.note)
        project.ids.append(project.git("rev-parse", "HEAD"))
    project.push(0)
    return project


def give_project(root: Path, boards: list[str], *, find: str = "5%", time: str = "2h") -> Project:
    """Give a lab the project, its recipe, and a plan for some boards."""
    project = make_project(root / "upstream")
    first = f"git: {project.folder}, ref: {project.ids[0]}"
    spec = SPEC.replace("folder: ../../source/good", first)
    plan = (
        "name: project\nbuilds:\n  ticker:\n    product: ticker\n"
        f"    good: {{git: {project.folder}, ref: {project.ids[0]}}}\n"
        f"    head: {{git: {project.folder}, ref: main}}\n"
        f"rows:\n  - recipes: [recipes/ticking.yaml]\n    boards: [{', '.join(boards)}]\n"
        f"time: {time}\nfind: {find}\nbisect: true\n"
    )
    for name, text in (
        (f"toolchains/{agent_builds.HOST}/ticker.yaml", spec),
        ("models/any.bin", "\0" * 1000),
        ("recipes/ticking.yaml", RECIPE.replace("tokens: 9", "tokens: 12")),
        ("plan.yaml", plan),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return project
