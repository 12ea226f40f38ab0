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

/* In the child: become the program, or write the errno to `report`. */
static void become(char **argv, const char *path, int dir, const int streams[2], int report,
                   pid_t supervisor)
{
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no job without its supervisor */
    if (getppid() != supervisor)
        _exit(EXIT_FAILURE);
    default_signals();
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(streams[0], STDOUT_FILENO) >= 0 &&
        dup2(streams[1], STDERR_FILENO) >= 0 && fchdir(dir) == 0) {
        if (null > STDERR_FILENO)
            close(null);
        emulated_exec(path, argv, environ);
    }
    int error = errno;
    write_all(report, &error, sizeof error);
    _exit(EXIT_FAILURE);
}

static int exec_result(int report)
{
    int error = 0;
    ssize_t got;
    do
        got = read(report, &error, sizeof error);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof error ? error : 0; /* closed by exec: it runs */
}

static void close_pair(int pair[2])
{
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
}

int job_spawn(struct job *job, char **argv, int dir, const char *dir_path, const char **emulator,
              bool *exec_failed)
{
    static char path[PATH_MAX];
    int out[2] = { -1, -1 }, err[2] = { -1, -1 }, report[2] = { -1, -1 }, error;
    *exec_failed = false;
    *emulator = NULL;
    if (!find_program(argv[0], getenv("PATH"), path, sizeof path)) {
        *exec_failed = true;
        return errno;
    }
    *emulator = emulator_for(path, environ);
    setenv("LABCTL_JOB", dir_path, 1); /* so that `agent stop` knows what a job left */
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0)
        goto failed;
    const int streams[2] = { out[1], err[1] };
    const pid_t supervisor = getpid();
    job->start_utc_ns = clock_ns(CLOCK_REALTIME);
    job->start_ns = monotonic_ns();
    job->pid = fork();
    if (job->pid < 0)
        goto failed;
    if (job->pid == 0)
        become(argv, path, dir, streams, report[1], supervisor);
    close(out[1]);
    close(err[1]);
    close(report[1]);
    error = exec_result(report[0]);
    close(report[0]);
    if (error) {
        close(out[0]);
        close(err[0]);
        waitpid(job->pid, NULL, 0);
        *exec_failed = true;
        return error;
    }
    job->pipes[0] = out[0];
    job->pipes[1] = err[0];
    for (int i = 0; i < 2; i++)
        fcntl(job->pipes[i], F_SETFL, O_NONBLOCK);
    return 0;

failed:
    error = errno;
    close_pair(out);
    close_pair(err);
    close_pair(report);
    return error;
}
