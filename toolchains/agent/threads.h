/* Threads that do a piece of work together, again and again, each time begun and ended as one. */
#ifndef LABCTL_THREADS_H
#define LABCTL_THREADS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define THREADS_MOST 256

/* What each of them does in a pass; number counts from 0. */
typedef void (*team_work)(void *context, int number, int threads);

struct team {
    team_work work;
    void *context;
    int threads, next;
    bool over;
    pthread_barrier_t begin, end;
    pthread_t list[THREADS_MOST];
};

/* False unless all could be started: the process has to end then, and the team to outlive it. */
bool team_start(struct team *team, int threads, team_work work, void *context);
/* One pass; how long it took, in ns. */
int64_t team_pass(struct team *team);
void team_end(struct team *team);

/* How many CPUs this process may use. */
int cpus_allowed(void);

/* The numbers of threads to measure with: 1, 2, 4 ... and the most. */
int thread_step_after(int threads, int most); /* 0 after the last */
int thread_steps(int most);

#endif
