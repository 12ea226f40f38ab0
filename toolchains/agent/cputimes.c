/* As a child subreaper the supervisor is the ancestor of everything that its job starts: what lives
 * below it now, with what each has waited for, and what the supervisor itself has waited for, is the
 * whole tree. What nobody waits for (a parent that ignores SIGCHLD) is lost to this once it ended. */
#define _GNU_SOURCE
#include "cputimes.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util.h"

#define KERNEL_THREAD 0x00200000u /* PF_KTHREAD of linux/sched.h */

enum kind { NEW, FOREIGN, BELOW, RECLAIM };

struct cputimes_process {
    pid_t pid, parent;
    enum kind kind;
    int64_t ticks;
};

static bool starts_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Fields 2, 4, 9 and 14 to 17 of proc(5)'s stat: name, parent, flags, own times and those of the
 * children that it waited for. False when it is gone. */
static bool read_process(int proc, struct cputimes_process *process)
{
    char path[32], text[1024];
    int parent;
    unsigned flags;
    unsigned long long user, system;
    long long children_user, children_system;
    snprintf(path, sizeof path, "%d/stat", (int)process->pid);
    if (read_small(proc, path, text, sizeof text) <= 0)
        return false;
    const char *name = strchr(text, '('), *rest = strrchr(text, ')');
    if (!name || !rest ||
        sscanf(rest + 1, " %*c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %llu %llu %lld %lld", &parent,
               &flags, &user, &system, &children_user, &children_system) != 6)
        return false;
    process->parent = parent;
    process->ticks = (int64_t)(user + system) + children_user + children_system;
    if (process->kind == NEW && (flags & KERNEL_THREAD))
        process->kind = starts_with(name + 1, "kswapd") || starts_with(name + 1, "kcompactd")
                            ? RECLAIM
                            : FOREIGN;
    return true;
}

static int by_pid(const void *one, const void *other)
{
    const pid_t a = ((const struct cputimes_process *)one)->pid,
                b = ((const struct cputimes_process *)other)->pid;
    return (a > b) - (a < b);
}

static struct cputimes_process *find(struct cputimes_process *list, size_t count, pid_t pid)
{
    const struct cputimes_process wanted = { .pid = pid };
    return count ? bsearch(&wanted, list, count, sizeof *list, by_pid) : NULL;
}

/* Every process by its pid, with what was known of it; NULL when there is no memory. */
static struct cputimes_process *list_processes(struct cputimes *t, size_t *count)
{
    struct cputimes_process *list = NULL;
    size_t capacity = 0;
    *count = 0;
    rewinddir(t->proc);
    for (struct dirent *entry; (entry = readdir(t->proc));) {
        if (!isdigit((unsigned char)*entry->d_name))
            continue;
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 256;
            struct cputimes_process *longer = realloc(list, capacity * sizeof *list);
            if (!longer) {
                free(list);
                return NULL;
            }
            list = longer;
        }
        const pid_t pid = (pid_t)atoi(entry->d_name);
        const struct cputimes_process *known = find(t->known, t->count, pid);
        list[(*count)++] = (struct cputimes_process){ .pid = pid, .kind = known ? known->kind : NEW };
    }
    if (*count)
        qsort(list, *count, sizeof *list, by_pid);
    return list;
}

/* Of the new ones, those whose parent is below this process are below it too; the rest is not. */
static void tell_apart(struct cputimes_process *list, size_t count)
{
    for (bool grew = true; grew;) {
        grew = false;
        for (size_t i = 0; i < count; i++) {
            if (list[i].kind != NEW)
                continue;
            const struct cputimes_process *parent = find(list, count, list[i].parent);
            if (list[i].parent == getpid() || (parent && parent->kind == BELOW)) {
                list[i].kind = BELOW;
                grew = true;
            }
        }
    }
    for (size_t i = 0; i < count; i++)
        if (list[i].kind == NEW)
            list[i].kind = FOREIGN;
}

static int64_t waited_for_ns(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_CHILDREN, &usage) != 0)
        return 0;
    return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NS_PER_SECOND +
           (int64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

void cputimes_open(struct cputimes *t)
{
    *t = (struct cputimes){ .proc = opendir("/proc"), .reclaim_ns = -1 };
}

bool cputimes_look(struct cputimes *t)
{
    if (!t->proc)
        return false;
    size_t count, kept = 0;
    /* Before the living: who ends meanwhile is missed once, and never counted twice for good. */
    int64_t tree_ns = waited_for_ns(), reclaim_ns = -1;
    struct cputimes_process *list = list_processes(t, &count);
    if (!list)
        return false;
    for (size_t i = 0; i < count; i++)
        if (list[i].kind == FOREIGN || read_process(dirfd(t->proc), &list[i]))
            list[kept++] = list[i];
    tell_apart(list, kept);
    const int64_t tick_ns = NS_PER_SECOND / sysconf(_SC_CLK_TCK);
    for (size_t i = 0; i < kept; i++)
        if (list[i].kind == BELOW)
            tree_ns += list[i].ticks * tick_ns;
        else if (list[i].kind == RECLAIM)
            reclaim_ns = (reclaim_ns < 0 ? 0 : reclaim_ns) + list[i].ticks * tick_ns;
    free(t->known);
    t->known = list;
    t->count = kept;
    t->tree_ns = tree_ns > t->tree_ns ? tree_ns : t->tree_ns; /* it is a counter */
    t->reclaim_ns = reclaim_ns;
    return true;
}
