/* `agent wait` and `agent stop`: what has become of the job in a directory.
 *
 * One JSON object: state, and what is known of the job.
 *     running   the supervisor lives
 *     finished  there is a status.json; it is the member "status"
 *     lost      the supervisor is gone and left no status.json, perhaps no started.json either
 *     rebooted  the board has restarted since
 *     absent    no job was started here; `stop` waits while one is about to be
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "failure.h"
#include "json.h"
#include "survivors.h"
#include "util.h"

/* How often the supervisor is looked at; the end of the job itself is noticed at once. */
#define LOOK_MS 1000
/* Without inotify, the end of the job is noticed by looking. */
#define LOOK_BLIND_MS 100
/* A sample has a few hundred bytes, with 64 sensors of each kind some twenty thousand. */
#define TAIL_BYTES (32 * 1024)
/* It holds the job's arguments. */
#define STARTED_BYTES (1 << 20)
/* Bytes of the program's last output on standard error. */
#define LAST_BYTES 240
/* Under the lease nothing is started: what seems to be is nearly there. */
#define START_NS (2 * NS_PER_SECOND)
#define AGAIN_NS (20 * NS_PER_MS)

enum state { RUNNING, FINISHED, LOST, REBOOTED, ABSENT };
static const char *const state_names[] = { "running", "finished", "lost", "rebooted", "absent" };

struct view {
    int dir;
    char boot_id[BOOT_ID_SIZE];
    char status[32 * 1024];
    pid_t supervisor;
};

/* What started.json says; false when there is none, or not yet. */
static bool read_started(struct view *view, char boot_id[BOOT_ID_SIZE], uint64_t *ticks)
{
    char *text = malloc(STARTED_BYTES); /* not static: the supervisor locks what is */
    uint64_t pid;
    const bool good = text && read_plain(view->dir, "started.json", text, STARTED_BYTES) > 0 &&
                      json_find_text(text, "boot_id", boot_id, BOOT_ID_SIZE) &&
                      json_find_u64(text, "pid", &pid) &&
                      json_find_u64(text, "pid_start_ticks", ticks);
    free(text);
    if (good)
        view->supervisor = (pid_t)pid;
    return good;
}

