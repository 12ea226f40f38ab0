/* `agent run`: check, detach, supervise. The launching process stays until the program runs. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "emulate.h"
#include "failure.h"
#include "json.h"
#include "lateness.h"
#include "lease.h"
#include "supervise.h"

#define SURVIVORS_NS (10 * NS_PER_SECOND)

static struct supervisor supervisor; /* too large for a stack */

/* Each is made exclusively: a directory serves one job, ever. */
static const char *const sink_names[] = { "stdout", "stderr", "timeline", "telemetry", "counters" };
#define SINKS (int)(sizeof sink_names / sizeof *sink_names)

/* What the supervisor tells the launcher: one byte of exit status, then a line of JSON. */
static void tell(int report, int status, const char *line)
{
    unsigned char byte = (unsigned char)status;
    if (write_all(report, &byte, 1) && write_all(report, line, strlen(line)))
        write_all(report, "\n", 1);
    close(report);
}

__attribute__((format(printf, 4, 5))) static void
tell_failure(int report, int status, const char *kind, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *line = failure_line(kind, format, arguments);
    va_end(arguments);
    tell(report, status, line ? line : "{}");
    free(line);
}

/* Nothing of the launching shell may be held: its pipe must see the end of the command. False with
 * errno set where there is nothing to put in its place. */
static bool let_go(int report)
{
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (null < 0 || dup2(null, fd) < 0)
            return false;
    DIR *open_files = opendir("/proc/self/fd");
    if (!open_files)
        return false;
    for (struct dirent *entry; (entry = readdir(open_files));) {
        int fd = atoi(entry->d_name);
        if (fd > STDERR_FILENO && fd != report && fd != supervisor.dir &&
            fd != supervisor.options->lease->lock && fd != dirfd(open_files))
            close(fd);
    }
    closedir(open_files);
    return true;
}

static int signal_descriptor(void)
{
    sigset_t taken;
    sigemptyset(&taken);
    sigaddset(&taken, SIGCHLD);
    sigaddset(&taken, SIGTERM);
    sigaddset(&taken, SIGINT);
    sigaddset(&taken, SIGCONT); /* blocked, it still ends a stop */
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* ignored by some parents, and then children vanish unseen */
    sigprocmask(SIG_SETMASK, &taken, NULL);
    return signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool open_sinks(int report)
{
    struct sink *sinks[] = { &supervisor.streams[0], &supervisor.streams[1], &supervisor.timeline,
                             &supervisor.samples, &supervisor.counts };
    for (int i = 0; i < SINKS; i++) {
        if (sink_open(sinks[i], supervisor.dir, sink_names[i]))
            continue;
        if (errno == EEXIST)
            tell_failure(report, EXIT_DIRECTORY, "directory-used", "%s already holds a job",
                         supervisor.dir_path);
        else
            tell_failure(report, EXIT_DIRECTORY, "directory", "cannot write %s/%s: %s",
                         supervisor.dir_path, sink_names[i],
                         reason(errno, supervisor.dir_path));
        return false;
    }
    status_reserve(&supervisor);
    return true;
}

/* After the job was forked, which inherits none of it: a job that is larger than memory and busy on
 * every core must not evict, delay or outlive the program that stamps its output. Where the board
 * does not permit one of these (not root), the agent does without. */
static void stay_responsive(void)
{
    mlockall(MCL_CURRENT); /* all of it, which is why other commands have their buffers elsewhere */
    setpriority(PRIO_PROCESS, 0, -10);
    be_real_time();
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        write_all(fd, "-1000", 5);
        close(fd);
    }
}

static void spawn_failed(int report, int error, enum spawn_step step)
{
    int status = step != SPAWN_PROGRAM ? EXIT_SYSTEM
                 : error == ENOENT     ? EXIT_NOT_FOUND
                                       : EXIT_NOT_EXECUTABLE;
    const char *kind = step == SPAWN_CPUS        ? "cpus"
                       : step == SPAWN_NICE      ? "nice"
                       : step == SPAWN_RESOURCES ? "system"
                       : error == ENOEXEC        ? "exec-format"
                                                 : "spawn-failed";
    char path[PATH_MAX], lacking[320];
    const char *reason = error == ENODEV && step == SPAWN_CPUS ? "not all of them are there"
                                                               : strerror(error);
    if (step == SPAWN_PROGRAM && error == ENOENT &&
        find_program(supervisor.options->argv[0], getenv("PATH"), path, sizeof path) &&
        lacks_interpreter(path, lacking, sizeof lacking))
        reason = lacking;
    supervisor.outcome = "spawn-failed";
    snprintf(supervisor.error, sizeof supervisor.error, "cannot %s %s%s: %s",
             step == SPAWN_NICE        ? "change the priority of"
             : step == SPAWN_RESOURCES ? "prepare a process for"
                                       : "execute",
             supervisor.options->argv[0], step == SPAWN_CPUS ? " on those CPUs" : "",
             reason);
    if (!supervisor.job.start_ns)
        supervisor.job.start_ns = monotonic_ns();
    status_write(&supervisor);
    tell_failure(report, status, kind, "%s", supervisor.error);
}

