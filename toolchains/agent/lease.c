#define _GNU_SOURCE
#include "lease.h"

#include <errno.h>
#include <fcntl.h>

#include "json.h"
#include "util.h"

enum lease lease_check(const char *path, uint64_t epoch, uint64_t *current)
{
    char text[4096];
    if (read_small(AT_FDCWD, path, text, sizeof text) < 0)
        return errno == ENOENT ? LEASE_HELD : LEASE_UNREADABLE;
    if (!json_find_u64(text, "epoch", current)) {
        errno = 0;
        return LEASE_UNREADABLE;
    }
    return *current > epoch ? LEASE_STALE : LEASE_HELD;
}
