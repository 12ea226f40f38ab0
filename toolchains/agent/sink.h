/* A file that is written seldom: the job and the agent share the board's storage. */
#ifndef LABCTL_SINK_H
#define LABCTL_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SINK_BUFFER_BYTES (64 * 1024)

struct sink {
    const char *name;
    int fd;
    _Atomic int error;      /* the errno of the first failed write; nothing is written after it */
    int64_t length; /* bytes taken, on disk or still held */
    size_t held;
    char buffer[SINK_BUFFER_BYTES];
};

/* Create `name` in the directory `at`; it must not exist. False with errno set. */
bool sink_open(struct sink *sink, int at, const char *name);
void sink_add(struct sink *sink, const void *data, size_t length);
void sink_printf(struct sink *sink, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sink_flush(struct sink *sink);
/* Flush and fsync. */
void sink_sync(struct sink *sink);

/* How the file under the sink's name differs from what was written ("is a FIFO"), NULL: not at all.
 * *bytes: its size where it is that file, else -1. */
const char *sink_changed(const struct sink *sink, int at, int64_t *bytes);

#endif
