/* How late the supervisor's stamps can be: whether it runs at once when something was printed, and
 * how long it was ready but had no CPU. */
#ifndef LABCTL_LATENESS_H
#define LABCTL_LATENESS_H

#include <stdbool.h>
#include <stdint.h>

struct lateness {
    int schedstat;      /* of the thread that stamps; -1: the kernel does not count */
    int64_t before_ns;  /* its waits so far, when it last looked */
    int64_t wait_ns;    /* before pieces of standard output, together; -1: none came */
    int64_t longest_ns; /* before a piece of either stream; -1: none came */
    int64_t pause_ns;   /* how long it did something else before it listened last */
    int64_t longest_pause_ns; /* of those right before a piece of standard output; -1: none came */
};

/* Real-time priority for this thread where it is permitted: the lowest, above every normal thread.
 * Neither its threads nor its children inherit it. */
void be_real_time(void);
/* Normal priority for this thread, whatever it inherited. */
void be_normal(void);
/* "fifo" or "other": how this thread is scheduled. */
const char *scheduler(void);

void lateness_open(struct lateness *lateness);
/* After each wake, once everything is stamped; which streams brought something. */
void lateness_note(struct lateness *lateness, bool standard_output, bool standard_error);
/* It did something else for so long, or was stopped. What comes next may have come meanwhile;
 * `came`: standard output came already, and was stamped before this is known. */
void lateness_pause(struct lateness *lateness, int64_t ns, bool came);

#endif
