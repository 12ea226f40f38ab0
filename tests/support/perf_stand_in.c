/* Perf events of a CPU that this machine may not have, in place of perf_call.c.
 *
 * STAND_IN_USER_ONLY: as for a user where perf_event_paranoid is 2. Counts grow with the time since the
 * descriptor was opened; last-level refills are counted in half of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "perf_call.h"
#include "util.h"

static struct perf_event_attr opened[1024];
static int64_t since_ns[1024];

int perf_open(const struct perf_event_attr *attributes, pid_t pid)
{
    const struct perf_event_attr *a = attributes;
    errno = EINVAL;
    if (pid <= 0 || !a->disabled || !a->inherit || !a->enable_on_exec)
        return -1;
    errno = EACCES;
    if (getenv("STAND_IN_USER_ONLY") && !a->exclude_kernel)
        return -1;
    errno = ENOENT;
    if (a->type == PERF_TYPE_HARDWARE && a->config == PERF_COUNT_HW_STALLED_CYCLES_BACKEND)
        return -1;
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fd >= 1024)
        return -1;
    opened[fd] = *a;
    since_ns[fd] = monotonic_ns();
    return fd;
}

/* Events in 1000 ns. */
static uint64_t rate(const struct perf_event_attr *a)
{
    if (a->type == 8) /* the driver of armv8_pmuv3 */
        return a->config == 0x11 ? 2000 : a->config == 0x08 ? 3000 : a->config == 0x2a ? 40 : 7;
    if (a->type == PERF_TYPE_HARDWARE)
        return a->config == PERF_COUNT_HW_CPU_CYCLES     ? 2000
               : a->config == PERF_COUNT_HW_INSTRUCTIONS ? 1000
                                                         : 10;
    return 1;
}

bool perf_read(int fd, struct perf_count *count)
{
    const uint64_t ns = (uint64_t)(monotonic_ns() - since_ns[fd]);
    const bool turns = rate(&opened[fd]) == 40 || rate(&opened[fd]) == 10;
    count->enabled_ns = ns;
    count->running_ns = turns ? ns / 2 : ns;
    count->value = count->running_ns * rate(&opened[fd]) / 1000;
    return true;
}
