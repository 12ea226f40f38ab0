/* As a child subreaper the supervisor is the ancestor of everything that its job starts: what lives
 * below it now, with what each has waited for, and what the supervisor itself has waited for, is the
 * whole tree. What nobody waits for (a parent that ignores SIGCHLD) is lost to this once it ended. */
#define _GNU_SOURCE
#include "cputimes.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util.h"

#define KERNEL_THREAD 0x00200000u /* PF_KTHREAD of linux/sched.h */
/* A job with more of them is found sooner among all processes: each list is a file to open. */
#define THREADS_MAX 64
#define KTHREADD 2 /* the parent of all kernel threads, where they are to be seen */

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

struct list {
    struct cputimes_process *all; /* NULL: there is no memory */
    size_t count, capacity;
    size_t threads; /* whose children were asked for */
};

static struct list empty_list(void)
{
    const size_t capacity = 256;
    return (struct list){ .all = malloc(capacity * sizeof(struct cputimes_process)),
                          .capacity = capacity };
}

static bool append(struct list *list, pid_t pid, enum kind kind)
{
    if (list->count == list->capacity) {
        list->capacity *= 2;
        struct cputimes_process *longer = realloc(list->all, list->capacity * sizeof *longer);
        if (!longer) {
            free(list->all);
            *list = (struct list){ 0 };
            return false;
        }
        list->all = longer;
    }
    list->all[list->count++] = (struct cputimes_process){ .pid = pid, .kind = kind };
    return true;
}

static bool is_gone(int error)
{
    return error == ENOENT || error == ESRCH || error == EACCES;
}

/* What all threads of a process have started, or adopted, and is not reaped: the kernel's lists. One
 * that ends meanwhile may hide another for this look; the sum is a counter, and catches up. False
 * when there is no descriptor or no memory. */
static bool append_children(struct list *list, int proc, pid_t parent, enum kind kind)
{
    char path[64];
    bool enough = true;
    snprintf(path, sizeof path, "%d/task", (int)parent);
    const int fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *tasks = fd < 0 ? NULL : fdopendir(fd);
    if (!tasks) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return parent != getpid() && is_gone(error);
    }
    for (struct dirent *entry; enough && (entry = readdir(tasks));) {
        if (!isdigit((unsigned char)*entry->d_name))
            continue;
        list->threads++;
        snprintf(path, sizeof path, "%.20s/children", entry->d_name);
        const int children = openat(fd, path, O_RDONLY | O_CLOEXEC);
        FILE *file = children < 0 ? NULL : fdopen(children, "r");
        enough = file || is_gone(errno);
        for (int pid; enough && file && fscanf(file, "%d", &pid) == 1;)
            enough = append(list, (pid_t)pid, kind);
        if (file)
            fclose(file);
        else if (children >= 0)
            close(children);
    }
    closedir(tasks);
    return enough;
}

/* What lives below this process now, and the kernel threads: all of them at first. */
static struct list list_tree(const struct cputimes *t)
{
    struct list list = empty_list();
    const int proc = dirfd(t->proc);
    bool enough = list.all && append_children(&list, proc, getpid(), BELOW);
    for (size_t i = 0; enough && i < list.count; i++)
        enough = append_children(&list, proc, list.all[i].pid, BELOW);
    if (enough && !t->known)
        enough = append_children(&list, proc, KTHREADD, NEW);
    for (size_t i = 0; enough && i < t->count; i++)
        if (t->known[i].kind == RECLAIM && (enough = append(&list, t->known[i].pid, RECLAIM)))
            list.all[list.count - 1].ticks = t->known[i].ticks;
    if (!enough) {
        free(list.all);
        list.all = NULL;
    }
    return list;
}

/* Every process, with what was known of it. */
static struct list list_processes(const struct cputimes *t)
{
    struct list list = empty_list();
    rewinddir(t->proc);
    for (struct dirent *entry; list.all && (entry = readdir(t->proc));) {
        if (!isdigit((unsigned char)*entry->d_name))
            continue;
        const pid_t pid = (pid_t)atoi(entry->d_name);
        const struct cputimes_process *known = find(t->known, t->count, pid);
        if (append(&list, pid, known ? known->kind : NEW) && known)
            list.all[list.count - 1].ticks = known->ticks;
    }
    if (!list.count) { /* no /proc is there */
        free(list.all);
        list.all = NULL;
    }
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
    t->has_children = t->proc && faccessat(dirfd(t->proc), "thread-self/children", R_OK, 0) == 0;
}

bool cputimes_look(struct cputimes *t)
{
    if (!t->proc)
        return false;
    size_t kept = 0;
    /* Before the living: who ends meanwhile is missed once, and never counted twice for good. */
    int64_t tree_ns = waited_for_ns(), reclaim_ns = -1;
    struct list list = t->has_children ? list_tree(t) : list_processes(t);
    if (!list.all)
        return false;
    qsort(list.all, list.count, sizeof *list.all, by_pid);
    for (size_t i = 0; i < list.count; i++) {
        if (kept && list.all[kept - 1].pid == list.all[i].pid)
            continue; /* it was adopted meanwhile, and is in two lists */
        if (list.all[i].kind == FOREIGN || read_process(dirfd(t->proc), &list.all[i]) ||
            list.all[i].kind == RECLAIM)
            list.all[kept++] = list.all[i];
    }
    tell_apart(list.all, kept);
    const int64_t tick_ns = NS_PER_SECOND / sysconf(_SC_CLK_TCK);
    for (size_t i = 0; i < kept; i++)
        if (list.all[i].kind == BELOW)
            tree_ns += list.all[i].ticks * tick_ns;
        else if (list.all[i].kind == RECLAIM)
            reclaim_ns = (reclaim_ns < 0 ? 0 : reclaim_ns) + list.all[i].ticks * tick_ns;
    free(t->known);
    t->known = list.all;
    t->count = kept;
    if (t->has_children && list.threads > THREADS_MAX) {
        free(t->known);
        t->known = NULL;
        t->count = 0;
        t->has_children = false;
    }
    t->tree_ns = tree_ns > t->tree_ns ? tree_ns : t->tree_ns; /* it is a counter */
    t->reclaim_ns = reclaim_ns;
    return true;
}
