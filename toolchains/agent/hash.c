/* `agent hash`: SHA-256 of files, whole and by chunk, or of their parts.
 *
 * For each file its chunks first, as they are read, then the whole:
 *     chunk <index from 0> <sha256>
 *     <sha256>  <bytes>  <path>
 * With --parts, parts of that many bytes are hashed by as many threads as there are CPUs, and what
 * stands for the whole is the SHA-256 of all the parts' SHA-256 (32 bytes each), in their order.
 * A file that cannot be read gives `error <path>: <reason>` in that place, and exit status 1. So does,
 * with the word `changed` and --plain, what is no file or a link, has several names or more than that
 * many bytes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "failure.h"
#include "sha256.h"
#include "threads.h"
#include "util.h"

#define BLOCK_BYTES (128 << 10)
#define PART_BLOCK_BYTES (32 << 10) /* on the stack of a thread */
#define DIGEST_BYTES 32

static unsigned char block[BLOCK_BYTES];

/* The file to its end; false with errno set. chunk_bytes, most: 0 for none. */
static bool hash_open_file(int fd, uint64_t chunk_bytes, uint64_t most, char hex[65],
                           uint64_t *bytes)
{
    struct sha256 whole, chunk;
    uint64_t index = 0, in_chunk = 0;
    char chunk_hex[65];
    sha256_start(&whole);
    sha256_start(&chunk);
    *bytes = 0;
    for (;;) {
        size_t want = sizeof block;
        if (chunk_bytes && chunk_bytes - in_chunk < want)
            want = (size_t)(chunk_bytes - in_chunk);
        ssize_t got = read(fd, block, want);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            return false;
        }
        sha256_add(&whole, block, (size_t)got);
        *bytes += (uint64_t)got;
        if (most && *bytes > most) { /* it grows meanwhile */
            errno = EFBIG; /* never with a file of a job that has ended */
            return false;
        }
        if (chunk_bytes) {
            sha256_add(&chunk, block, (size_t)got);
            in_chunk += (uint64_t)got;
            if (in_chunk == chunk_bytes || (got == 0 && in_chunk > 0)) {
                sha256_hex(&chunk, chunk_hex);
                printf("chunk %llu %s\n", (unsigned long long)index++, chunk_hex);
                sha256_start(&chunk);
                in_chunk = 0;
            }
        }
        if (got == 0) {
            sha256_hex(&whole, hex);
            return true;
        }
    }
}

/* A file whose parts are hashed by several threads; next: the part that is to be hashed next. */
struct parts {
    int fd, error;
    uint64_t bytes, part_bytes, count, next;
    unsigned char *digests;
};

/* One part; 0 or an errno. */
static int hash_part(const struct parts *parts, uint64_t index)
{
    unsigned char data[PART_BLOCK_BYTES];
    struct sha256 sha;
    uint64_t at = index * parts->part_bytes, left = parts->bytes - at;
    if (left > parts->part_bytes)
        left = parts->part_bytes;
    sha256_start(&sha);
    while (left) {
        ssize_t got = pread(parts->fd, data, left < sizeof data ? (size_t)left : sizeof data,
                            (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? errno : EIO; /* it became shorter */
        sha256_add(&sha, data, (size_t)got);
        at += (uint64_t)got;
        left -= (uint64_t)got;
    }
    sha256_end(&sha, parts->digests + index * DIGEST_BYTES);
    return 0;
}

static void hash_some_parts(void *context, int number, int threads)
{
    struct parts *parts = context;
    (void)number;
    (void)threads;
    for (;;) {
        const uint64_t index = __atomic_fetch_add(&parts->next, 1, __ATOMIC_RELAXED);
        if (index >= parts->count)
            return;
        const int error = hash_part(parts, index);
        if (error)
            __atomic_store_n(&parts->error, error, __ATOMIC_RELAXED);
    }
}

/* The file by its parts; false with errno set. */
static bool hash_by_parts(struct team *team, struct parts *parts, int fd, char hex[65])
{
    struct sha256 whole;
    struct stat status;
    if (fstat(fd, &status) != 0)
        return false;
    if (!S_ISREG(status.st_mode)) {
        errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
        return false;
    }
    const uint64_t bytes = (uint64_t)status.st_size;
    const uint64_t count = bytes / parts->part_bytes + (bytes % parts->part_bytes != 0);
    if (count > SIZE_MAX / DIGEST_BYTES) { /* a size_t of 32 bits would lose some of it */
        errno = ENOMEM;
        return false;
    }
    unsigned char *digests = calloc(count ? (size_t)count : 1, DIGEST_BYTES);
    if (!digests)
        return false;
    parts->fd = fd;
    parts->bytes = bytes;
    parts->count = count;
    parts->digests = digests;
    parts->next = 0;
    parts->error = 0;
    team_pass(team);
    sha256_start(&whole);
    sha256_add(&whole, digests, (size_t)count * DIGEST_BYTES);
    sha256_hex(&whole, hex);
    free(digests);
    errno = parts->error;
    return parts->error == 0;
}

int command_hash_parts(char **files, uint64_t part_bytes)
{
    static struct team team;
    static struct parts parts;
    int status = 0;
    parts.part_bytes = part_bytes;
    if (!team_start(&team, cpus_allowed(), hash_some_parts, &parts))
        return fail(EXIT_SYSTEM, "system", "cannot start threads");
    for (; *files; files++) {
        char hex[65];
        int fd = open(*files, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || !hash_by_parts(&team, &parts, fd, hex)) {
            printf("error %s: %s\n", *files, strerror(errno));
            status = 1;
        } else {
            printf("%s  %llu  %s\n", hex, (unsigned long long)parts.bytes, *files);
        }
        if (fd >= 0)
            close(fd);
    }
    team_end(&team);
    return fflush(stdout) == 0 ? status : EXIT_SYSTEM;
}

/* most: 0, or only plain files are hashed, of at most so many bytes. */
static int open_to_hash(const char *path, uint64_t most, const char **why)
{
    struct stat status;
    int fd = most ? open_plain(AT_FDCWD, path, why) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) != 0)
        return fd; /* a FIFO would be waited for; nothing else is lost */
    const bool large = most && (uint64_t)status.st_size > most;
    if (!large && S_ISREG(status.st_mode))
        return fd;
    *why = large ? "is larger than all that was written" : NULL;
    close(fd);
    errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    return -1;
}

int command_hash(char **files, uint64_t chunk_bytes, uint64_t most)
{
    int status = 0;
    for (; *files; files++) {
        char hex[65];
        uint64_t bytes;
        const char *why = NULL;
        int fd = open_to_hash(*files, most, &why);
        if (fd < 0 || !hash_open_file(fd, chunk_bytes, most, hex, &bytes)) {
            printf("%s %s: %s\n", why ? "changed" : "error", *files, why ? why : strerror(errno));
            status = 1;
        } else {
            printf("%s  %llu  %s\n", hex, (unsigned long long)bytes, *files);
        }
        if (fd >= 0)
            close(fd);
    }
    return fflush(stdout) == 0 ? status : EXIT_SYSTEM;
}
