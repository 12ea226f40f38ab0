#define _GNU_SOURCE
#include "supervise.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lease.h"
#include "tree.h"

#define FLUSH_EVERY_NS (2 * NS_PER_SECOND)
#define LEASE_EVERY_NS (3 * NS_PER_SECOND)
#define DRAIN_NS (500 * NS_PER_MS)
#define TERM_GRACE_NS (2 * NS_PER_SECOND)
#define KILL_GRACE_NS (10 * NS_PER_SECOND)
#define KILL_AGAIN_NS (50 * NS_PER_MS)
/* A timeline of a job that writes byte by byte must not fill the board either. */
#define TIMELINE_MAX_BYTES (64LL << 20)

static void enter(struct supervisor *s, enum phase phase, int64_t lasts_ns)
{
    s->phase = phase;
    s->phase_end_ns = monotonic_ns() + lasts_ns;
}

/* All of the job; as tree_signal. */
static int signal_tree(const struct supervisor *s, int number)
{
    const pid_t init = s->job.confinement.init; /* not a process of the job */
    const int sent = tree_signal(number, init);
    if (number == SIGKILL && init && s->children)
        kill(init, SIGKILL); /* what is forked meanwhile ends too */
    return sent;
}

/* End the job for a reason of the agent's; the first reason stays. */
__attribute__((format(printf, 3, 4))) static void end(struct supervisor *s, const char *outcome,
                                                      const char *format, ...)
{
    if (s->outcome)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->error, sizeof s->error, format, arguments);
    va_end(arguments);
    s->outcome = outcome;
    if (s->phase != RUNNING && s->phase != DRAINING)
        return; /* it is ending already */
    signal_tree(s, SIGTERM);
    enter(s, TERMINATING, TERM_GRACE_NS);
}

static void check_sinks(struct supervisor *s)
{
    const struct sink *sinks[] = { &s->streams[0], &s->streams[1], &s->timeline, &s->samples,
                                   &s->counts };
    for (size_t i = 0; i < sizeof sinks / sizeof *sinks; i++) {
        int error = sinks[i]->error;
        if (error)
            end(s, error == ENOSPC || error == EDQUOT ? "no-space" : "write-failed",
                "cannot write the job's output: %s", strerror(error));
    }
}

/* The job's directory is its working directory: it may do anything to the files there. What it did
 * comes before any other outcome, for then the files prove nothing. */
static void check_files(struct supervisor *s)
{
    const struct sink *sinks[] = { &s->streams[0], &s->streams[1], &s->timeline, &s->samples,
                                   &s->counts };
    for (size_t i = 0; i < sizeof sinks / sizeof *sinks; i++) {
        int64_t bytes;
        fchmod(sinks[i]->fd, 0644); /* who fetches it may be no more than its owner */
        const char *how = sinks[i]->error ? NULL : sink_changed(sinks[i], s->dir, &bytes);
        if (!how)
            continue;
        s->outcome = "files-changed";
        int length = snprintf(s->error, sizeof s->error, "%s %s", sinks[i]->name, how);
        if (bytes >= 0)
            snprintf(s->error + length, sizeof s->error - (size_t)length, ": %lld bytes, not %lld",
                     (long long)bytes, (long long)sinks[i]->length);
        return;
    }
}

static void count(struct output *output, const char *data, int64_t length, int64_t now)
{
    const int64_t pieces = atomic_load(&output->pieces);
    int64_t lines = 0;
    for (const char *next = data, *end = data + length;
         (next = memchr(next, '\n', (size_t)(end - next))); next++)
        lines++;
    if (!pieces)
        atomic_store(&output->first_ns, now);
    atomic_store(&output->last_ns, now);
    atomic_store(&output->lines, atomic_load(&output->lines) + lines);
    atomic_store(&output->bytes, atomic_load(&output->bytes) + length);
    atomic_store(&output->pieces, pieces + 1);
}

