/* All processes below this one. As a child subreaper the supervisor inherits every orphan of its
 * job, so that whatever a job starts stays below it, in whatever session or group. */
#ifndef LABCTL_TREE_H
#define LABCTL_TREE_H

#include <stdbool.h>
#include <sys/types.h>

/* Send a signal to every descendant; how many there were, zombies left out, those that may not be
 * sent one (set-uid programs) counted. */
int tree_signal(int number);

/* What a dead supervisor left: the session of its job, and processes that carry LABCTL_JOB=dir.
 * Sends SIGKILL; how many there were. session: 0 when it is not known to be the job's. */
int orphans_kill(pid_t session, const char *dir);

#endif
