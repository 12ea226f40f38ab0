/* The options of a command line. */
#ifndef LABCTL_OPTIONS_H
#define LABCTL_OPTIONS_H

#include <sched.h>
#include <stdint.h>

/* The options of one command. An option is known to a command when its pointer is set. */
struct options {
    const char **dir, **lease, **resident, **file, **target, **jobs;
    cpu_set_t *cpus;
    int *nice;
    int64_t *timeout_ns, *wait_ns, *idle_ns;
    uint64_t *epoch, *before, *sample_ms, *max_output_bytes, *chunk_bytes, *part_bytes, *plain_bytes, *size,
        *executable, *threads, *bytes;
    uint64_t *memlock;
};

/* The words after the options (and "--", if it is there); NULL after printing what is wrong. */
char **parse_options(char **words, const struct options *known);

#endif
