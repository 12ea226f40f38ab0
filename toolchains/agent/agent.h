/* The agent's version, and its commands: main.c calls them, each is in its own file. */
#ifndef LABCTL_AGENT_H
#define LABCTL_AGENT_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "lease.h"

#define AGENT_VERSION "7"

struct run_options {
    const char *dir;
    int64_t timeout_ns;
    struct lease_hold *lease;
    const char *resident;     /* a file whose share in memory is reported; NULL: none */
    int64_t sample_ns;        /* 0: no telemetry */
    int64_t max_output_bytes; /* of both streams together */
    const cpu_set_t *cpus;    /* NULL: all that there are */
    int nice;                 /* added to what is inherited */
    bool memlock;             /* may lock as much memory as is permitted */
    char **argv;
};

struct bench_options {
    const char *file; /* NULL for memory */
    int64_t bytes;    /* 0: chosen by what there is */
    int64_t ns;       /* for all measurements together */
    int threads;      /* at most; 0: as many as CPUs */
};

struct receive_options {
    const char *file, *target;
    uint64_t size, chunk_bytes, mode;
    int64_t idle_ns;
    struct lease_hold *lease;
};

struct take_options {
    const char *lease, *text; /* the file, and what will be in it */
    const char *jobs;         /* the directory of all jobs; NULL: there are none */
    uint64_t epoch, before;   /* of the new lease, and of the one that it follows; 0: none */
};

int command_run(const struct run_options *options);
int command_wait(const char *dir, int64_t ns);
int command_stop(const char *dir, int64_t ns, struct lease_hold *lease);
/* Ends the job in a directory; false when it still runs after ns. What is left of one that has changed
 * its files, or lost its supervisor, is for survivors.h. */
bool end_job(const char *dir, int64_t ns);
int command_take(const struct take_options *options);
int command_facts(void);
int command_hash(char **files, uint64_t chunk_bytes, uint64_t most);
int command_hash_parts(char **files, uint64_t part_bytes);
int command_bench_memory(const struct bench_options *options);
int command_bench_storage(const struct bench_options *options);
int command_receive(const struct receive_options *options);

#endif
