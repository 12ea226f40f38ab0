/* A file that arrives in chunks, over several attempts, and has its final name only when whole.
 *
 * Who fills it holds a lock on it until it has that name: no second one ever opens what was just
 * published as if it were half a file. The lock lasts as long as a conversation: whoever waits for
 * a peer that may never come keeps nobody else away.
 *
 * FILE.journal is text: "labctl-partial 1 <bytes> <chunk bytes>", then "<index> <sha256>" for each
 * chunk that was written and compared. It may promise what a power cut has taken: a new attempt
 * reads the chunks again before it believes them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "receive.h"
#include "sha256.h"
#include "util.h"

#define LOCK_TRIES 25
#define LOCK_MS 20
#define HEADER "labctl-partial 1 %llu %llu\n"

static bool journal_path(const struct partial *partial, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s.journal", partial->path) < PATH_MAX;
}

size_t partial_length(const struct partial *partial, uint64_t index)
{
    uint64_t rest = partial->size - index * partial->chunk;
    return (size_t)(rest < partial->chunk ? rest : partial->chunk);
}

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static bool parse_digest(const char *hex, unsigned char digest[DIGEST_BYTES])
{
    for (int i = 0; i < DIGEST_BYTES; i++) {
        int high = hex_value(hex[2 * i]), low = high < 0 ? -1 : hex_value(hex[2 * i + 1]);
        if (low < 0)
            return false;
        digest[i] = (unsigned char)(high << 4 | low);
    }
    return hex[2 * DIGEST_BYTES] == '\n';
}

/* Takes the chunks that the journal names. A journal of another file is started again, what follows
 * a line that is no line (half of one, after a power cut) is cut off. */
static bool read_journal(struct partial *partial)
{
    char line[256], header[64];
    snprintf(header, sizeof header, HEADER, (unsigned long long)partial->size,
             (unsigned long long)partial->chunk);
    FILE *stream = fdopen(dup(partial->journal), "r");
    if (!stream)
        return false;
    bool known = fgets(line, sizeof line, stream) && strcmp(line, header) == 0;
    off_t valid = known ? (off_t)strlen(header) : 0;
    while (known && fgets(line, sizeof line, stream)) {
        char *hex = strchr(line, ' ');
        uint64_t index;
        unsigned char digest[DIGEST_BYTES];
        if (!hex)
            break;
        *hex = '\0';
        if (!parse_u64(line, &index) || index >= partial->count || !parse_digest(hex + 1, digest))
            break;
        memcpy(partial->digests + index * DIGEST_BYTES, digest, DIGEST_BYTES);
        partial->journalled[index] = true;
        valid += (off_t)(strlen(line) + 1 + strlen(hex + 1));
    }
    fclose(stream);
    if (ftruncate(partial->journal, valid) != 0 || lseek(partial->journal, valid, SEEK_SET) < 0)
        return false;
    return known || write_all(partial->journal, header, strlen(header));
}

/* Bytes missing on the file system for the whole file. */
static uint64_t missing_bytes(int file, uint64_t size)
{
    struct stat found;
    struct statvfs disk;
    if (fstat(file, &found) != 0 || fstatvfs(file, &disk) != 0)
        return 0;
    uint64_t there = (uint64_t)found.st_blocks * 512, room = disk.f_bavail * disk.f_frsize;
    return there + room < size ? size - there - room : 0;
}

/* Room for the whole file, now and not in the middle: 0, or an errno. */
static int reserve(struct partial *partial)
{
    struct stat found;
    if (fstat(partial->file, &found) != 0)
        return errno;
    if (!S_ISREG(found.st_mode))
        return EINVAL;
    if ((uint64_t)found.st_size > partial->size && ftruncate(partial->file, (off_t)partial->size))
        return errno;
    if (partial->size == 0 || fallocate(partial->file, 0, 0, (off_t)partial->size) == 0)
        return 0;
    int error = errno;
    if (error == EOPNOTSUPP || error == ENOSYS) /* FAT: lengthening it would write zeros */
        error = missing_bytes(partial->file, partial->size) ? ENOSPC : 0;
    /* What was reserved of it is given back; what an earlier attempt brought stays. */
    else if (ftruncate(partial->file, found.st_size) != 0)
        error = errno;
    return error;
}

/* Opens the file and locks it, and is sure that it still has its name then. 0, or an errno;
 * EWOULDBLOCK when somebody else fills it. */
