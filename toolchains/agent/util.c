#define _GNU_SOURCE
#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    int64_t seconds = now.tv_sec + (clock == CLOCK_REALTIME ? fake_number("clock") : 0);
    return seconds * NS_PER_SECOND + now.tv_nsec;
}

int64_t asleep_ns(void)
{
    int64_t most = 0;
    for (int i = 0; i < 3; i++) { /* what comes between the two readings only makes it less */
        int64_t boot = clock_ns(CLOCK_BOOTTIME), ns = boot - monotonic_ns();
        if (ns > most)
            most = ns;
    }
    return most;
}

bool write_all(int fd, const void *data, size_t length)
{
    const char *next = data;
    while (length > 0) {
        ssize_t written = write(fd, next, length);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return false;
        }
        next += written;
        length -= (size_t)written;
    }
    return true;
}

ssize_t reread_small(int fd, char *buffer, size_t size)
{
    size_t length = 0;
    while (length < size - 1) {
        ssize_t got = pread(fd, buffer + length, size - 1 - length, (off_t)length);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            return -1;
        }
        if (got == 0)
            break;
        length += (size_t)got;
    }
    buffer[length] = '\0';
    return (ssize_t)length;
}

const char *not_plain(const struct stat *status)
{
    switch (status->st_mode & S_IFMT) {
    case S_IFREG:
        return status->st_nlink > 1 ? "has another name" : NULL;
    case S_IFLNK:
        return "is a symbolic link";
    case S_IFDIR:
        return "is a directory";
    case S_IFIFO:
        return "is a FIFO";
    case S_IFSOCK:
        return "is a socket";
    default:
        return "is a device";
    }
}

int open_plain(int at, const char *path, const char **why)
{
    struct stat status;
    /* Before open(): to open a device may do something. */
    const bool there = fstatat(at, path, &status, AT_SYMLINK_NOFOLLOW) == 0;
    *why = there ? not_plain(&status) : NULL;
    if (!there || *why) {
        errno = there ? EINVAL : errno;
        return -1;
    }
    const int fd = openat(at, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) != 0 || !(*why = not_plain(&status)))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

static ssize_t read_and_close(int fd, char *buffer, size_t size)
{
    if (fd < 0)
        return -1;
    ssize_t length = reread_small(fd, buffer, size);
    int error = errno;
    close(fd);
    errno = error;
    return length;
}

ssize_t read_small(int at, const char *path, char *buffer, size_t size)
{
    return read_and_close(openat(at, path, O_RDONLY | O_CLOEXEC), buffer, size);
}

ssize_t read_plain(int at, const char *path, char *buffer, size_t size)
{
    const char *why;
    return read_and_close(open_plain(at, path, &why), buffer, size);
}