static void record(struct supervisor *s, int stream, const char *data, int64_t length, int64_t now)
{
    struct sink *sink = &s->streams[stream];
    int64_t room = s->options->max_output_bytes - s->streams[0].length - s->streams[1].length;
    int64_t kept = length < room ? length : room;
    if (kept > 0) {
        sink_printf(&s->timeline, "%lld %d %lld %lld\n", (long long)now, stream + 1,
                    (long long)sink->length, (long long)kept);
        sink_add(sink, data, (size_t)kept);
        count(&s->output[stream], data, kept, now);
    }
    if (kept < length)
        end(s, "output-limit", "more than %lld bytes of output",
            (long long)s->options->max_output_bytes);
    if (s->timeline.length > TIMELINE_MAX_BYTES)
        end(s, "output-limit", "output in too many small pieces: %lld bytes of timeline",
            (long long)s->timeline.length);
}

/* A stream that became readable meanwhile is stamped late by at most this; `came`: it was already. */
static void paused(struct supervisor *s, int64_t ns, bool came)
{
    lateness_pause(&s->lateness, ns, came);
    if (ns > s->longest_pause_ns && s->phase == RUNNING)
        s->longest_pause_ns = ns;
}

/* Read once, stamp at once. False when there was nothing. */
static bool read_stream(struct supervisor *s, int stream)
{
    static char data[64 * 1024]; /* a pipe holds no more by default */
    ssize_t got = read(s->job.pipes[stream], data, sizeof data);
    int64_t now = monotonic_ns();
    if (got > 0) {
        if (!s->outcome || strcmp(s->outcome, "output-limit") != 0)
            record(s, stream, data, got, now);
        if (stream == 0)
            counters_read(&s->job.counters, &s->counts, now, false);
        return true;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(s->job.pipes[stream]);
        s->job.pipes[stream] = -1;
    }
    return false;
}

/* What is in the pipes now; a writer outside the tree could continue for ever. */
static void take_rest(struct supervisor *s)
{
    for (int i = 0; i < 2; i++)
        for (int reads = 0; s->job.pipes[i] >= 0 && reads < 16 && read_stream(s, i); reads++)
            ;
}

static int64_t timeval_ns(struct timeval time)
{
    return (int64_t)time.tv_sec * NS_PER_SECOND + (int64_t)time.tv_usec * 1000;
}

static void add_usage(struct usage *usage, const struct rusage *one)
{
    int64_t rss = (int64_t)one->ru_maxrss * 1024;
    usage->user_ns += timeval_ns(one->ru_utime);
    usage->system_ns += timeval_ns(one->ru_stime);
    usage->minor_faults += one->ru_minflt;
    usage->major_faults += one->ru_majflt;
    if (rss > usage->max_rss_bytes)
        usage->max_rss_bytes = rss;
}

/* Bury the dead, the program itself and adopted orphans alike. */
static void reap(struct supervisor *s)
{
    struct rusage one;
    siginfo_t info = { 0 };
    if (!s->job.ended &&
        waitid(P_PID, (id_t)s->job.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == s->job.pid) {
        s->job.end_ns = monotonic_ns();
        take_rest(s); /* before anything that may take its time */
        counters_read(&s->job.counters, &s->counts, s->job.end_ns, true);
        sampler_stop(&s->sampler, true); /* its counters are there until it is reaped */
    }
    for (;;) {
        int status;
        pid_t pid = wait4(-1, &status, WNOHANG, &one);
        if (pid <= 0) {
            s->children = pid == 0;
            return;
        }
        add_usage(&s->usage, &one);
        if (pid == s->job.pid) {
            if (!s->job.end_ns) /* it ended between the two questions */
                s->job.end_ns = monotonic_ns();
            s->job.ended = true;
            s->job.wait_status = status;
            confine_drain(&s->job.confinement);
        }
        if (pid == s->job.confinement.init)
            s->job.confinement.init = 0; /* another process may get its number */
    }
}

static void take_signals(struct supervisor *s, bool came)
{
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGCONT) /* it was stopped: since then at the earliest */
            paused(s, monotonic_ns() - s->listening_ns, came);
        else if (info.ssi_signo != SIGCHLD && s->phase == RUNNING)
            end(s, "stopped", "stopped by signal %u from process %u", info.ssi_signo,
                info.ssi_pid);
    reap(s);
}

static void check_lease(struct supervisor *s)
{
    uint64_t current;
    const struct lease_hold *lease = s->options->lease;
    if (lease->path && lease_check(lease->path, lease->epoch, &current) == LEASE_STALE)
        end(s, "stale-epoch", "the board's lease has epoch %llu, this job has %llu",
            (unsigned long long)current, (unsigned long long)lease->epoch);
}

