"""The times of a job's tree while its processes end."""

from pathlib import Path

import pytest
from agent_builds import HOST

from labctl import process
from labctl.build.zig import environment, locate, zig_flags
from labctl.config.target import load_target
from labctl.package_data import TOOLCHAINS

PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
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

static void work(long ms)
{
    struct timespec used = { 0 };
    while (used.tv_nsec < ms * 1000000)
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
}

static int ready[2];

/* Works, says so, and stays until the tree is killed. */
static void *start_worker(void *unused)
{
    if (fork() == 0) {
        work(200);
        write(ready[1], "", 1);
        pause();
    }
    return unused;
}

/* One is started by a thread that has ended, one has lost its parent. */
static void start_tree(void)
{
    pthread_t thread;
    pipe(ready);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pthread_create(&thread, NULL, start_worker, NULL);
        pthread_join(thread, NULL);
        pause();
    }
    const pid_t parent = fork();
    if (parent == 0) {
        start_worker(NULL);
        _exit(0);
    }
    waitpid(parent, NULL, 0);
    for (char byte, count = 0; count < 2 && read(ready[0], &byte, 1) == 1; count++)
        ;
}

/* A look while this process may open nothing more. */
static void look_without_descriptors(struct cputimes *times)
{
    struct rlimit before, none;
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    if (times->has_children && cputimes_look(times))
        puts("looked at nothing");
    setrlimit(RLIMIT_NOFILE, &before);
}

static void *wait_for_the_end(void *unused)
{
    pause();
    return unused;
}

int main(int count, char **words)
{
    struct cputimes times;
    siginfo_t info;
    (void)count;
    waited_for_first = *words[1] == '1';
    cputimes_open(&times);
    times.has_children = strcmp(words[2], "lists") == 0;
    if (*words[1] == 't') {
        start_tree();
    } else {
        if ((ended = fork()) == 0) {
            work(400);
            _exit(0);
        }
        waitid(P_PID, (id_t)ended, &info, WEXITED | WNOWAIT);
    }
    for (int i = 0; i < 2; i++) {
        if (cputimes_look(&times))
            printf("%lld\n", (long long)times.tree_ns / 1000000);
        look_without_descriptors(&times);
        if (*words[1] == 'm') /* many threads, from the second look on */
            for (int k = 0; k < 100; k++)
                pthread_create(&(pthread_t){ 0 }, NULL, wait_for_the_end, NULL);
    }
    if (*words[1] == 'm')
        printf("%d %d\n", cputimes_look(&times), times.has_children);
    printf("%d\n", times.reclaim_ns >= 0);
    fflush(stdout);
    kill(0, SIGKILL); /* the tree as well */
    return 0;
}
"""
#: Of the kernel, or made of all processes where it has none.
WAYS = ["all", *(["lists"] if Path("/proc/thread-self/children").exists() else [])]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two looks at a tree: of a child that is waited for during the first, or of two workers.

    Prints the CPU time in ms that each saw, and 1 where threads that free memory are to be seen.
    """
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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["0", "1"], ids=["after it was asked", "before it is asked"])
def test_a_process_that_ends_during_a_look_is_not_counted_twice(
    program: Path, when: str, way: str
) -> None:
    """Twice stayed for good, because the sum never falls: others then seemed to use nothing."""
    done = process.run([program, when, way], timeout=60)
    first, second, _ = map(int, done.text.split())
    assert first < 450
    assert 350 < second < 450


@pytest.mark.parametrize("way", WAYS)
def test_what_a_thread_started_and_what_lost_its_parent_belong_to_the_tree(
    program: Path, way: str
) -> None:
    done = process.run([program, "tree", way], timeout=60)
    first, second, _ = map(int, done.text.split())
    assert 360 < first <= second < 500


def test_both_ways_find_the_threads_that_free_memory(program: Path) -> None:
    """Also after a look for which there were no descriptors, which is none."""
    seen = {way: process.run([program, "0", way], timeout=60).text.split()[-1] for way in WAYS}
    assert len(set(seen.values())) == 1, seen


@pytest.mark.parametrize("way", WAYS)
def test_the_lists_of_many_threads_are_not_gone_through(program: Path, way: str) -> None:
    done = process.run([program, "many threads", way], timeout=60)
    *_, looked, has_children, reclaim = done.text.split()
    assert (looked, has_children) == ("1", "0")
    assert reclaim == process.run([program, "0", way], timeout=60).text.split()[-1]
