#define _GNU_SOURCE
#include "sampler.h"

#include <sys/resource.h>

#include "lateness.h"
#include "util.h"

#define FLUSH_EVERY_NS (2 * NS_PER_SECOND)

/* Wait until then; true when it is time to stop. */
static bool stopped_before(struct sampler *sampler, int64_t until)
{
    struct timespec due = { .tv_sec = until / NS_PER_SECOND, .tv_nsec = until % NS_PER_SECOND };
    pthread_mutex_lock(&sampler->lock);
    while (!sampler->stop && pthread_cond_timedwait(&sampler->wake, &sampler->lock, &due) == 0)
        ;
    bool stop = sampler->stop;
    pthread_mutex_unlock(&sampler->lock);
    return stop;
}

static void *sample(void *given)
{
    struct sampler *sampler = given;
    int64_t due = monotonic_ns(), flush = due + FLUSH_EVERY_NS, now;
    be_normal(); /* this thread: only who stamps has to hurry */
    setpriority(PRIO_PROCESS, 0, 0);
    do {
        telemetry_sample(&sampler->telemetry, false);
        now = monotonic_ns();
        if (now >= flush) {
            sink_flush(sampler->telemetry.sink);
            flush = now + FLUSH_EVERY_NS;
        }
        const int64_t used = sampler->telemetry.sink->length;
        if (used > sampler->slow_down_bytes) {
            sampler->slow_down_bytes = used + (sampler->most_bytes - used) / 2;
            sampler->interval_ns *= 2;
        }
        due += sampler->interval_ns;
        if (due < now) /* it was held up: no burst of samples afterwards */
            due = now + sampler->interval_ns;
    } while (!stopped_before(sampler, due));
    return NULL;
}

void sampler_start(struct sampler *sampler, struct sink *sink, const struct output *output,
                   pid_t job, int dir, int64_t interval_ns, int64_t most_bytes)
{
    pthread_condattr_t monotonic;
    telemetry_open(&sampler->telemetry, sink, output, job, dir);
    sampler->opened = true;
    sampler->interval_ns = interval_ns;
    sampler->most_bytes = most_bytes;
    sampler->slow_down_bytes = most_bytes / 2;
    pthread_mutex_init(&sampler->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&sampler->wake, &monotonic);
    sampler->running = pthread_create(&sampler->thread, NULL, sample, sampler) == 0;
}

void sampler_stop(struct sampler *sampler, bool last)
{
    if (sampler->running) {
        pthread_mutex_lock(&sampler->lock);
        sampler->stop = true;
        pthread_cond_signal(&sampler->wake);
        pthread_mutex_unlock(&sampler->lock);
        pthread_join(sampler->thread, NULL);
        sampler->running = false;
    }
    if (last && sampler->opened)
        telemetry_sample(&sampler->telemetry, true);
    sampler->opened = false;
}
