/* The lease of the board: looked at by all who change something, written by `agent take`. */
#define _GNU_SOURCE
#include "lease.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "failure.h"
#include "json.h"
#include "survivors.h"
#include "util.h"

#define LEASE_BYTES 4096
#define LOCK_NS (30 * NS_PER_SECOND)
#define LOCK_MS 5
/* A job gets two seconds to end, ten to be killed, and its files are synced. */
#define STOP_NS (20 * NS_PER_SECOND)

enum lease lease_check(const char *path, uint64_t epoch, uint64_t *current)
{
    char text[LEASE_BYTES];
    struct stat found;
    *current = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ENOENT ? LEASE_HELD : LEASE_UNREADABLE;
    const bool plain = fstat(fd, &found) == 0 && S_ISREG(found.st_mode) &&
                       found.st_size < LEASE_BYTES;
    const bool read = plain && reread_small(fd, text, sizeof text) >= 0;
    const int error = plain && !read ? errno : 0;
    close(fd);
    errno = error;
    if (!read || !json_find_u64(text, "epoch", current) || *current > INT64_MAX) {
        *current = 0;
        return LEASE_UNREADABLE;
    }
    return *current > epoch ? LEASE_STALE : LEASE_HELD;
}

/* The directory of a path, open; -1 with errno set. */
static int open_folder(const char *path, int flags)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const size_t length = slash ? (size_t)(slash - path) : 0;
    if (length >= sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(folder, path, length);
    strcpy(folder + length, !slash ? "." : length ? "" : "/");
    return open(folder, O_RDONLY | O_DIRECTORY | flags);
}

/* Locks the directory of the lease; -1 with errno set: EWOULDBLOCK where others had it too long,
 * and what flock says on a file system that has no locks. */
static int lock_folder(const char *path, int how, int flags)
{
    const int64_t until = monotonic_ns() + LOCK_NS;
    int folder = open_folder(path, flags);
    while (folder >= 0 && flock(folder, how | LOCK_NB) != 0) {
        if ((errno == EWOULDBLOCK && monotonic_ns() < until) || errno == EINTR) {
            poll(NULL, 0, LOCK_MS);
            continue;
        }
        int error = errno;
        close(folder);
        errno = error;
        return -1;
    }
    return folder;
}

static int refuse_lock(const char *path, int error)
{
    if (error == EWOULDBLOCK)
        return fail(EXIT_BUSY, "busy", "another change is under way beside %s for %lld s", path,
                    LOCK_NS / NS_PER_SECOND);
    return fail(EXIT_SYSTEM, "system", "cannot lock the directory of %s: %s", path,
                strerror(error));
}

static int refuse_lease(const char *path, enum lease lease, uint64_t current, uint64_t epoch)
{
    if (lease == LEASE_STALE)
        return fail(EXIT_STALE_EPOCH, "stale-epoch",
                    "the board's lease has epoch %llu, this is of epoch %llu",
                    (unsigned long long)current, (unsigned long long)epoch);
    return fail(EXIT_STALE_EPOCH, "stale-epoch", "cannot read the lease %s: %s", path,
                errno ? strerror(errno) : "no epoch in it");
}

/* Lock, then look: 0, or the errno of the lock. The lock is kept when *lease is LEASE_HELD. */
static int enter(struct lease_hold *hold, int flags, enum lease *lease, uint64_t *current)
{
    hold->lock = -1;
    *lease = LEASE_HELD;
    if (!hold->path)
        return 0;
    hold->lock = lock_folder(hold->path, LOCK_SH, flags);
    if (hold->lock < 0)
        return errno;
    *lease = lease_check(hold->path, hold->epoch, current);
    int error = errno;
    if (*lease != LEASE_HELD)
        lease_leave(hold);
    errno = error;
    return 0;
}

