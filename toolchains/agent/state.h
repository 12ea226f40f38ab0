/* What of the board's state decides how fast a job is: how its CPUs are clocked and cooled meanwhile,
 * and how much of a file was in memory before it began. */
#ifndef LABCTL_STATE_H
#define LABCTL_STATE_H

#include <stddef.h>
#include <stdint.h>

#include "json.h"

#define STATE_MEMBERS_MAX 32

/* A file of lines "key number" that only grow, such as time_in_state, as it was at the start. */
struct residency {
    char name[64];    /* whose it is */
    char text[64];    /* how it is set: the governor */
    int64_t low, high; /* between which frequencies it may run; -1: unknown */
    int fd;           /* -1: the kernel does not count */
    char *before;
};

struct residencies {
    size_t count;
    struct residency list[STATE_MEMBERS_MAX];
};

struct state {
    struct residencies clocks, cooling;
    struct json devfreq; /* as of devfreq_write */
    int64_t file_bytes, resident_bytes; /* -1: not asked for, or not to be known */
};

/* Look before the job starts. file: NULL for none. */
void state_begin(struct state *state, const char *file);
/* Members "cpufreq", "cooling", "devfreq" and "resident": as they were then, and what grew since. */
void state_write(const struct state *state, struct json *json);
/* The devices of devfreq (memory, GPU, NPU), how each is clocked now and may be: an array. */
void devfreq_write(struct json *json);

#endif
