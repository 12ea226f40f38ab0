#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulate.h"
#include "lateness.h"
#include "survivors.h"
#include "util.h"

extern char **environ;

static void default_signals(void)
{
    struct sigaction action = { .sa_handler = SIG_DFL };
    sigset_t none;
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &action, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

struct spawn_failure {
    int error;
    enum spawn_step step;
};

static bool take_cpus(const cpu_set_t *wanted)
{
    cpu_set_t got;
    if (!wanted)
        return true;
    if (sched_setaffinity(0, sizeof *wanted, wanted) != 0 ||
        sched_getaffinity(0, sizeof got, &got) != 0)
        return false;
    errno = ENODEV;
    return CPU_EQUAL(wanted, &got); /* the kernel drops those that are not there in silence */
}

static bool take_nice(int increment)
{
    errno = 0;
    return increment == 0 || nice(increment) != -1 || errno == 0;
}

/* As much as may be locked, or what is permitted of it; started.json tells how much that is. */
static void take_memlock(void)
{
    struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
    if (setrlimit(RLIMIT_MEMLOCK, &limit) == 0 || getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_MEMLOCK, &limit);
}

/* Daemons that start shells are often shielded from the out-of-memory killer (adbd, hdcd), and their
 * children with them: a job that is too large must not have the rest of the board killed instead. */
static void give_up_protection(void)
{
    char text[16];
    if (read_small(AT_FDCWD, "/proc/self/oom_score_adj", text, sizeof text) <= 0 || *text != '-')
        return;
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        write_all(fd, "0", 1);
        close(fd);
    }
}

/* In the child: become the program, or write a spawn_failure to `report`. */
static void become(const struct job_call *call, const char *path, const int streams[2], int report,
                   const int go[2], pid_t supervisor, bool confined)
{
    struct spawn_failure failure = { .step = SPAWN_CPUS };
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no job without its supervisor */
    if (!confined && getppid() != supervisor) /* a namespace has ended with it */
        _exit(EXIT_FAILURE);
    default_signals();
    give_up_protection();
    be_normal();
    mark_job(call->dir_path);
    if (!take_cpus(call->cpus))
        goto failed;
    failure.step = SPAWN_NICE;
    if (!take_nice(call->nice))
        goto failed;
    if (call->memlock)
        take_memlock();
    failure.step = SPAWN_RESOURCES;
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(streams[0], STDOUT_FILENO) < 0 ||
        dup2(streams[1], STDERR_FILENO) < 0 || fchdir(call->dir) != 0 ||
        (confined && !confine_enter())) /* after fchdir: a directory that is open stays outside */
        goto failed;
    if (null > STDERR_FILENO)
        close(null);
    failure.step = SPAWN_PROGRAM;
    char none;
    close(go[1]);
    while (read(go[0], &none, 1) < 0 && errno == EINTR) /* until what counts it is ready */
        ;
    emulated_exec(path, call->argv, environ);
failed:
    failure.error = errno;
    write_all(report, &failure, sizeof failure);
    _exit(EXIT_FAILURE);
}

static struct spawn_failure exec_result(int report)
{
    struct spawn_failure failure;
    ssize_t got;
    do
        got = read(report, &failure, sizeof failure);
    while (got < 0 && errno == EINTR);
    /* closed by exec: it runs */
    return got == (ssize_t)sizeof failure ? failure : (struct spawn_failure){ 0 };
}

static void close_pair(int pair[2])
{
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
}

int job_spawn(struct job *job, const struct job_call *call, const char **emulator,
              enum spawn_step *step)
{
    static char path[PATH_MAX];
    int out[2] = { -1, -1 }, err[2] = { -1, -1 }, report[2] = { -1, -1 }, go[2] = { -1, -1 }, error;
    *step = SPAWN_RESOURCES;
    *emulator = NULL;
    if (!find_program(call->argv[0], getenv("PATH"), path, sizeof path)) {
        *step = SPAWN_PROGRAM;
        return errno;
    }
    *emulator = emulator_for(path, environ);
    setenv("LABCTL_JOB", call->dir_path, 1); /* so that `agent stop` knows what a job left */
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 ||
        pipe2(report, O_CLOEXEC) != 0 || pipe2(go, O_CLOEXEC) != 0)
        goto failed;
    const int streams[2] = { out[1], err[1] };
    const pid_t supervisor = getpid();
    confine_begin(&job->confinement);
    job->pid = fork();
    if (job->pid == 0)
        become(call, path, streams, report[1], go, supervisor, job->confinement.init > 0);
    if (job->pid < 0 || !confine_leave(&job->confinement))
        goto failed;
    close(out[1]);
    close(err[1]);
    close(report[1]);
    counters_open(&job->counters, job->pid);
    job->start_utc_ns = clock_ns(CLOCK_REALTIME);
    job->start_ns = monotonic_ns();
    close_pair(go);
    const struct spawn_failure failure = exec_result(report[0]);
    close(report[0]);
    if (failure.error) {
        close(out[0]);
        close(err[0]);
        waitpid(job->pid, NULL, 0);
        confine_drain(&job->confinement);
        *step = failure.step;
        return failure.error;
    }
    job->pipes[0] = out[0];
    job->pipes[1] = err[0];
    for (int i = 0; i < 2; i++)
        fcntl(job->pipes[i], F_SETFL, O_NONBLOCK);
    return 0;

failed:
    error = errno;
    confine_drain(&job->confinement); /* this process ends, and with it all that was started */
    close_pair(out);
    close_pair(err);
    close_pair(report);
    close_pair(go);
    return error;
}