static void advance_phase(struct supervisor *s, int64_t now)
{
    const bool closed = s->job.pipes[0] < 0 && s->job.pipes[1] < 0;
    if (s->phase == RUNNING) {
        if (s->job.ended)
            enter(s, DRAINING, DRAIN_NS);
        else if (now >= s->phase_end_ns)
            end(s, "timeout", "not ended within %lld.%03lld s",
                (long long)(s->options->timeout_ns / NS_PER_SECOND),
                (long long)(s->options->timeout_ns / NS_PER_MS % 1000));
        else
            return;
    }
    const bool due = now >= s->phase_end_ns;
    reap(s);
    if (!s->children && (closed || due || s->phase == KILLING)) {
        s->phase = OVER;
    } else if (s->phase == KILLING) {
        int alive = signal_tree(s, SIGKILL);
        if (due) {
            s->unkilled = alive;
            s->phase = OVER;
        }
    } else if (due) {
        int alive = signal_tree(s, SIGKILL);
        if (s->phase == DRAINING)
            s->leftovers = alive;
        enter(s, KILLING, KILL_GRACE_NS);
    }
}

static void periodic(struct supervisor *s, int64_t now)
{
    if (s->phase == RUNNING && now >= s->lease_ns) {
        check_lease(s);
        s->lease_ns = now + LEASE_EVERY_NS;
    }
    if (now >= s->flush_ns) {
        for (int i = 0; i < 2; i++)
            sink_flush(&s->streams[i]);
        sink_flush(&s->timeline);
        sink_flush(&s->counts);
        s->flush_ns = now + FLUSH_EVERY_NS;
    }
    check_sinks(s);
}

static int64_t earliest(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

static struct timespec patience(const struct supervisor *s, int64_t now)
{
    int64_t due = earliest(s->phase_end_ns, s->flush_ns);
    if (s->phase == RUNNING)
        due = earliest(due, s->lease_ns);
    if (s->phase == KILLING)
        due = earliest(due, now + KILL_AGAIN_NS);
    int64_t left = due > now ? due - now : 0;
    return (struct timespec){ .tv_sec = left / NS_PER_SECOND, .tv_nsec = left % NS_PER_SECOND };
}

void supervise(struct supervisor *s)
{
    int64_t now = monotonic_ns();
    s->phase = RUNNING;
    s->phase_end_ns = s->job.start_ns + s->options->timeout_ns;
    s->children = true;
    s->flush_ns = now + FLUSH_EVERY_NS;
    s->lease_ns = now + LEASE_EVERY_NS;
    s->listening_ns = now;
    lateness_open(&s->lateness);
    if (s->options->sample_ns)
        sampler_start(&s->sampler, &s->samples, s->output, s->job.pid, s->dir,
                      s->options->sample_ns, s->options->max_output_bytes);
    sink_printf(&s->timeline, "labctl-timeline 1 %lld\n", (long long)s->job.start_ns);
    while (s->phase != OVER) {
        struct pollfd polled[3] = { { s->job.pipes[0], POLLIN, 0 },
                                    { s->job.pipes[1], POLLIN, 0 },
                                    { s->signals, POLLIN, 0 } };
        struct timespec timeout = patience(s, now);
        int ready = ppoll(polled, 3, &timeout, NULL);
        int64_t woken = monotonic_ns();
        bool came[2] = { false, false };
        for (int i = 0; i < 2 && ready > 0; i++)
            if (polled[i].revents)
                came[i] = read_stream(s, i);
        lateness_note(&s->lateness, came[0], came[1]);
        if (ready > 0 && polled[2].revents)
            take_signals(s, came[0]);
        now = monotonic_ns();
        advance_phase(s, now);
        periodic(s, now);
        now = s->listening_ns = monotonic_ns();
        paused(s, now - woken, false);
    }
    take_rest(s);
    counters_read(&s->job.counters, &s->counts, s->job.end_ns, true);
    sampler_stop(&s->sampler, false);
    for (int i = 0; i < 2; i++)
        sink_sync(&s->streams[i]);
    sink_sync(&s->timeline);
    sink_sync(&s->counts);
    sink_sync(&s->samples);
    check_sinks(s);
    check_files(s);
}
