#define _GNU_SOURCE
#include "sha256.h"

#include <stdio.h>
#include <string.h>

#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#ifdef __x86_64__
#include <cpuid.h>
#endif

const uint32_t sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t rotate(uint32_t value, int bits)
{
    return value >> bits | value << (32 - bits);
}

static void blocks_portable(uint32_t state[8], const unsigned char *data, size_t blocks)
{
    uint32_t w[64];
    for (; blocks > 0; blocks--, data += 64) {
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 |
                   (uint32_t)data[4 * i + 2] << 8 | data[4 * i + 3];
        for (int i = 16; i < 64; i++) {
            uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
            uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
            w[i] = w[i - 16] + s0 + w[i - 7] + s1;
        }
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        for (int i = 0; i < 64; i++) {
            uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
            uint32_t one = h + s1 + ((e & f) ^ (~e & g)) + sha256_constants[i] + w[i];
            uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
            uint32_t two = s0 + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + one;
            d = c, c = b, b = a, a = one + two;
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d;
        state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
}

typedef void (*blocks_function)(uint32_t state[8], const unsigned char *data, size_t blocks);

#ifdef __x86_64__
/* Intel SDM volume 2, CPUID: leaf 1 has SSSE3 and SSE4.1, leaf 7 has SHA. */
static int has_sha(void)
{
    unsigned int a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1))
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & 1u << 29;
}
#endif

static blocks_function best_blocks(void)
{
#ifdef __x86_64__
    if (has_sha())
        return sha256_blocks_x86;
#endif
#ifdef __aarch64__
    if (getauxval(AT_HWCAP) & HWCAP_SHA2)
        return sha256_blocks_armv8;
#endif
    return blocks_portable;
}

const char *sha256_implementation(void)
{
#ifdef __x86_64__
    return best_blocks() == blocks_portable ? "portable" : "x86";
#else
    return best_blocks() == blocks_portable ? "portable" : "armv8";
#endif
}

void sha256_start(struct sha256 *sha)
{
    static const uint32_t initial[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
    memcpy(sha->state, initial, sizeof initial);
    sha->length = 0;
}

void sha256_add(struct sha256 *sha, const void *data, size_t length)
{
    static blocks_function best;
    /* Threads may be here at once; all of them find the same. */
    blocks_function blocks = __atomic_load_n(&best, __ATOMIC_RELAXED);
    if (!blocks) {
        blocks = best_blocks();
        __atomic_store_n(&best, blocks, __ATOMIC_RELAXED);
    }
    const unsigned char *next = data;
    size_t held = sha->length % 64;
    sha->length += length;
    if (held) {
        size_t part = length < 64 - held ? length : 64 - held;
        memcpy(sha->block + held, next, part);
        next += part, length -= part;
        if (held + part < 64)
            return;
        blocks(sha->state, sha->block, 1);
    }
    blocks(sha->state, next, length / 64);
    memcpy(sha->block, next + length / 64 * 64, length % 64);
}

void sha256_end(struct sha256 *sha, unsigned char digest[32])
{
    static const unsigned char padding[64] = { 0x80 };
    uint64_t bits = sha->length * 8;
    unsigned char tail[8];
    for (int i = 0; i < 8; i++)
        tail[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(sha, padding, 1 + (119 - sha->length % 64) % 64);
    sha256_add(sha, tail, sizeof tail);
    for (int i = 0; i < 32; i++)
        digest[i] = (unsigned char)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_hex(struct sha256 *sha, char hex[65])
{
    unsigned char digest[32];
    sha256_end(sha, digest);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}
