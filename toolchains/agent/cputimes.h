/* CPU time of a job's whole tree, and of the kernel threads that free memory for it. */
#ifndef LABCTL_CPUTIMES_H
#define LABCTL_CPUTIMES_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cputimes_process; /* what is remembered of a process from one look to the next */

struct cputimes {
    DIR *proc;         /* NULL: not offered */
    bool has_children; /* the kernel lists each thread's children (CONFIG_PROC_CHILDREN) */
    struct cputimes_process *known;
    size_t count;
    int64_t tree_ns;    /* so far, of this process's descendants, those that ended included */
    int64_t reclaim_ns; /* so far, of kswapd and kcompactd; -1: no such thread is to be seen */
};

void cputimes_open(struct cputimes *times);
/* Look at the tree, or at all processes where the kernel does not list children; false when that is
 * not possible now. Of a process that is known already and is none of these, nothing is read. */
bool cputimes_look(struct cputimes *times);

#endif
