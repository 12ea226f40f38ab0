/* The one program that a supervisor runs. */
#ifndef LABCTL_JOB_H
#define LABCTL_JOB_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "confine.h"
#include "counters.h"

/* What may fail when a program is started. */
enum spawn_step {
    SPAWN_RESOURCES, /* of this machine */
    SPAWN_CPUS,      /* not all of these CPUs are there for it */
    SPAWN_NICE,      /* not permitted */
    SPAWN_PROGRAM,   /* it cannot be found or executed */
};

struct job_call {
    char **argv;
    int dir; /* working directory, and its path */
    const char *dir_path;
    const cpu_set_t *cpus; /* NULL: as inherited */
    int nice;              /* added to what is inherited */
    bool memlock;          /* it may lock as much memory as is permitted */
};

struct job {
    pid_t pid;
    bool ended;
    int wait_status;      /* as of waitpid; valid once ended */
    int pipes[2];         /* read ends of stdout and stderr, -1 after their end */
    int64_t start_ns;     /* CLOCK_MONOTONIC, just before exec */
    int64_t end_ns;       /* when its end was noticed */
    int64_t start_utc_ns;
    struct confinement confinement;
    struct counters counters;
};

/* Start argv in its own session, in the directory dir, with the streams in pipes.
 * emulator: where the emulator's command is put, NULL when it needs none.
 * 0, or the errno of what failed at *step. */
int job_spawn(struct job *job, const struct job_call *call, const char **emulator,
              enum spawn_step *step);

#endif
