/* What CPU and kernel count while a job runs (perf_event_open(2)): cycles, instructions, refills of the
 * last cache, accesses to the bus, stalled cycles, CPU time, page faults, context switches.
 *
 * Each is one descriptor, without groups, opened before the program starts and enabled by its start, for
 * all that it starts. Where the CPU has fewer counters than events, the kernel takes turns: values are
 * scaled by the share of the time in which the event was counted, and that share is reported. */
#ifndef LABCTL_COUNTERS_H
#define LABCTL_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "json.h"
#include "sink.h"

#define COUNTERS 8

struct counter {
    int fd;
    char why[160];     /* it is not counted */
    int64_t value;     /* scaled, as last read; -1: never */
    int64_t permille;  /* of the time in which it was counted */
};

struct counters {
    struct counter list[COUNTERS];
    bool user_only;     /* the kernel's work is not counted */
    char refills[32];   /* the event of the last cache */
    int64_t opened_ns, due_ns;
    bool ended;
};

/* Before the process starts its program. */
void counters_open(struct counters *counters, pid_t pid);
/* A line of the sink: {"mono_ns":…,"counts":{…}}. Not always: it takes 1/3000 of the time at most, and a
 * long job has few lines a second. last: the final one, always. */
void counters_read(struct counters *counters, struct sink *sink, int64_t now, bool last);
/* An object, or null: counts, counted_permille (below 1000), absent (why), user_only, refill_event, line_bytes. */
void counters_write(const struct counters *counters, struct json *json);

#endif
