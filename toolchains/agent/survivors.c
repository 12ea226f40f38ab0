#define _GNU_SOURCE
#include "survivors.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "tree.h"
#include "util.h"

/* What the limits of boards' jobs are above, and those of virtual boards' jobs. No other limit is a
 * sign: a service or a container may have got a lower one from somebody. */
#define BOARD_LIMIT (1ULL << 61)
#define SANDBOX_LIMIT (1ULL << 62)
/* A supervisor that has written its status has a moment to end. */
#define GRACE_NS (3 * NS_PER_SECOND)
#define AGAIN_NS (5 * NS_PER_MS)
#define CLEAN_LOOKS 10
#define OWN_MAX 64
/* Processes that stand this long are looked at twice. */
#define OLD_SECONDS 10
#define PIDS (1 << 22) /* Linux has no greater number */

/* FNV-1a. */
static uint64_t number_of(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; length; text++, length--)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

/* The limit of the jobs below a directory. On a host with several boards each has its own. */
static uint64_t mark_of(const char *jobs, size_t length)
{
    const char *sandbox = getenv("LABCTL_SANDBOX");
    return sandbox && *sandbox
               ? SANDBOX_LIMIT | (number_of(sandbox, strlen(sandbox)) & (SANDBOX_LIMIT - 1))
               : BOARD_LIMIT | (number_of(jobs, length) & (BOARD_LIMIT - 1));
}

void mark_job(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    const uint64_t mark = mark_of(dir, slash ? (size_t)(slash - dir) : 0);
    const struct rlimit limit = { mark, mark };
    setrlimit(RLIMIT_LOCKS, &limit); /* less than what is allowed, or this job has no such sign */
}

struct hunt {
    const char *jobs; /* and its length */
    size_t length;
    char store[PATH_MAX]; /* beside it, with its length */
    size_t store_length;
    const char *ended;
    int64_t grace_end_ns; /* for supervisors that are just about to end */
    uint64_t own_limit, mark;
    bool quick; /* without the signs that take long to look at */
    /* Two looks at old processes, of which the first was a full one: a bit for each without a sign of its
     * own. NULL: all are looked at each time. */
    unsigned char *innocent[2];
    uint64_t old_until; /* who has started before is old, in clock ticks after the boot */
    pid_t own[OWN_MAX];
    size_t own_count;
};

static uint64_t hard_limit(pid_t pid)
{
    static const char name[] = "Max file locks";
    char path[64], text[4096], hard[32];
    snprintf(path, sizeof path, "/proc/%d/limits", (int)pid);
    const char *line = read_small(AT_FDCWD, path, text, sizeof text) > 0 ? strstr(text, name) : NULL;
    uint64_t value;
    if (!line || sscanf(line + sizeof name - 1, " %*s %31s", hard) != 1 || !parse_u64(hard, &value))
        return UINT64_MAX;
    return value;
}

static bool is_marked(const struct hunt *hunt, pid_t pid)
{
    const uint64_t limit = hard_limit(pid);
    return limit == hunt->mark && limit < hunt->own_limit;
}

/* The words of a process, each with its NUL, up to a final empty one; false when there are none. */
static bool read_words(pid_t pid, const char *file, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    const ssize_t got = read_small(AT_FDCWD, path, text, size - 1);
    if (got <= 0)
        return false;
    text[got + 1] = '\0';
    return true;
}

static bool carries_job(const struct hunt *hunt, pid_t pid)
{
    static const char name[] = "LABCTL_JOB=";
    static char text[128 * 1024];
    if (!read_words(pid, "environ", text, sizeof text))
        return false;
    for (const char *next = text; *next; next += strlen(next) + 1)
        if (strncmp(next, name, sizeof name - 1) == 0 &&
            strncmp(next + sizeof name - 1, hunt->jobs, hunt->length) == 0 &&
            next[sizeof name - 1 + hunt->length] == '/')
            return true;
    return false;
}

static bool is_below(const char *path, const char *folder, size_t length)
{
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* To a file below a folder, not to the folder itself. */
static bool leads_into(int at, const char *link, const char *folder, size_t length)
{
    char path[PATH_MAX];
    const ssize_t got = readlinkat(at, link, path, sizeof path - 1);
    return got > (ssize_t)length && path[length] == '/' && memcmp(path, folder, length) == 0;
}

static bool has_open(const struct hunt *hunt, int process)
{
    const int fd = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *files = fd < 0 ? NULL : fdopendir(fd);
    bool found = false;
    if (!files && fd >= 0)
        close(fd);
    for (struct dirent *entry; files && !found && (entry = readdir(files));)
        found = leads_into(fd, entry->d_name, hunt->jobs, hunt->length);
    if (files)
        closedir(files);
    return found;
}

/* The agent itself lies in the store, and controllers ask it things without a lease. */
static bool is_agent_command(pid_t pid)
{
    static const char *const commands[] = { "wait", "stop", "facts", "hash", "receive", "version" };
    char text[4096];
    if (!read_words(pid, "cmdline", text, sizeof text))
        return false;
    const char *word = text + strlen(text) + 1;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(word, commands[i]) == 0)
            return true;
    return false;
}