/* The supervisor's life, from here to its end. */
static int be_supervisor(int report)
{
    char *line;
    enum spawn_step step;
    if (!let_go(report)) {
        tell_failure(report, EXIT_SYSTEM, "system", "cannot open /dev/null and /proc: %s",
                     strerror(errno));
        return EXIT_SYSTEM;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    supervisor.signals = signal_descriptor();
    supervisor.oom_kills_before = oom_kills();
    supervisor.asleep_before_ns = asleep_ns();
    if (supervisor.signals < 0) {
        tell_failure(report, EXIT_SYSTEM, "system", "signalfd: %s", strerror(errno));
        return EXIT_SYSTEM;
    }
    if (!open_sinks(report))
        return EXIT_DIRECTORY;
    state_begin(&supervisor.state, supervisor.options->resident);
    const struct job_call call = { .argv = supervisor.options->argv,
                                   .dir = supervisor.dir,
                                   .dir_path = supervisor.dir_path,
                                   .cpus = supervisor.options->cpus,
                                   .nice = supervisor.options->nice,
                                   .memlock = supervisor.options->memlock };
    int error = job_spawn(&supervisor.job, &call, &supervisor.emulator, &step);
    if (error) {
        spawn_failed(report, error, step);
        return EXIT_SYSTEM;
    }
    supervisor.confined = supervisor.job.confinement.init > 0;
    stay_responsive();
    if (!started_write(&supervisor, &line)) {
        tell_failure(report, EXIT_DIRECTORY, "directory", "cannot write %s/started.json: %s",
                     supervisor.dir_path, reason(errno, supervisor.dir_path));
        return EXIT_DIRECTORY; /* the job dies with its supervisor */
    }
    tell(report, 0, line);
    free(line);
    lease_leave(supervisor.options->lease); /* a new holder ends the job from now on */
    supervise(&supervisor);
    fchmod(supervisor.dir, 0755); /* whatever the job made of it */
    unlinkat(supervisor.dir, "status.json", 0); /* the job's, if it made one */
    flock(supervisor.dir, LOCK_UN); /* from now on a status.json is the agent's */
    return status_write(&supervisor) ? 0 : EXIT_DIRECTORY;
}

/* Pass the supervisor's line on to standard output. */
static int await_start(int report)
{
    unsigned char status;
    char text[4096];
    ssize_t got;
    while ((got = read(report, &status, 1)) < 0 && errno == EINTR)
        ;
    if (got != 1)
        return fail(EXIT_SYSTEM, "system", "the supervisor ended before the program was started");
    while ((got = read(report, text, sizeof text)) != 0)
        if (got > 0)
            write_all(STDOUT_FILENO, text, (size_t)got);
        else if (errno != EINTR)
            break;
    return status;
}

static int detach(void)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0)
        return fail(EXIT_SYSTEM, "system", "pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0)
        return fail(EXIT_SYSTEM, "system", "fork: %s", strerror(errno));
    if (child == 0) { /* its own session, without being its leader: no terminal, ever */
        close(report[0]);
        setsid();
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(be_supervisor(report[1]));
        if (grandchild < 0)
            tell_failure(report[1], EXIT_SYSTEM, "system", "fork: %s", strerror(errno));
        _exit(0);
    }
    close(report[1]);
    waitpid(child, NULL, 0);
    return await_start(report[0]);
}

/* Of the same lease: a job that killed its supervisor may pretend to have ended. */
static bool end_earlier_jobs(const char *dir)
{
    char jobs[PATH_MAX], path[PATH_MAX];
    const char *slash = strrchr(dir, '/');
    snprintf(jobs, sizeof jobs, "%.*s", slash ? (int)(slash - dir) : 1, slash ? dir : ".");
    return !realpath(jobs, path) || survivors_end(path, NULL, SURVIVORS_NS, &supervisor.survivors);
}

/* A job that was started here, perhaps a moment ago by a command whose answer was lost. */
static bool holds_job(const char *dir)
{
    bool found = false;
    const int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; folder >= 0 && i < SINKS; i++)
        found |= faccessat(folder, sink_names[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if (folder >= 0)
        close(folder);
    return found;
}

int command_run(const struct run_options *options)
{
    supervisor.options = options;
    supervisor.lateness = (struct lateness){ .schedstat = -1, .wait_ns = -1, .longest_ns = -1 };
    /* Until the program runs: no other one begins meanwhile. */
    int status = lease_enter(options->lease, false);
    if (status)
        return status;
    if (holds_job(options->dir))
        return fail(EXIT_DIRECTORY, "directory-used", "%s already holds a job", options->dir);
    if (options->lease->path && !end_earlier_jobs(options->dir))
        return refuse_survivors(&supervisor.survivors);
    if (mkdir(options->dir, 0755) != 0 && errno != EEXIST)
        return fail(EXIT_DIRECTORY, "directory", "cannot make %s: %s", options->dir,
                    reason(errno, options->dir));
    supervisor.dir = open(options->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (supervisor.dir < 0 || !realpath(options->dir, supervisor.dir_path))
        return fail(EXIT_DIRECTORY, "directory", "cannot open %s: %s", options->dir,
                    strerror(errno));
    if (!current_boot_id(supervisor.boot_id))
        return fail(EXIT_SYSTEM, "system", "this kernel has no boot id: %s", strerror(errno));
    /* Until the supervisor's end, so that `agent stop` sees a job that is about to be started. Not
     * exclusive: a directory's second job is refused by its files, with a better reason. */
    flock(supervisor.dir, LOCK_SH);
    return detach();
}
