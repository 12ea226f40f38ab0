/* SHA-256 blocks with the SHA extensions of x86-64; empty for other machines. */
#include "sha256.h"

#ifdef __x86_64__
#include <immintrin.h>

__attribute__((target("sha,sse4.1,ssse3"))) void sha256_blocks_x86(uint32_t state[8],
                                                                  const unsigned char *data,
                                                                  size_t blocks)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    /* The instructions want the state as ABEF and CDGH, A and C in the highest word. */
    __m128i dcba = _mm_loadu_si128((const __m128i *)state);
    __m128i hgfe = _mm_loadu_si128((const __m128i *)(state + 4));
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    for (; blocks > 0; blocks--, data += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4]; /* the last sixteen words of the message schedule */
        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), big_endian);
        for (int i = 0; i < 16; i++) { /* four rounds each */
            __m128i keyed = _mm_add_epi32(
                w[i % 4], _mm_loadu_si128((const __m128i *)(sha256_constants + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, keyed);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(keyed, 0x0e));
            if (i < 12) {
                const __m128i last = w[(i + 3) % 4];
                __m128i next = _mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]);
                next = _mm_add_epi32(next, _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
                w[i % 4] = _mm_sha256msg2_epu32(next, last);
            }
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#else
typedef int sha256_x86_not_for_this_machine; /* ISO C wants one declaration */
#endif
