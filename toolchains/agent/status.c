#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "json.h"
#include "supervise.h"

#define STATUS_RESERVED_BYTES (16 * 1024)
/* Bytes of the members with the board's state; a board that needs more is reported without. */
#define STATE_BYTES (12 * 1024)

/* As it is, not as it was asked for. */
static void write_circumstances(struct json *json, pid_t job)
{
    cpu_set_t cpus;
    char text[256];
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, (id_t)job);
    json_key(json, "nice");
    if (errno)
        json_null(json);
    else
        json_int(json, nice);
    const bool known = sched_getaffinity(job, sizeof cpus, &cpus) == 0;
    if (known)
        format_cpus(&cpus, text, sizeof text);
    json_member_string(json, "cpus", known ? text : NULL);
    struct rlimit limit;
    json_key(json, "memlock_bytes");
    if (prlimit(job, RLIMIT_MEMLOCK, NULL, &limit) != 0)
        json_null(json);
    else if (limit.rlim_cur == RLIM_INFINITY)
        json_string(json, "unlimited");
    else
        json_int(json, (int64_t)limit.rlim_cur);
}

static void write_confinement(struct json *json, const struct supervisor *s)
{
    json_member_string(json, "confinement", s->confined ? "pid-namespace" : NULL);
}

bool started_write(const struct supervisor *s, char **line)
{
    struct json json = { 0 };
    json_open(&json, '{');
    json_member_int(&json, "schema", 1);
    json_member_string(&json, "agent_version", AGENT_VERSION);
    json_member_int(&json, "pid", getpid());
    json_member_int(&json, "pid_start_ticks", (int64_t)process_start_ticks(getpid()));
    json_member_int(&json, "job_pid", s->job.pid);
    json_member_int(&json, "job_start_ticks", (int64_t)process_start_ticks(s->job.pid));
    json_member_string(&json, "boot_id", s->boot_id);
    json_member_int(&json, "start_mono_ns", s->job.start_ns);
    json_member_int(&json, "start_utc_ns", s->job.start_utc_ns);
    json_member_int(&json, "epoch", (int64_t)s->options->lease->epoch);
    json_member_string(&json, "emulator", s->emulator);
    write_confinement(&json, s);
    survivors_write(&s->survivors, &json);
    write_circumstances(&json, s->job.pid);
    json_key(&json, "argv");
    json_open(&json, '[');
    for (char **word = s->options->argv; *word; word++)
        json_string(&json, *word);
    json_close(&json, ']');
    json_close(&json, '}');
    if (json.failed) {
        errno = ENOMEM;
        return false;
    }
    *line = json.text;
    return write_atomic(s->dir, "started.json", json.text, json.length, false);
}

void status_reserve(const struct supervisor *s)
{
    char blank[STATUS_RESERVED_BYTES];
    int fd = openat(s->dir, "status.json.tmp", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return; /* the sinks will say why */
    memset(blank, ' ', sizeof blank);
    write_all(fd, blank, sizeof blank);
    close(fd);
}

int64_t oom_kills(void)
{
    char text[16 * 1024];
    if (read_small(AT_FDCWD, "/proc/vmstat", text, sizeof text) <= 0)
        return -1;
    char *line = strstr(text, "\noom_kill ");
    return line ? strtoll(line + strlen("\noom_kill "), NULL, 10) + fake_number("oom_kills") : -1;
}

static void write_end(struct json *json, const struct supervisor *s)
{
    const struct job *job = &s->job;
    const bool exited = job->ended && WIFEXITED(job->wait_status);
    const bool signaled = job->ended && WIFSIGNALED(job->wait_status);
    const char *outcome = s->outcome ? s->outcome : exited ? "exited" : "signaled";
    json_member_string(json, "outcome", outcome);
    json_member_count(json, "exit_status", exited ? WEXITSTATUS(job->wait_status) : -1);
    json_member_count(json, "signal", signaled ? WTERMSIG(job->wait_status) : -1);
    json_member_string(json, "error", *s->error ? s->error : NULL);
}

/* The two clocks cannot be read in one moment: what is less than this is no sleep. */
static int64_t suspended_ns(const struct supervisor *s)
{
    int64_t slept = asleep_ns() - s->asleep_before_ns;
    return slept < 10 * NS_PER_MS ? 0 : slept;
}

static void write_state(struct json *json, const struct state *state)
{
    struct json members = { 0 };
    json_open(&members, '{');
    state_write(state, &members);
    json_close(&members, '}');
    json_key(json, "state");
    if (members.failed || members.length > STATE_BYTES)
        json_null(json);
    else
        json_raw(json, members.text, members.length);
    json_free(&members);
}

bool status_write(struct supervisor *s)
{
    struct json json = { 0 };
    int64_t kills = oom_kills(), end_ns = s->job.end_ns ? s->job.end_ns : monotonic_ns();
    json_open(&json, '{');
    json_member_int(&json, "schema", 1);
    write_end(&json, s);
    json_member_int(&json, "start_mono_ns", s->job.start_ns);
    json_member_int(&json, "end_mono_ns", end_ns);
    json_member_int(&json, "wall_ns", end_ns - s->job.start_ns);
    json_member_int(&json, "suspended_ns", suspended_ns(s));
    json_member_int(&json, "start_utc_ns", s->job.start_utc_ns);
    json_member_int(&json, "end_utc_ns", clock_ns(CLOCK_REALTIME) - (monotonic_ns() - end_ns));
    json_member_int(&json, "user_ns", s->usage.user_ns);
    json_member_int(&json, "system_ns", s->usage.system_ns);
    json_member_int(&json, "max_rss_bytes", s->usage.max_rss_bytes);
    json_member_int(&json, "minor_faults", s->usage.minor_faults);
    json_member_int(&json, "major_faults", s->usage.major_faults);
    json_member_int(&json, "agent_cpu_ns", clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    json_member_int(&json, "longest_pause_ns", s->longest_pause_ns);
    json_member_count(&json, "longest_stamp_pause_ns", s->lateness.longest_pause_ns);
    json_member_string(&json, "stamp_scheduler", scheduler());
    json_member_count(&json, "stamp_wait_ns", s->lateness.wait_ns);
    json_member_count(&json, "longest_stamp_wait_ns", s->lateness.longest_ns);
    json_member_int(&json, "stdout_bytes", s->streams[0].length);
    json_member_int(&json, "stderr_bytes", s->streams[1].length);
    write_confinement(&json, s);
    json_member_int(&json, "leftover_processes", s->leftovers);
    json_member_int(&json, "unkilled_processes", s->unkilled);
    json_member_count(&json, "oom_kills",
                      kills < 0 || s->oom_kills_before < 0 ? -1 : kills - s->oom_kills_before);
    json_member_string(&json, "boot_id", s->boot_id);
    json_member_int(&json, "epoch", (int64_t)s->options->lease->epoch);
    json_key(&json, "counters");
    counters_write(&s->job.counters, &json);
    write_state(&json, &s->state);
    json_close(&json, '}');
    if (json.failed) {
        errno = ENOMEM;
        return false;
    }
    bool good = write_atomic(s->dir, "status.json", json.text, json.length, true);
    json_free(&json);
    return good;
}
