/* The parts of `agent receive`: who may talk (admit.c), the conversation (receive.c), the file with
 * its journal (partial.c). */
#ifndef LABCTL_RECEIVE_H
#define LABCTL_RECEIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lease.h"

#define DIGEST_BYTES 32
#define TOKEN_DIGITS 64
/* What is taken, hashed and written at once, while it is in the CPU's cache. */
#define PIECE_BYTES (64 << 10)

/* A new token, of hexadecimal digits. False with errno set. */
bool make_token(char token[TOKEN_DIGITS + 1]);
/* The socket of the first who says the token to a listening one; -1 when nobody does within ms. */
int admit(int listener, const char *token, int ms);

/* A file that arrives in chunks, and the journal beside it that says which ones are there. */
struct partial {
    const char *path, *target; /* what it is called until it is whole, and then */
    unsigned int mode;         /* of the whole file */
    uint64_t size, chunk, count; /* bytes, bytes, chunks */
    uint64_t missing;            /* bytes missing on a full disk, 0 where unknown */
    unsigned char *digests;      /* of each chunk that the journal names, DIGEST_BYTES each */
    bool *journalled, *good;
    int file, journal;
};

/* Opens, locks, reads the journal and reserves. 0, or an errno and nothing is open; EWOULDBLOCK
 * when another transfer fills it, EEXIST when the target is there. */
int partial_open(struct partial *partial);
/* Lets others fill it. */
void partial_close(struct partial *partial);
/* The bytes of a chunk: all but the last have the same number. */
size_t partial_length(const struct partial *partial, uint64_t index);
/* Reads a chunk that the journal names and compares; false when it is not that any more. */
bool partial_prove(struct partial *partial, uint64_t index);
/* Writes a piece of a chunk, `at` bytes from its start. The chunk is not there until it is noted.
 * False with errno set. */
bool partial_write(struct partial *partial, uint64_t index, size_t at, const void *data,
                   size_t length);
/* Notes a chunk that was written whole and has this digest. False with errno set. */
bool partial_note(struct partial *partial, uint64_t index,
                  const unsigned char digest[DIGEST_BYTES]);
/* All is there: makes it durable, then gives it its name, under the lease. False with errno set. */
bool partial_finish(struct partial *partial, struct lease_hold *lease);

#endif
