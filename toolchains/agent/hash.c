/* `agent hash`: SHA-256 of files, whole and by chunk.
 *
 * For each file its chunks first, as they are read, then the whole:
 *     chunk <index from 0> <sha256>
 *     <sha256>  <bytes>  <path>
 * A file that cannot be read gives `error <path>: <reason>` in that place, and exit status 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "failure.h"
#include "sha256.h"

#define BLOCK_BYTES (128 << 10)

static unsigned char block[BLOCK_BYTES];

/* The file to its end; false with errno set. chunk_bytes: 0 for none. */
static bool hash_open_file(int fd, uint64_t chunk_bytes, char hex[65], uint64_t *bytes)
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

int command_hash(char **files, uint64_t chunk_bytes)
{
    int status = 0;
    for (; *files; files++) {
        char hex[65];
        uint64_t bytes;
        int fd = open(*files, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || !hash_open_file(fd, chunk_bytes, hex, &bytes)) {
            printf("error %s: %s\n", *files, strerror(errno));
            status = 1;
        } else {
            printf("%s  %llu  %s\n", hex, (unsigned long long)bytes, *files);
        }
        if (fd >= 0)
            close(fd);
    }
    return fflush(stdout) == 0 ? status : EXIT_SYSTEM;
}
