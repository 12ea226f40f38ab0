/* The one program that a supervisor runs. */
#ifndef LABCTL_JOB_H
#define LABCTL_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct job {
    pid_t pid;
    bool ended;
    int wait_status;      /* as of waitpid; valid once ended */
    int pipes[2];         /* read ends of stdout and stderr, -1 after their end */
    int64_t start_ns;     /* CLOCK_MONOTONIC, just before exec */
    int64_t end_ns;       /* when its end was noticed */
    int64_t start_utc_ns;
};

/* Start argv in its own session, in the directory dir, with the streams in pipes.
 * emulator: where the emulator's command is put, NULL when it needs none.
 * 0, or the errno of what failed; with exec_failed true it was the program that could not be
 * executed, otherwise a resource of this machine. */
int job_spawn(struct job *job, char **argv, int dir, const char *dir_path,
              const char **emulator, bool *exec_failed);

#endif
