#define _GNU_SOURCE
#include "tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

#define KERNEL_THREAD 0x00200000u /* PF_KTHREAD of linux/sched.h */

bool read_process(pid_t pid, struct process *process)
{
    char path[64], text[1024], state;
    unsigned long long started;
    int parent, session, threads;
    unsigned flags;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_small(AT_FDCWD, path, text, sizeof text) <= 0)
        return false;
    char *name = strchr(text, '('), *rest = strrchr(text, ')');
    if (!name || !rest ||
        sscanf(rest + 1,
               " %c %d %*d %d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu", &state,
               &parent, &session, &flags, &threads, &started) != 6)
        return false;
    /* A main thread that has ended alone looks like a zombie, while the others run on. */
    const bool zombie = state == 'X' || (state == 'Z' && threads <= 1);
    *process = (struct process){ .pid = pid, .parent = parent, .session = session,
                                  .started = started, .zombie = zombie, .kernel = flags & KERNEL_THREAD };
    *rest = '\0';
    snprintf(process->name, sizeof process->name, "%s", name + 1);
    return true;
}

/* Every process of the machine; NULL when there is no memory or no /proc. */
static struct process *all_processes(size_t *count)
{
    struct process *list = NULL;
    size_t capacity = 0;
    *count = 0;
    DIR *proc = opendir("/proc");
    if (!proc)
        return NULL;
    for (struct dirent *entry; (entry = readdir(proc));) {
        if (!isdigit((unsigned char)*entry->d_name))
            continue;
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 256;
            struct process *longer = realloc(list, capacity * sizeof *list);
            if (!longer)
                break;
            list = longer;
        }
        if (read_process((pid_t)atoi(entry->d_name), &list[*count]))
            (*count)++;
    }
    closedir(proc);
    return list;
}

static int by_pid(const void *one, const void *other)
{
    const pid_t a = ((const struct process *)one)->pid, b = ((const struct process *)other)->pid;
    return (a > b) - (a < b);
}

static bool parent_is_below(const struct process *list, size_t count, pid_t parent, pid_t root)
{
    if (parent == root)
        return true;
    const struct process wanted = { .pid = parent };
    const struct process *found = bsearch(&wanted, list, count, sizeof *list, by_pid);
    return found && found->below;
}

int tree_signal(int number, pid_t but)
{
    size_t count;
    int sent = 0;
    struct process *list = all_processes(&count);
    if (count)
        qsort(list, count, sizeof *list, by_pid);
    for (bool grew = true; grew;) {
        grew = false;
        for (size_t i = 0; i < count; i++)
            if (!list[i].below && parent_is_below(list, count, list[i].parent, getpid()))
                grew = list[i].below = true;
    }
    for (size_t i = 0; i < count; i++)
        if (list[i].below && !list[i].zombie && list[i].pid != but &&
            (kill(list[i].pid, number) == 0 || errno == EPERM)) /* it lives, as somebody else */
            sent++;
    free(list);
    return sent;
}