static int open_locked(struct partial *partial)
{
    for (;;) {
        struct stat opened, named;
        partial->file = open(partial->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (partial->file < 0 || fstat(partial->file, &opened) != 0)
            return errno;
        for (int left = LOCK_TRIES; flock(partial->file, LOCK_EX | LOCK_NB) != 0; left--) {
            if (errno != EWOULDBLOCK || left == 0)
                return errno;
            poll(NULL, 0, LOCK_MS); /* one whose link just broke needs a moment to see it */
        }
        if (stat(partial->path, &named) == 0 && named.st_ino == opened.st_ino &&
            named.st_dev == opened.st_dev)
            return 0;
        close(partial->file); /* published or removed since it was opened */
    }
}

static int open_all(struct partial *partial)
{
    char journal[PATH_MAX];
    partial->count = partial->size / partial->chunk + (partial->size % partial->chunk != 0);
    partial->digests = calloc(partial->count + 1, DIGEST_BYTES);
    partial->journalled = calloc(partial->count + 1, sizeof *partial->journalled);
    partial->good = calloc(partial->count + 1, sizeof *partial->good);
    if (!partial->digests || !partial->journalled || !partial->good)
        return ENOMEM;
    if (!journal_path(partial, journal))
        return ENAMETOOLONG;
    int error = open_locked(partial);
    if (error)
        return error;
    if (access(partial->target, F_OK) == 0) {
        unlink(partial->path);
        unlink(journal); /* there after a power cut between its end and this one */
        return EEXIST;
    }
    partial->journal = open(journal, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    error = partial->journal < 0 || !read_journal(partial) ? errno : reserve(partial);
    if (error == ENOSPC)
        partial->missing = missing_bytes(partial->file, partial->size);
    if (error && !memchr(partial->journalled, true, partial->count)) {
        unlink(partial->path); /* it would only take room */
        unlink(journal);
    }
    return error;
}

int partial_open(struct partial *partial)
{
    partial->file = partial->journal = -1;
    int error = open_all(partial);
    if (error)
        partial_close(partial);
    return error;
}

void partial_close(struct partial *partial)
{
    if (partial->journal >= 0)
        close(partial->journal);
    if (partial->file >= 0)
        close(partial->file);
    free(partial->digests);
    free(partial->journalled);
    free(partial->good);
}

bool partial_prove(struct partial *partial, uint64_t index)
{
    unsigned char piece[PIECE_BYTES], digest[DIGEST_BYTES];
    off_t at = (off_t)(index * partial->chunk);
    struct sha256 sha;
    sha256_start(&sha);
    for (size_t left = partial_length(partial, index); left > 0;) {
        ssize_t got = pread(partial->file, piece, left < sizeof piece ? left : sizeof piece, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        sha256_add(&sha, piece, (size_t)got);
        at += got;
        left -= (size_t)got;
    }
    sha256_end(&sha, digest);
    partial->good[index] = memcmp(digest, partial->digests + index * DIGEST_BYTES, DIGEST_BYTES)
                           == 0;
    return partial->good[index];
}

bool partial_write(struct partial *partial, uint64_t index, size_t at, const void *data,
                   size_t length)
{
    off_t start = (off_t)(index * partial->chunk + at);
    partial->good[index] = false;
    for (size_t done = 0; done < length;) {
        ssize_t written = pwrite(partial->file, (const char *)data + done, length - done,
                                 start + (off_t)done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        done += (size_t)written;
    }
    return true;
}

bool partial_note(struct partial *partial, uint64_t index,
                  const unsigned char digest[DIGEST_BYTES])
{
    char line[32 + 2 * DIGEST_BYTES];
    int used = snprintf(line, sizeof line, "%llu ", (unsigned long long)index);
    for (int i = 0; i < DIGEST_BYTES; i++)
        used += snprintf(line + used, sizeof line - (size_t)used, "%02x", digest[i]);
    line[used++] = '\n';
    partial->good[index] = true;
    /* On its way to the storage while the next one comes: the end has little left to wait for. */
    sync_file_range(partial->file, (off_t)(index * partial->chunk),
                    (off_t)partial_length(partial, index), SYNC_FILE_RANGE_WRITE);
    return write_all(partial->journal, line, (size_t)used);
}

static bool sync_directory_of(const char *path)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash == path ? 1 : slash ? (int)(slash - path) : 0;
    snprintf(directory, sizeof directory, "%.*s", length ? length : 1, length ? path : ".");
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool good = fsync(fd) == 0;
    int error = errno;
    close(fd);
    errno = error;
    return good;
}

/* What is left when the file's bytes are durable; the lease is held. */
static bool publish(const struct partial *partial)
{
    char journal[PATH_MAX];
    if (fchmod(partial->file, partial->mode) != 0 || fsync(partial->file) != 0 ||
        rename(partial->path, partial->target) != 0 || !sync_directory_of(partial->target))
        return false;
    if (journal_path(partial, journal))
        unlink(journal); /* the next one that finds the target may have removed it */
    return true;
}

/* The kernel counts what it could not write as written, and would read it as good from its cache:
 * none of it is believed again. */
static void forget(const struct partial *partial)
{
    if (ftruncate(partial->journal, 0) == 0)
        fsync(partial->journal);
}

bool partial_finish(struct partial *partial, struct lease_hold *lease)
{
    /* Not under the lease: it may take minutes, and nobody sees it. */
    int failed = fsync(partial->file) != 0 ? errno : 0, error = lease_begin(lease);
    if (!error && failed)
        forget(partial);
    else if (!error && !publish(partial))
        error = errno;
    lease_leave(lease);
    errno = failed ? failed : error;
    return errno == 0;
}
