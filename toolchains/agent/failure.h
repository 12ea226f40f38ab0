/* What goes wrong: how the agent says so, and the statuses that it exits with. */
#ifndef LABCTL_FAILURE_H
#define LABCTL_FAILURE_H

#include <stdarg.h>

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

#endif
