/* The two calls of perf events that counters.c makes. Tests put a stand-in in their place: where there
 * is no counter in hardware, the kernel opens only those of software. */
#ifndef LABCTL_PERF_CALL_H
#define LABCTL_PERF_CALL_H

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* As read: what was counted, how long it should have counted, and how long it did. */
struct perf_count {
    uint64_t value, enabled_ns, running_ns;
};

/* A descriptor for all threads and processes that a process will have; -1 with errno set. */
int perf_open(const struct perf_event_attr *attributes, pid_t pid);
bool perf_read(int fd, struct perf_count *count);

#endif
