"""The times of a job's tree while its processes end."""

from pathlib import Path

import pytest
from agent_builds import HOST

from labctl import process
from labctl.build.zig import environment, locate, zig_flags
from labctl.config.target import load_target
from labctl.shipped import TOOLCHAINS

PROGRAM = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static int reap_and_ask(int who, struct rusage *usage);
#define getrusage reap_and_ask
#include "cputimes.c"
#undef getrusage

static pid_t ended;
static int waited_for_first;

static int reap_and_ask(int who, struct rusage *usage)
{
    int done = 0;
    if (waited_for_first && ended > 0)
        ended = waitpid(ended, NULL, 0) > 0 ? 0 : ended;
    done = getrusage(who, usage);
    if (ended > 0)
        ended = waitpid(ended, NULL, 0) > 0 ? 0 : ended;
    return done;
}

int main(int count, char **words)
{
    struct cputimes times;
    struct timespec used = { 0 };
    siginfo_t info;
    (void)count;
    waited_for_first = atoi(words[1]);
    cputimes_open(&times);
    if ((ended = fork()) == 0) {
        while (used.tv_nsec < 400000000)
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
        _exit(0);
    }
    waitid(P_PID, (id_t)ended, &info, WEXITED | WNOWAIT);
    for (int i = 0; i < 2; i++)
        if (cputimes_look(&times))
            printf("%lld\n", (long long)times.tree_ns / 1000000);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two looks at the tree of a child that uses 0.4 s and is waited for during the first."""
    folder = tmp_path_factory.mktemp("cputimes")
    source, output = folder / "main.c", folder / "main"
    source.write_text(PROGRAM)
    words = [locate().zig, "cc", *zig_flags(load_target(HOST), None)]
    agent = TOOLCHAINS / "agent"
    done = process.run(
        [*words, "-std=c11", "-I", agent, source, agent / "util.c", "-o", output],
        timeout=240,
        cwd=folder,
        env=environment(),
    )
    assert (done.exit_status, done.tail()) == (0, "")
    return output


@pytest.mark.parametrize("when", ["0", "1"], ids=["after it was asked", "before it is asked"])
def test_a_process_that_ends_during_a_look_is_not_counted_twice(program: Path, when: str) -> None:
    """Twice stayed for good, because the sum never falls: others then seemed to use nothing."""
    done = process.run([program, when], timeout=60)
    first, second = map(int, done.text.split())
    assert first < 450
    assert 350 < second < 450
