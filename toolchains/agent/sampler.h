/* Telemetry by a separate thread: no stamp of the job's output waits for a sample. */
#ifndef LABCTL_SAMPLER_H
#define LABCTL_SAMPLER_H

#include <pthread.h>

#include "telemetry.h"

struct sampler {
    struct telemetry telemetry;
    pthread_t thread;
    pthread_mutex_t lock; /* over stop */
    pthread_cond_t wake;
    int64_t interval_ns;
    int64_t most_bytes, slow_down_bytes; /* of the samples' file */
    bool stop, opened, running;
};

/* Sample now and every interval_ns; the sink is the sampler's until it is stopped. Whenever half of
 * the room that is left of most_bytes is used, samples are taken half as often. Without memory for a
 * thread there are no samples but the last. */
void sampler_start(struct sampler *sampler, struct sink *sink, const struct output *output,
                   pid_t job, int dir, int64_t interval_ns, int64_t most_bytes);
/* Stop. last: sample once more, while the counters of the ended job are still there. */
void sampler_stop(struct sampler *sampler, bool last);

#endif
