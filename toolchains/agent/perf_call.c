#define _GNU_SOURCE
#include "perf_call.h"

#include <sys/syscall.h>
#include <unistd.h>

int perf_open(const struct perf_event_attr *attributes, pid_t pid)
{
    return (int)syscall(SYS_perf_event_open, attributes, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

bool perf_read(int fd, struct perf_count *count)
{
    return read(fd, count, sizeof *count) == (ssize_t)sizeof *count;
}
