/* What the files of the agent share: its version, its exit statuses, its commands. */
#ifndef LABCTL_AGENT_H
#define LABCTL_AGENT_H

#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#define AGENT_VERSION "3"

/* Exit statuses of the agent's own failures (sysexits.h where it has one). */
enum {
    EXIT_USAGE = 2,
    EXIT_SYSTEM = 71,      /* the kernel refuses: fork, pipe, memory */
    EXIT_DIRECTORY = 73,   /* the job's directory cannot be written, or holds a job */
    EXIT_NO_SPACE = 74,    /* the board's storage is full */
    EXIT_STALE_EPOCH = 75, /* another controller has taken the board */
    EXIT_BUSY = 76,        /* another transfer fills the same file */
    EXIT_PUBLISHED = 77,   /* the file is there already */
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
};

/* Failures print {"schema":1,"error":KIND,"message":TEXT} on standard output; the status back. */
int fail(int status, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same line without its end, to be freed; NULL without memory. */
char *failure_line(const char *kind, const char *format, va_list arguments);

struct run_options {
    const char *dir;
    int64_t timeout_ns;
    uint64_t epoch;
    const char *lease;        /* NULL: not asked */
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
};

int command_run(const struct run_options *options);
int command_wait(const char *dir, int64_t ns);
int command_stop(const char *dir, int64_t ns);
int command_facts(void);
int command_hash(char **files, uint64_t chunk_bytes);
int command_bench_memory(const struct bench_options *options);
int command_bench_storage(const struct bench_options *options);
int command_exec(char **argv);
int command_receive(const struct receive_options *options);

#endif
