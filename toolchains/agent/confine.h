/* A job in a PID namespace of its own, where the kernel and its permissions allow it.
 *
 * The job cannot name the processes outside, its supervisor among them, and sees a /proc without them.
 * All that it starts ends with the namespace's first process, and that ends with the supervisor: the
 * kernel leaves nothing. That holds against a job without rights and against mistakes: a job of root can
 * leave it, by /proc/sys/kernel/core_pattern for example. The job itself stays a child of the supervisor, which waits for it, reads its
 * usage and its files in /proc as it does without a namespace.
 *
 * User namespaces are not used: they would change whom files belong to. So a board whose shell is not
 * root has no confinement; what outlives its supervisor there is found by survivors.h.
 */
#ifndef LABCTL_CONFINE_H
#define LABCTL_CONFINE_H

#include <stdbool.h>
#include <sys/types.h>

struct confinement {
    pid_t init; /* the first process of the namespace; 0: there is none */
    int told;   /* closed when the job has ended: then the namespace ends with its last process */
    int own;    /* the supervisor's own namespace, while processes are started in the other one */
};

/* The next processes that are forked are in a new namespace, until confine_leave; c->init is 0 where
 * that is not possible. */
void confine_begin(struct confinement *c);
/* In the job's process: a /proc of its namespace. False with errno set. */
bool confine_enter(void);
/* Start processes outside again. False with errno set. */
bool confine_leave(struct confinement *c);
/* The job has ended; its orphans may go on for a while. */
void confine_drain(struct confinement *c);

#endif
