#define _GNU_SOURCE
#include "bench_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "failure.h"
#include "util.h"

#define DEFAULT_BYTES (256LL << 20)
#define LEAST_BYTES (4LL << 20)
#define PIECE_BYTES (4 << 20)
/* A slow card gets a smaller file. */
#define WRITING_NS (60 * NS_PER_SECOND)

/* Bytes that no file system or controller can compress. */
static void fill(uint64_t *words, size_t count, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) { /* xorshift64 */
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        words[i] = *state;
    }
}

/* 0 or an errno. Each piece is synced: the clock would not count what is still in the cache. */
static int write_file(struct bench_file *file, int64_t bytes)
{
    uint64_t *piece = malloc(PIECE_BYTES); /* not static: the supervisor locks what is */
    uint64_t state = (uint64_t)monotonic_ns() | 1;
    const int64_t until = monotonic_ns() + WRITING_NS;
    int error = piece ? 0 : ENOMEM;
    file->bytes = 0;
    while (!error && file->bytes < bytes && (file->bytes < LEAST_BYTES || monotonic_ns() < until)) {
        fill(piece, PIECE_BYTES / sizeof *piece, &state);
        if (!write_all(file->fd, piece, PIECE_BYTES) || fdatasync(file->fd) != 0)
            error = errno;
        else
            file->bytes += PIECE_BYTES;
    }
    free(piece);
    return error;
}

static int make(struct bench_file *file, const char *path, int64_t bytes)
{
    struct statvfs space;
    file->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file->fd < 0)
        return fail(EXIT_DIRECTORY, "directory", "cannot make %s: %s", path,
                    reason(errno, path));
    unlink(path);
    if (fstatvfs(file->fd, &space) != 0)
        return fail(EXIT_SYSTEM, "system", "statvfs %s: %s", path, strerror(errno));
    int64_t most = (int64_t)(space.f_bavail * space.f_frsize / 4);
    if (bytes > most)
        bytes = most;
    bytes = bytes / PIECE_BYTES * PIECE_BYTES;
    if (bytes < LEAST_BYTES)
        return fail(EXIT_NO_SPACE, "no-space", "too little space is free to measure storage with");
    file->created = true;
    file->residency_known = true;
    int error = write_file(file, bytes);
    return error ? fail(error == ENOSPC ? EXIT_NO_SPACE : EXIT_SYSTEM,
                        error == ENOSPC ? "no-space" : "system", "cannot write %s: %s", path,
                        strerror(error))
                 : 0;
}

int bench_file_open(struct bench_file *file, const char *path, int64_t bytes)
{
    struct stat status;
    *file = (struct bench_file){ .fd = open(path, O_RDONLY | O_CLOEXEC) };
    if (file->fd < 0 && errno == ENOENT)
        return make(file, path, bytes ? bytes : DEFAULT_BYTES);
    if (file->fd < 0 || fstat(file->fd, &status) != 0)
        return fail(EXIT_DIRECTORY, "directory", "cannot open %s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode) || status.st_size < LEAST_BYTES)
        return fail(EXIT_USAGE, "usage", "%s is not a file of at least %lld bytes", path,
                    LEAST_BYTES);
    file->bytes = bytes && bytes < status.st_size ? bytes : status.st_size;
    file->residency_known = status.st_uid == geteuid() || access(path, W_OK) == 0;
    return 0;
}

void bench_file_close(const struct bench_file *file)
{
    close(file->fd);
}

bool bench_file_direct(const struct bench_file *file, bool on)
{
    int flags = fcntl(file->fd, F_GETFL);
    return flags >= 0 && fcntl(file->fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

int64_t bench_file_resident(const struct bench_file *file)
{
    const int64_t page = sysconf(_SC_PAGESIZE), pages = (file->bytes + page - 1) / page;
    int64_t resident = -1;
    if (!file->residency_known)
        return -1;
    unsigned char *present = malloc((size_t)pages);
    void *mapping = mmap(NULL, (size_t)file->bytes, PROT_READ, MAP_SHARED, file->fd, 0);
    if (present && mapping != MAP_FAILED && mincore(mapping, (size_t)file->bytes, present) == 0) {
        resident = 0;
        for (int64_t i = 0; i < pages; i++)
            resident += (present[i] & 1) * page;
    }
    if (mapping != MAP_FAILED)
        munmap(mapping, (size_t)file->bytes);
    free(present);
    return resident;
}

int64_t bench_file_drop(const struct bench_file *file)
{
    posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
    return bench_file_resident(file);
}
