/* SHA-256 (FIPS 180-4), with the SHA instructions of ARMv8 or x86-64 where the CPU has them. */
#ifndef LABCTL_SHA256_H
#define LABCTL_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    unsigned char block[64];
};

void sha256_start(struct sha256 *sha);
void sha256_add(struct sha256 *sha, const void *data, size_t length);
/* Ends the message. */
void sha256_end(struct sha256 *sha, unsigned char digest[32]);
/* Ends the message; 64 hexadecimal digits and a NUL. */
void sha256_hex(struct sha256 *sha, char hex[65]);

/* "armv8", "x86" or "portable": what this CPU gets. */
const char *sha256_implementation(void);

/* sha256_armv8.c, sha256_x86.c; called only where the CPU has the instructions. */
void sha256_blocks_armv8(uint32_t state[8], const unsigned char *data, size_t blocks);
void sha256_blocks_x86(uint32_t state[8], const unsigned char *data, size_t blocks);
extern const uint32_t sha256_constants[64];

#endif
