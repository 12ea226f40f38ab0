/* All processes below this one. As a child subreaper the supervisor inherits every orphan of its
 * job, so that whatever a job starts stays below it, in whatever session or group. */
#ifndef LABCTL_TREE_H
#define LABCTL_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
    pid_t pid, parent, session;
    uint64_t started; /* after the boot, in clock ticks */
    bool below, zombie, kernel; /* zombie: no thread of it runs any more; kernel: one of its threads */
    char name[64];
};

/* False when there is no such process. */
bool read_process(pid_t pid, struct process *process);

/* Send a signal to every descendant but one (0: to all); how many there were, zombies left out, those
 * that may not be sent one (set-uid programs) counted. */
int tree_signal(int number, pid_t but);

#endif
