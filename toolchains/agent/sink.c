#define _GNU_SOURCE
#include "sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

bool sink_open(struct sink *sink, int at, const char *name)
{
    sink->name = name;
    sink->error = 0;
    sink->length = 0;
    sink->held = 0;
    sink->fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    return sink->fd >= 0;
}

void sink_flush(struct sink *sink)
{
    if (sink->held && !sink->error && !write_all(sink->fd, sink->buffer, sink->held))
        sink->error = errno;
    sink->held = 0;
}

void sink_add(struct sink *sink, const void *data, size_t length)
{
    if (sink->held + length > sizeof sink->buffer)
        sink_flush(sink);
    if (sink->error)
        return;
    sink->length += (int64_t)length;
    if (length > sizeof sink->buffer) {
        if (!write_all(sink->fd, data, length))
            sink->error = errno;
        return;
    }
    memcpy(sink->buffer + sink->held, data, length);
    sink->held += length;
}

void sink_printf(struct sink *sink, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < sizeof line)
        sink_add(sink, line, (size_t)length);
}

void sink_sync(struct sink *sink)
{
    sink_flush(sink);
    if (!sink->error && fsync(sink->fd) != 0)
        sink->error = errno;
}

const char *sink_changed(const struct sink *sink, int at, int64_t *bytes)
{
    struct stat now, opened;
    *bytes = -1;
    if (fstatat(at, sink->name, &now, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? "is gone" : strerror(errno);
    const char *why = not_plain(&now);
    if (why)
        return why;
    if (fstat(sink->fd, &opened) != 0 || now.st_ino != opened.st_ino || now.st_dev != opened.st_dev)
        return "is another file";
    *bytes = now.st_size;
    return *bytes == sink->length ? NULL : "has another size";
}