/* Jobs may leave anything in their directory, a full directory too, in place of a file of the agent. */
static void put_aside(int at, const char *name)
{
    struct stat status;
    char aside[320];
    if (fstatat(at, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !not_plain(&status))
        return;
    snprintf(aside, sizeof aside, "%s.aside-%lld", name, (long long)monotonic_ns());
    renameat(at, name, at, aside);
}

bool write_atomic(int at, const char *name, const char *text, size_t length, bool durable)
{
    char temporary[256];
    snprintf(temporary, sizeof temporary, "%s.tmp", name);
    put_aside(at, temporary);
    /* Not truncated at open: a file prepared under this name keeps its blocks for a full disk. */
    int fd = openat(at, temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (fd < 0)
        return false;
    bool good = write_all(fd, text, length) && ftruncate(fd, (off_t)length) == 0 &&
                (!durable || fsync(fd) == 0);
    int error = errno;
    close(fd);
    if (good) {
        put_aside(at, name);
        good = renameat(at, temporary, at, name) == 0 && (!durable || fsync(at) == 0);
        error = errno;
    }
    errno = error;
    return good;
}

bool current_boot_id(char id[BOOT_ID_SIZE])
{
    const char *sandbox = getenv("LABCTL_SANDBOX");
    if (sandbox && *sandbox) {
        snprintf(id, BOOT_ID_SIZE, "%s", sandbox);
        return true;
    }
    if (read_small(AT_FDCWD, "/proc/sys/kernel/random/boot_id", id, BOOT_ID_SIZE) <= 0)
        return false;
    id[strcspn(id, "\n")] = '\0';
    return true;
}

int64_t fake_number(const char *name)
{
    const char *folder = getenv(FAKES_VARIABLE);
    char path[PATH_MAX], text[32];
    if (!folder || snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path ||
        read_small(AT_FDCWD, path, text, sizeof text) <= 0)
        return 0;
    return strtoll(text, NULL, 10);
}

bool sys_prefix(char *prefix, size_t size)
{
    const char *folder = getenv(FAKES_VARIABLE);
    char path[PATH_MAX];
    *prefix = '\0';
    if (!folder || snprintf(path, sizeof path, "%s/sys", folder) >= (int)sizeof path ||
        access(path, F_OK) != 0)
        return true;
    return snprintf(prefix, size, "%s", folder) < (int)size;
}

uint64_t process_start_ticks(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_small(AT_FDCWD, path, text, sizeof text) <= 0)
        return 0;
    char *rest = strrchr(text, ')'); /* the command's name may hold anything */
    char state;
    unsigned long long ticks;
    if (!rest || sscanf(rest + 1,
                        " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
                        " %*s %*s %llu",
                        &state, &ticks) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : ticks;
}

bool parse_u64(const char *text, uint64_t *value)
{
    if (*text < '0' || *text > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || *end)
        return false;
    *value = number;
    return true;
}

bool parse_seconds(const char *text, int64_t *ns)
{
    char whole[16];
    size_t digits = strcspn(text, ".");
    uint64_t seconds, part = 0;
    if (digits >= sizeof whole)
        return false;
    memcpy(whole, text, digits);
    whole[digits] = '\0';
    if (!parse_u64(whole, &seconds) || seconds > 4000000000ULL)
        return false;
    if (text[digits] == '.') {
        const char *decimals = text + digits + 1;
        size_t count = strlen(decimals);
        if (count > 9 || !parse_u64(decimals, &part))
            return false;
        for (; count < 9; count++)
            part *= 10;
    }
    *ns = (int64_t)seconds * NS_PER_SECOND + (int64_t)part;
    return true;
}

bool parse_cpus(const char *text, cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    do {
        char *end;
        unsigned long first, last;
        if (*text < '0' || *text > '9')
            return false;
        first = last = strtoul(text, &end, 10);
        if (*end == '-') {
            text = end + 1;
            if (*text < '0' || *text > '9')
                return false;
            last = strtoul(text, &end, 10);
        }
        if (last < first || last >= CPU_SETSIZE || (*end && *end != ','))
            return false;
        for (unsigned long cpu = first; cpu <= last; cpu++)
            CPU_SET(cpu, cpus);
        text = *end ? end + 1 : end;
        if (*end && !*text)
            return false;
    } while (*text);
    return true;
}

const char *reason(int error, const char *path)
{
    char folder[PATH_MAX];
    struct statvfs disk;
    snprintf(folder, sizeof folder, "%s", path);
    while (statvfs(folder, &disk) != 0) {
        char *slash = strrchr(folder, '/');
        if (!slash || slash == folder)
            return strerror(error);
        *slash = '\0';
    }
    return error == ENOSPC && disk.f_files > 0 && disk.f_favail == 0
               ? "No space left on device: no inodes are left"
               : strerror(error);
}

void format_cpus(const cpu_set_t *cpus, char *text, size_t size)
{
    size_t length = 0;
    *text = '\0';
    for (size_t first = 0; first < CPU_SETSIZE && length < size; first++) {
        size_t last = first;
        if (!CPU_ISSET(first, cpus))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
            last++;
        length += (size_t)snprintf(text + length, size - length, "%s%zu", length ? "," : "", first);
        if (last > first && length < size)
            length += (size_t)snprintf(text + length, size - length, "-%zu", last);
        first = last;
    }
}
