/* The loop that reads a job's streams, stamps them, watches its limits and buries it. */
#ifndef LABCTL_SUPERVISE_H
#define LABCTL_SUPERVISE_H

#include <limits.h>

#include "agent.h"
#include "job.h"
#include "lateness.h"
#include "sampler.h"
#include "sink.h"
#include "state.h"
#include "survivors.h"
#include "util.h"

enum phase {
    RUNNING,
    DRAINING,    /* it has ended; what it left may still write for a moment */
    TERMINATING, /* asked to end */
    KILLING,     /* being killed */
    OVER,
};

struct usage {
    int64_t user_ns, system_ns, max_rss_bytes, minor_faults, major_faults;
};

struct supervisor {
    const struct run_options *options;
    char boot_id[BOOT_ID_SIZE];
    char dir_path[PATH_MAX];
    int dir;
    int signals; /* signalfd */

    struct job job;
    const char *emulator;
    struct sink streams[2], timeline, samples, counts;
    struct output output[2];
    struct sampler sampler;

    enum phase phase;
    int64_t phase_end_ns;
    int64_t flush_ns, lease_ns; /* when each is next due */
    bool children;              /* something of the job still lives */

    bool confined;       /* the job had a PID namespace of its own */
    const char *outcome; /* why the agent ended it; NULL: it ended by itself */
    char error[512];     /* empty: none */
    struct usage usage;
    struct survivors survivors; /* of earlier jobs */
    int leftovers; /* processes still there after the program's own end, killed */
    int unkilled;  /* processes that even SIGKILL did not end in time */
    int64_t longest_pause_ns;
    int64_t listening_ns; /* when it last had nothing else to do */
    struct lateness lateness;
    struct state state; /* of the board */
    int64_t asleep_before_ns; /* as of asleep_ns() at its start */
    int64_t oom_kills_before;
};

/* Run the job to its end. The streams, the timeline and the telemetry are on disk afterwards. */
void supervise(struct supervisor *supervisor);

/* started.json, also as a line of text for who launched the agent. False with errno set. */
bool started_write(const struct supervisor *supervisor, char **line);
/* Keep blocks for status.json, for the day the disk is full. */
void status_reserve(const struct supervisor *supervisor);
/* status.json: atomic, durable, last. outcome NULL: from the job's wait status. */
bool status_write(struct supervisor *supervisor);
/* Processes the kernel's out-of-memory killer has ended since boot, -1 where it does not count. */
int64_t oom_kills(void);

#endif