int lease_enter(struct lease_hold *hold, bool inherited)
{
    enum lease lease;
    uint64_t current;
    int error = enter(hold, inherited ? 0 : O_CLOEXEC, &lease, &current);
    if (error)
        return refuse_lock(hold->path, error);
    return lease == LEASE_HELD ? 0 : refuse_lease(hold->path, lease, current, hold->epoch);
}

int lease_begin(struct lease_hold *hold)
{
    enum lease lease;
    uint64_t current;
    int error = enter(hold, O_CLOEXEC, &lease, &current);
    return error ? error : lease == LEASE_HELD ? 0 : ESTALE;
}

void lease_leave(struct lease_hold *hold)
{
    if (hold->lock >= 0)
        close(hold->lock);
    hold->lock = -1;
}

/* Ends every job: all are of older epochs. False when one cannot be ended; its name is in `last`. */
static bool end_jobs(const char *jobs, char last[PATH_MAX])
{
    DIR *folder = opendir(jobs);
    bool good = true;
    if (!folder)
        return errno == ENOENT;
    for (struct dirent *entry; good && (entry = readdir(folder));) {
        struct stat found;
        if (*entry->d_name == '.' ||
            snprintf(last, PATH_MAX, "%s/%s", jobs, entry->d_name) >= PATH_MAX ||
            lstat(last, &found) != 0 || !S_ISDIR(found.st_mode))
            continue;
        good = end_job(last, STOP_NS);
    }
    closedir(folder);
    return good;
}

static int write_lease(const struct take_options *options, int folder,
                       const struct survivors *found)
{
    struct json json = { 0 };
    const char *slash = strrchr(options->lease, '/'), *name = slash ? slash + 1 : options->lease;
    char temporary[256];
    snprintf(temporary, sizeof temporary, "%s.tmp", name);
    unlinkat(folder, temporary, 0); /* whatever it leads to */
    if (write_atomic(folder, name, options->text, strlen(options->text), true)) {
        json_open(&json, '{');
        json_member_int(&json, "schema", 1);
        survivors_write(found, &json);
        json_close(&json, '}');
        return json_print(&json, STDOUT_FILENO) ? 0 : EXIT_SYSTEM;
    }
    int error = errno;
    unlinkat(folder, temporary, 0);
    return fail(error == ENOSPC || error == EDQUOT ? EXIT_NO_SPACE : EXIT_DIRECTORY,
                error == ENOSPC || error == EDQUOT ? "no-space" : "directory",
                "cannot write %s: %s", options->lease, reason(error, options->lease));
}

int command_take(const struct take_options *options)
{
    static struct survivors found;
    char last[PATH_MAX], path[PATH_MAX];
    uint64_t current, named;
    int status, folder;
    if (strlen(options->text) >= LEASE_BYTES ||
        !json_find_u64(options->text, "epoch", &named) || named != options->epoch)
        return fail(EXIT_USAGE, "usage", "the new lease does not name epoch %llu",
                    (unsigned long long)options->epoch);
    folder = lock_folder(options->lease, LOCK_EX, O_CLOEXEC);
    if (folder < 0)
        return refuse_lock(options->lease, errno);
    enum lease lease = lease_check(options->lease, options->before, &current);
    if (lease != LEASE_HELD)
        status = refuse_lease(options->lease, lease, current, options->before);
    else if (current != options->before || options->epoch <= current)
        status = fail(EXIT_STALE_EPOCH, "stale-epoch",
                      "the board's lease has epoch %llu, not %llu, and is to have %llu",
                      (unsigned long long)current, (unsigned long long)options->before,
                      (unsigned long long)options->epoch);
    else if (options->jobs && !end_jobs(options->jobs, last))
        status = fail(EXIT_BUSY, "busy", "the job in %s does not end", last);
    else if (options->jobs && realpath(options->jobs, path) &&
             !survivors_end(path, path, STOP_NS, &found))
        status = refuse_survivors(&found);
    else
        status = write_lease(options, folder, &found);
    close(folder);
    return status;
}
