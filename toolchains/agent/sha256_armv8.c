/* SHA-256 blocks with the ARMv8 SHA2 instructions; empty for other machines. */
#include "sha256.h"

#ifdef __aarch64__
#include <arm_neon.h>

/* GCC before 14 declares these instructions for "+crypto" only, which is them and AES. */
__attribute__((target("+crypto"))) void sha256_blocks_armv8(uint32_t state[8],
                                                          const unsigned char *data, size_t blocks)
{
    uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
    for (; blocks > 0; blocks--, data += 64) {
        const uint32x4_t abcd_before = abcd, efgh_before = efgh;
        uint32x4_t w[4]; /* the last sixteen words of the message schedule */
        for (int i = 0; i < 4; i++)
            w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)));
        for (int i = 0; i < 16; i++) { /* four rounds each */
            uint32x4_t keyed = vaddq_u32(w[i % 4], vld1q_u32(sha256_constants + 4 * i));
            uint32x4_t abcd_now = abcd;
            abcd = vsha256hq_u32(abcd, efgh, keyed);
            efgh = vsha256h2q_u32(efgh, abcd_now, keyed);
            if (i < 12)
                w[i % 4] = vsha256su1q_u32(vsha256su0q_u32(w[i % 4], w[(i + 1) % 4]),
                                           w[(i + 2) % 4], w[(i + 3) % 4]);
        }
        abcd = vaddq_u32(abcd, abcd_before);
        efgh = vaddq_u32(efgh, efgh_before);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}
#else
typedef int sha256_armv8_not_for_this_machine; /* ISO C wants one declaration */
#endif