/* "folder" or "store"; NULL: neither. */
static const char *place(const struct hunt *hunt, pid_t pid)
{
    char path[64];
    const char *sign = NULL;
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    const int process = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (process < 0)
        return NULL;
    if (leads_into(process, "exe", hunt->jobs, hunt->length) || has_open(hunt, process))
        sign = "folder";
    else if (leads_into(process, "exe", hunt->store, hunt->store_length) && !is_agent_command(pid))
        sign = "store";
    close(process);
    return sign;
}

/* Whether it runs this agent's file, or another one of the store beside its jobs. Who is another user
 * does not let us look. */
static bool runs_agent(pid_t pid, const char *dir)
{
    char path[64], store[PATH_MAX];
    struct stat own, other;
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    if (stat(path, &other) != 0)
        return errno == EACCES;
    if (stat("/proc/self/exe", &own) == 0 && own.st_dev == other.st_dev &&
        own.st_ino == other.st_ino)
        return true;
    snprintf(store, sizeof store, "%s", dir);
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(store, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
    const size_t length = strlen(store);
    snprintf(store + length, sizeof store - length, "/store");
    return leads_into(AT_FDCWD, path, store, strlen(store));
}

/* `agent run` of a job below a directory (NULL: of any). A job cannot pretend to be one: its limit is
 * less than this process's, and where it has the rights to raise that, another file has to run. */
static bool is_supervisor(const struct hunt *hunt, pid_t pid, const char *folder)
{
    static char text[64 * 1024];
    char real[PATH_MAX];
    if (!read_words(pid, "cmdline", text, sizeof text))
        return false;
    const char *word = text + strlen(text) + 1;
    while (*word && strcmp(word, "run") != 0) /* the words of an emulator come first */
        word += strlen(word) + 1;
    for (; *word && strcmp(word, "--") != 0; word += strlen(word) + 1)
        if (strcmp(word, "--dir") == 0) {
            word += sizeof "--dir";
            const char *dir = realpath(word, real) ? real : word;
            return (!folder || is_below(dir, folder, strlen(folder))) &&
                   hard_limit(pid) >= hunt->own_limit && runs_agent(pid, dir);
        }
    return false;
}

/* The process above; false for the first of the machine, and where it is gone. */
static bool go_up(struct process *process)
{
    return process->parent > 1 && read_process(process->parent, process);
}

static bool is_supervised(const struct hunt *hunt, struct process process)
{
    while (go_up(&process))
        if (is_supervisor(hunt, process.pid, NULL))
            return true;
    return false;
}

static bool stands_alone(const struct hunt *hunt, struct process process)
{
    while (go_up(&process))
        if (!place(hunt, process.pid))
            return false;
    return true;
}

static bool is_noted(const unsigned char *innocent, pid_t pid)
{
    return innocent && pid < PIDS && innocent[pid / 8] & (1 << pid % 8);
}

static void note_innocent(const struct hunt *hunt, const struct process *process)
{
    const bool again = is_noted(hunt->innocent[0], process->pid);
    unsigned char *const innocent = hunt->innocent[again];
    if (innocent && (again || !hunt->quick) && process->started < hunt->old_until &&
        process->pid < PIDS)
        innocent[process->pid / 8] |= (unsigned char)(1 << process->pid % 8);
}

/* How a process shows that it is a survivor; NULL: it does not. Who has a sign of its own, and is none
 * because of who stands above it, becomes one when those end. */
static const char *sign_of(const struct hunt *hunt, const struct process *process)
{
    const char *sign = NULL;
    if (is_supervisor(hunt, process->pid, NULL)) { /* on a board its parent is the first process */
        if (hunt->ended && is_supervisor(hunt, process->pid, hunt->ended))
            return "supervisor";
        note_innocent(hunt, process);
        return NULL;
    }
    if (is_marked(hunt, process->pid))
        sign = "limit";
    else if (carries_job(hunt, process->pid))
        sign = "environment";
    else if (!hunt->quick && (sign = place(hunt, process->pid)) && !stands_alone(hunt, *process))
        return NULL;
    if (!sign)
        note_innocent(hunt, process);
    return sign && !is_supervised(hunt, *process) ? sign : NULL;
}

/* This process, and who waits for it. */
static void note_own(struct hunt *hunt)
{
    struct process own;
    const uint64_t old = (uint64_t)(OLD_SECONDS * sysconf(_SC_CLK_TCK));
    hunt->old_until = read_process(getpid(), &own) && own.started > old ? own.started - old : 0;
    own = (struct process){ .parent = getpid() };
    for (hunt->own_count = 0; hunt->own_count < OWN_MAX && go_up(&own);)
        hunt->own[hunt->own_count++] = own.pid;
}

static bool is_own(const struct hunt *hunt, pid_t pid)
{
    for (size_t i = 0; i < hunt->own_count; i++)
        if (hunt->own[i] == pid)
            return true;
    return false;
}

static void remember(struct survivors *found, const struct process *process, const char *sign)
{
    found->last = (struct survivor){ .pid = process->pid, .sign = sign };
    memcpy(found->last.name, process->name, sizeof process->name);
    for (int i = 0; i < found->count && i < SURVIVORS_MAX; i++)
        if (found->list[i].pid == process->pid)
            return;
    if (found->count < SURVIVORS_MAX)
        found->list[found->count] = found->last;
    found->count++;
}

/* Every process in its turn. False at the end. */
static bool next_process(const struct hunt *hunt, DIR *proc, struct process *process)
{
    for (struct dirent *entry; (entry = readdir(proc));) {
        const pid_t pid = isdigit((unsigned char)*entry->d_name) ? (pid_t)atoi(entry->d_name) : 0;
        if (pid <= 0 || is_noted(hunt->innocent[1], pid) || !read_process(pid, process) || process->zombie)
            continue;
        if (process->kernel)
            note_innocent(hunt, process);
        else if (pid > 1 && !is_own(hunt, pid))
            return true;
    }
    return false;
}

/* One look at all processes; how many there were. Each is killed at once: who forks and ends all the
 * time is another one a moment later. */
static int look(const struct hunt *hunt, struct survivors *found)
{
    struct process one;
    int seen = 0;
    DIR *proc = opendir("/proc");
    while (proc && next_process(hunt, proc, &one)) {
        const char *sign = sign_of(hunt, &one);
        const bool waits = sign && strcmp(sign, "supervisor") == 0 &&
                           monotonic_ns() < hunt->grace_end_ns;
        if (!sign || (kill(one.pid, waits ? SIGTERM : SIGKILL) != 0 && errno == ESRCH))
            continue;
        seen++;
        if (!waits)
            remember(found, &one, sign);
    }
    if (proc)
        closedir(proc);
    return seen;
}

static void prepare(struct hunt *hunt, const char *jobs, const char *ended)
{
    struct rlimit own;
    const char *slash = strrchr(jobs, '/');
    if (getrlimit(RLIMIT_LOCKS, &own) != 0)
        own.rlim_max = RLIM_INFINITY;
    *hunt = (struct hunt){ .jobs = jobs,
                           .length = strlen(jobs),
                           .ended = ended,
                           .grace_end_ns = monotonic_ns() + GRACE_NS,
                           .own_limit = own.rlim_max,
                           .mark = mark_of(jobs, strlen(jobs)) };
    hunt->store_length = (size_t)snprintf(hunt->store, sizeof hunt->store, "%.*s/store",
                                          slash ? (int)(slash - jobs) : 0, jobs);
    note_own(hunt);
}

pid_t supervisor_of(const char *dir)
{
    static struct hunt hunt;
    struct process one;
    pid_t found = 0;
    DIR *proc = opendir("/proc");
    prepare(&hunt, dir, NULL);
    while (proc && !found && next_process(&hunt, proc, &one))
        if (is_supervisor(&hunt, one.pid, dir))
            found = one.pid;
    if (proc)
        closedir(proc);
    return found;
}

/* The last process that was started on the board; 0: not known. */
static uint64_t last_started(void)
{
    char text[128];
    const char *last =
        read_small(AT_FDCWD, "/proc/loadavg", text, sizeof text) > 0 ? strrchr(text, ' ') : NULL;
    return last ? strtoull(last, NULL, 10) : 0;
}

bool survivors_end(const char *jobs, const char *ended, int64_t ns, struct survivors *found)
{
    static struct hunt hunt;
    const int64_t until = monotonic_ns() + ns;
    const struct timespec pause = { .tv_nsec = AGAIN_NS };
    bool any = false, good = true;
    prepare(&hunt, jobs, ended);
    for (int i = 0; i < 2; i++) /* not static: the supervisor locks what is */
        hunt.innocent[i] = calloc(PIDS / 8, 1);
    /* A look may miss who forks all the time, and right after an exec a process has no environment. So
     * there are several, unless nothing is found and no process was started meanwhile. Who started
     * long before is looked at twice: a busy host has hundreds. */
    for (int clean = 0; clean < CLEAN_LOOKS;) {
        const uint64_t before = last_started();
        if (look(&hunt, found)) {
            clean = 0;
            any = true;
        } else if (any || before != last_started()) {
            clean++;
        } else {
            break;
        }
        hunt.quick = !any;
        if (monotonic_ns() >= until) {
            good = clean > 0;
            break;
        }
        if (any)
            nanosleep(&pause, NULL);
    }
    for (int i = 0; i < 2; i++)
        free(hunt.innocent[i]);
    return good;
}

void survivors_write(const struct survivors *found, struct json *json)
{
    if (!found->count)
        return;
    json_key(json, "survivors");
    json_open(json, '[');
    for (int i = 0; i < found->count && i < SURVIVORS_MAX; i++) {
        json_open(json, '{');
        json_member_int(json, "pid", found->list[i].pid);
        json_member_string(json, "name", found->list[i].name);
        json_member_string(json, "sign", found->list[i].sign);
        json_close(json, '}');
    }
    json_close(json, ']');
}

int refuse_survivors(const struct survivors *found)
{
    return fail(EXIT_BUSY, "survivor", "process %d (%s) of an earlier job does not end",
                (int)found->last.pid, found->last.name);
}
