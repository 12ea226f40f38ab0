#define _GNU_SOURCE
#include "confine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util.h"

/* Beneath a /proc that is mounted over the board's, umount shows that. So the new one waits elsewhere,
 * for some kernels permit none where none is seen; where the old one stays, it comes over that. */
static bool change_proc(void)
{
    const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if (mount("proc", "/sys", "proc", flags, NULL) != 0)
        return mount("proc", "/proc", "proc", flags, NULL) == 0;
    while (umount2("/proc", MNT_DETACH) == 0) /* there may be several */
        ;
    return mount("/sys", "/proc", NULL, MS_MOVE, NULL) == 0;
}

bool confine_enter(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 &&
           change_proc();
}

/* What is inherited may be a lock, or a pipe whose end somebody waits for. */
static void close_all_but(int one, int other)
{
    DIR *open_files = opendir("/proc/self/fd");
    for (struct dirent *entry; open_files && (entry = readdir(open_files));) {
        const int fd = atoi(entry->d_name);
        if (fd > STDERR_FILENO && fd != one && fd != other && fd != dirfd(open_files))
            close(fd);
    }
    if (open_files)
        closedir(open_files);
}

/* The first process of the namespace: buries orphans, and ends after the last when it is told to. */
static _Noreturn void be_init(int ready, int told)
{
    struct signalfd_siginfo info;
    sigset_t children;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close_all_but(ready, told);
    prctl(PR_SET_DUMPABLE, 0); /* no job without rights changes this process */
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_SETMASK, &children, NULL);
    struct pollfd polled[2] = { { signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK), POLLIN, 0 },
                                { told, POLLIN, 0 } };
    const bool good = polled[0].fd >= 0 && getpid() == 1 && confine_enter();
    /* A supervisor that ended before prctl() does not read: then SIGPIPE, or an error. */
    if (!write_all(ready, good ? "+" : "-", 1) || !good)
        _exit(EXIT_FAILURE);
    close(ready);
    for (;;) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0 && errno == ECHILD && polled[1].fd < 0)
            _exit(EXIT_SUCCESS);
        if (poll(polled, 2, -1) <= 0)
            continue;
        while (read(polled[0].fd, &info, sizeof info) == (ssize_t)sizeof info)
            ;
        if (polled[1].revents)
            polled[1].fd = -1; /* poll passes over it */
    }
}

static pid_t start_init(struct confinement *c)
{
    int ready[2] = { -1, -1 }, told[2] = { -1, -1 };
    char answer = '-';
    pid_t init = -1;
    if (pipe2(ready, O_CLOEXEC) == 0 && pipe2(told, O_CLOEXEC) == 0 && (init = fork()) == 0) {
        close(ready[0]);
        close(told[1]);
        be_init(ready[1], told[0]);
    }
    for (int i = 0; i < 2; i++)
        if ((i ? ready[1] : told[0]) >= 0)
            close(i ? ready[1] : told[0]);
    while (init > 0 && read(ready[0], &answer, 1) < 0 && errno == EINTR)
        ;
    if (ready[0] >= 0)
        close(ready[0]);
    c->told = told[1];
    if (answer == '+')
        return init;
    confine_drain(c);
    if (init > 0)
        waitpid(init, NULL, 0);
    return 0;
}

void confine_begin(struct confinement *c)
{
    *c = (struct confinement){ .told = -1, .own = -1 };
    if (fake_number("no_pid_namespaces"))
        return;
    c->own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (c->own < 0)
        return;
    /* First the way back: in a user namespace there is none. */
    if (setns(c->own, CLONE_NEWPID) != 0 || unshare(CLONE_NEWPID) != 0) {
        close(c->own);
        c->own = -1;
    } else if (!(c->init = start_init(c))) {
        confine_leave(c);
    }
}

bool confine_leave(struct confinement *c)
{
    if (c->own < 0)
        return true;
    /* Without this the supervisor could start no thread. */
    const bool good = setns(c->own, CLONE_NEWPID) == 0;
    const int error = errno;
    close(c->own);
    c->own = -1;
    errno = error;
    return good;
}

void confine_drain(struct confinement *c)
{
    if (c->told >= 0)
        close(c->told);
    c->told = -1;
}
