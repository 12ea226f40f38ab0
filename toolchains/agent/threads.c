#define _GNU_SOURCE
#include "threads.h"

#include <sched.h>

#include "util.h"

static void *work(void *given)
{
    struct team *team = given;
    const int number = __atomic_fetch_add(&team->next, 1, __ATOMIC_RELAXED);
    for (;;) {
        pthread_barrier_wait(&team->begin);
        if (team->over)
            return NULL;
        team->work(team->context, number, team->threads);
        pthread_barrier_wait(&team->end);
    }
}

bool team_start(struct team *team, int threads, team_work task, void *context)
{
    int started = 0;
    *team = (struct team){ .work = task, .context = context, .threads = threads };
    /* The caller takes part in the barriers, not in the work. */
    pthread_barrier_init(&team->begin, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&team->end, NULL, (unsigned)threads + 1);
    while (started < threads && pthread_create(&team->list[started], NULL, work, team) == 0)
        started++;
    if (started == threads)
        return true;
    return false; /* those that began wait for company that never comes */
}

int64_t team_pass(struct team *team)
{
    /* Before the last of them is let go: late, it would make a pass look shorter than it was. */
    const int64_t began = monotonic_ns();
    pthread_barrier_wait(&team->begin);
    pthread_barrier_wait(&team->end);
    return monotonic_ns() - began;
}

void team_end(struct team *team)
{
    team->over = true;
    pthread_barrier_wait(&team->begin);
    for (int i = 0; i < team->threads; i++)
        pthread_join(team->list[i], NULL);
    pthread_barrier_destroy(&team->begin);
    pthread_barrier_destroy(&team->end);
}

int cpus_allowed(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < THREADS_MOST ? count : THREADS_MOST;
}

int thread_step_after(int threads, int most)
{
    if (threads >= most)
        return 0;
    return 2 * threads < most ? 2 * threads : most;
}

int thread_steps(int most)
{
    int steps = 0;
    for (int threads = 1; threads; threads = thread_step_after(threads, most))
        steps++;
    return steps;
}