/* Whether a supervisor is here: it holds a lock of the directory from its first moment on. */
static bool is_supervised(const struct view *view)
{
    if (view->dir < 0)
        return false;
    if (flock(view->dir, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK;
    flock(view->dir, LOCK_UN);
    return false;
}

static bool real_path(const struct view *view, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", view->dir);
    return realpath(link, path) != NULL;
}

static bool has_status(struct view *view)
{
    return read_plain(view->dir, "status.json", view->status, sizeof view->status) > 0;
}

static enum state look(struct view *view)
{
    char boot_id[BOOT_ID_SIZE], path[PATH_MAX];
    uint64_t ticks;
    if (view->dir < 0)
        return ABSENT;
    const bool supervised = is_supervised(view);
    if (has_status(view)) {
        /* A job can make such a file. Its supervisor removes that, then lets go of the directory, then
         * makes its own. */
        if (!supervised)
            return FINISHED;
        if (real_path(view, path) && supervisor_of(path))
            return RUNNING;
        if (has_status(view)) /* it has ended meanwhile, or another process has the lock */
            return FINISHED;
    }
    if (!read_started(view, boot_id, &ticks)) {
        /* Its files are made, under the lock of the directory, before there is a started.json. */
        if (faccessat(view->dir, "stdout", F_OK, AT_SYMLINK_NOFOLLOW) != 0 || supervised)
            return ABSENT;
        if (has_status(view))
            return FINISHED; /* meanwhile */
        if (!read_started(view, boot_id, &ticks))
            return LOST;
    }
    if (strcmp(boot_id, view->boot_id) != 0)
        return REBOOTED;
    if (process_start_ticks(view->supervisor) == ticks)
        return RUNNING;
    /* It may have finished since the first look. */
    return has_status(view) ? FINISHED : LOST;
}

static enum state wait_until_over(struct view *view, const char *path, int64_t ns)
{
    int64_t until = monotonic_ns() + ns;
    int notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    bool watched = notify >= 0 && inotify_add_watch(notify, path, IN_MOVED_TO) >= 0;
    enum state state;
    for (;;) {
        state = look(view);
        int64_t left = until - monotonic_ns();
        /* A job can spoil what was written of its start: while it is supervised, its end will come. */
        const bool goes_on = state == RUNNING || (state == ABSENT && is_supervised(view));
        if (!goes_on || left <= 0)
            break;
        char events[4096];
        int64_t most = watched ? LOOK_MS : LOOK_BLIND_MS, left_ms = left / NS_PER_MS + 1;
        struct pollfd polled = { watched ? notify : -1, POLLIN, 0 };
        if (poll(&polled, 1, (int)(left_ms < most ? left_ms : most)) > 0)
            while (read(notify, events, sizeof events) > 0)
                ;
    }
    if (notify >= 0)
        close(notify);
    return state;
}

/* The last bytes of a file, at most `most`, with a NUL; false when there is no such file. */
static bool read_tail(const struct view *view, const char *name, char *text, size_t most)
{
    const char *why;
    struct stat status;
    int fd = open_plain(view->dir, name, &why);
    if (fd < 0)
        return false;
    ssize_t got = -1;
    if (fstat(fd, &status) == 0) {
        off_t from = status.st_size > (off_t)most ? status.st_size - (off_t)most : 0;
        got = pread(fd, text, most, from);
    }
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got >= 0;
}

static int64_t size_of(const struct view *view, const char *name)
{
    struct stat status;
    return fstatat(view->dir, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && !not_plain(&status)
               ? (int64_t)status.st_size
               : -1;
}

/* The last whole sample on disk: up to two seconds old, and nothing was measured to have it. */
static char *last_sample(const struct view *view)
{
    static char text[TAIL_BYTES + 1];
    if (!read_tail(view, "telemetry", text, TAIL_BYTES))
        return NULL;
    char *end = strrchr(text, '\n');
    if (!end)
        return NULL;
    *end = '\0';
    char *begin = strrchr(text, '\n');
    return begin ? begin + 1 : *text == '{' ? text : NULL;
}

static void write_sample(const struct view *view, struct json *json)
{
    static const char *const members[] = { "mono_ns", "stdout", "stderr", "temps_mc" };
    const char *sample = last_sample(view);
    json_key(json, "sample");
    if (!sample) {
        json_null(json);
        return;
    }
    json_open(json, '{');
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        size_t length;
        const char *value = json_find(sample, members[i], &length);
        if (!value)
            continue;
        json_key(json, members[i]);
        json_raw(json, value, length);
    }
    json_close(json, '}');
}

static int report(const struct view *view, enum state state, const struct survivors *killed)
{
    struct json json = { 0 };
    char last[LAST_BYTES + 1];
    json_open(&json, '{');
    json_member_int(&json, "schema", 1);
    json_member_string(&json, "state", state_names[state]);
    json_member_string(&json, "boot_id", view->boot_id);
    json_member_int(&json, "mono_ns", monotonic_ns());
    json_member_count(&json, "stdout_bytes", size_of(view, "stdout"));
    json_member_count(&json, "stderr_bytes", size_of(view, "stderr"));
    const bool found = read_tail(view, "stderr", last, LAST_BYTES);
    json_member_string(&json, "stderr_end", found ? last : NULL);
    write_sample(view, &json);
    json_member_count(&json, "killed", killed ? killed->count : -1);
    if (killed)
        survivors_write(killed, &json);
    json_key(&json, "status");
    if (state == FINISHED)
        json_raw(&json, view->status, strlen(view->status));
    else
        json_null(&json);
    json_close(&json, '}');
    return json_print(&json, STDOUT_FILENO) ? 0 : EXIT_SYSTEM;
}

static int open_view(struct view *view, const char *dir)
{
    if (!current_boot_id(view->boot_id))
        return fail(EXIT_SYSTEM, "system", "this kernel has no boot id: %s", strerror(errno));
    view->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (view->dir < 0 && errno != ENOENT)
        return fail(EXIT_DIRECTORY, "directory", "cannot open %s: %s", dir, strerror(errno));
    return 0;
}

/* As look(), but a job that is about to be started counts: stopping it means that it never runs. */
static enum state look_for_start(struct view *view, int64_t until)
{
    const struct timespec pause = { .tv_nsec = AGAIN_NS };
    for (;;) {
        const bool supervised = is_supervised(view); /* before the look: it may end meanwhile */
        const enum state state = look(view);
        if (state != ABSENT || !supervised || monotonic_ns() >= until)
            return state;
        nanosleep(&pause, NULL);
    }
}

static struct view view;

int command_wait(const char *dir, int64_t ns)
{
    int error = open_view(&view, dir);
    return error ? error : report(&view, wait_until_over(&view, dir, ns), NULL);
}

/* Kill what a dead supervisor left, and one whose job has changed its files. */
static bool kill_orphans(int64_t ns, struct survivors *found)
{
    char dir[PATH_MAX], jobs[PATH_MAX];
    if (!real_path(&view, dir))
        return true;
    snprintf(jobs, sizeof jobs, "%.*s", (int)(strrchr(dir, '/') - dir), dir);
    return survivors_end(jobs, dir, ns, found);
}

/* How the job stands when it has ended, or ns are over; *clean: nothing of it is left, where that is to be *found. A job that is
 * about to be started is waited for; after start_ns it is one that has changed its files. */
static enum state stop(const char *dir, int64_t start_ns, int64_t ns, struct survivors *found,
                       bool *clean)
{
    char path[PATH_MAX];
    const int64_t until = monotonic_ns() + ns; /* for both waits together */
    enum state state = look_for_start(&view, monotonic_ns() + start_ns);
    if (state == RUNNING) {
        const pid_t supervisor = real_path(&view, path) ? supervisor_of(path) : 0;
        if (supervisor) /* started.json may name any process by now */
            kill(supervisor, SIGTERM);
        state = wait_until_over(&view, dir, until - monotonic_ns());
    }
    if (state == ABSENT && is_supervised(&view))
        state = LOST;
    *clean = state != LOST || !found || kill_orphans(ns, found);
    return state == LOST ? look(&view) : state;
}

bool end_job(const char *dir, int64_t ns)
{
    bool clean;
    if (!current_boot_id(view.boot_id))
        return false;
    view.dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (view.dir < 0)
        return errno == ENOENT;
    const enum state state = stop(dir, START_NS, ns, NULL, &clean);
    close(view.dir);
    return state != RUNNING;
}

int command_stop(const char *dir, int64_t ns, struct lease_hold *lease)
{
    static struct survivors found;
    bool clean;
    int error = lease_enter(lease, false);
    if (!error)
        error = open_view(&view, dir);
    if (error)
        return error;
    const enum state state = stop(dir, ns / 2, ns, &found, &clean);
    if (!clean)
        return refuse_survivors(&found);
    error = report(&view, state, state == LOST || found.count ? &found : NULL);
    return error ? error : state == RUNNING;
}
