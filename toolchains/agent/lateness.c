#define _GNU_SOURCE
#include "lateness.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util.h"

/* By system call: musl's functions of these names are of processes, and refuse. */
static bool schedule(int policy, int priority)
{
    const struct sched_param parameters = { .sched_priority = priority };
    return syscall(SYS_sched_setscheduler, 0, policy, &parameters) == 0;
}

void be_real_time(void)
{
    schedule(SCHED_FIFO | SCHED_RESET_ON_FORK, 1);
}

void be_normal(void)
{
    schedule(SCHED_OTHER, 0);
}

const char *scheduler(void)
{
    return (syscall(SYS_sched_getscheduler, 0) & ~SCHED_RESET_ON_FORK) == SCHED_FIFO ? "fifo"
                                                                                    : "other";
}

/* The second number of schedstat (Documentation/scheduler/sched-stats.rst). A kernel that does not
 * count writes "0 0 0"; no thread that reads this has never run. */
static int64_t waits_ns(int schedstat)
{
    char text[96];
    unsigned long long ran, waited;
    if (schedstat < 0 || reread_small(schedstat, text, sizeof text) <= 0 ||
        sscanf(text, "%llu %llu", &ran, &waited) != 2 || ran == 0)
        return -1;
    return (int64_t)waited;
}

void lateness_open(struct lateness *l)
{
    l->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    l->before_ns = waits_ns(l->schedstat);
    l->wait_ns = l->longest_ns = l->longest_pause_ns = -1;
    l->pause_ns = 0;
    if (l->before_ns < 0 && l->schedstat >= 0) {
        close(l->schedstat);
        l->schedstat = -1;
    }
}

static void charge_pause(struct lateness *l, int64_t ns)
{
    if (ns > l->longest_pause_ns)
        l->longest_pause_ns = ns;
}

void lateness_pause(struct lateness *l, int64_t ns, bool came)
{
    l->pause_ns = ns;
    if (came)
        charge_pause(l, ns);
}

void lateness_note(struct lateness *l, bool standard_output, bool standard_error)
{
    if (standard_output)
        charge_pause(l, l->pause_ns);
    const int64_t now_ns = waits_ns(l->schedstat);
    if (now_ns < 0)
        return;
    const int64_t wait_ns = now_ns - l->before_ns;
    l->before_ns = now_ns;
    if (!standard_output && !standard_error)
        return;
    if (wait_ns > l->longest_ns)
        l->longest_ns = wait_ns;
    if (standard_output)
        l->wait_ns = (l->wait_ns < 0 ? 0 : l->wait_ns) + wait_ns;
}
