#define _GNU_SOURCE
#include "telemetry.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "util.h"

/* What is slow to ask for is asked during 1/1000 of the time at most: the job's proportional set,
 * which is asked for this seldom as well, and the times of its tree. */
#define SLOW_SHARE 1000
#define PSS_EVERY_NS (10 * NS_PER_SECOND)
#define THREADS_MAX 64
#define SECTOR_BYTES 512 /* of the block layer's counters, whatever the device has */

static const char *const pressures[] = { "cpu", "memory", "io" };

int64_t named_number(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line && *line;) {
        if (strncmp(line, name, length) == 0 && line[length] == ':')
            return strtoll(line + length + 1, NULL, 10);
        line = strchr(line, '\n');
        if (line)
            line++;
    }
    return -1;
}

static int64_t kilobytes(const char *text, const char *name)
{
    int64_t count = named_number(text, name);
    return count < 0 ? -1 : count * 1024;
}

int64_t meminfo_bytes(int fd, const char *name)
{
    char text[4096];
    return fd < 0 || reread_small(fd, text, sizeof text) <= 0 ? -1 : kilobytes(text, name);
}

static bool reread(int fd, char *text, size_t size)
{
    return fd >= 0 && reread_small(fd, text, size) > 0;
}

static void write_known(struct json *json, const char *key, int64_t value)
{
    if (value >= 0)
        json_member_int(json, key, value);
}

static int open_proc(pid_t pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

int block_stat_open(int fd)
{
    struct stat status;
    char path[64];
    if (fstat(fd, &status) != 0)
        return -1;
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/stat", major(status.st_dev),
             minor(status.st_dev));
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void open_zram(struct telemetry *t)
{
    const size_t most = sizeof t->zram_fds / sizeof *t->zram_fds;
    for (size_t i = 0; i < most; i++) {
        char path[64];
        snprintf(path, sizeof path, "/sys/block/zram%zu/mm_stat", i);
        t->zram_fds[i] = open(path, O_RDONLY | O_CLOEXEC);
    }
}

void telemetry_open(struct telemetry *t, struct sink *sink, const struct output *output, pid_t job,
                    int dir)
{
    char path[64];
    t->sink = sink;
    t->output = output;
    t->job = job;
    cputimes_open(&t->times);
    t->stat_fd = open_proc(job, "stat");
    t->statm_fd = open_proc(job, "statm");
    t->io_fd = open_proc(job, "io");
    snprintf(path, sizeof path, "/proc/%d/task", (int)job);
    t->tasks = opendir(path);
    t->meminfo_fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    t->cpu_fd = open("/proc/stat", O_RDONLY | O_CLOEXEC);
    t->device_fd = block_stat_open(dir);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "/proc/pressure/%s", pressures[i]);
        t->pressure_fds[i] = open(path, O_RDONLY | O_CLOEXEC);
    }
    open_zram(t);
    sensors_open_zones(&t->zones);
    sensors_open_cooling(&t->cooling);
    sensors_open_cpufreq(&t->frequencies, "scaling_cur_freq");
    sensors_open_cpufreq(&t->limits, "scaling_max_freq");
    sensors_open_devfreq(&t->devices, "cur_freq");
    sensors_open_devfreq(&t->device_limits, "max_freq");
    t->pss_due_ns = monotonic_ns() + PSS_EVERY_NS;
}

static int64_t tick_ns(void)
{
    return NS_PER_SECOND / sysconf(_SC_CLK_TCK);
}

struct task_stat {
    unsigned long long minor_faults, major_faults, user_ticks, system_ticks;
};

/* Fields 10, 12, 14 and 15 of a "stat" of proc(5); the second is a name that may hold anything. */
static bool parse_stat(const char *text, struct task_stat *stat)
{
    const char *rest = strrchr(text, ')');
    return rest && sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %llu %*u %llu %*u %llu %llu",
                          &stat->minor_faults, &stat->major_faults, &stat->user_ticks,
                          &stat->system_ticks) == 4;
}

static void sample_process(const struct telemetry *t, struct json *json)
{
    char text[1024];
    struct task_stat stat;
    if (!reread(t->stat_fd, text, sizeof text) || !parse_stat(text, &stat))
        return;
    json_member_int(json, "utime_ns", (int64_t)stat.user_ticks * tick_ns());
    json_member_int(json, "stime_ns", (int64_t)stat.system_ticks * tick_ns());
    json_member_int(json, "minflt", (int64_t)stat.minor_faults);
    json_member_int(json, "majflt", (int64_t)stat.major_faults);
}

/* One thread's times, and what it waited for a CPU (the second number of its schedstat). */
static void sample_thread(int task, struct json *json, const char *name, int64_t *wait_ns)
{
    char path[64], text[1024], pair[64];
    struct task_stat stat;
    unsigned long long waited;
    snprintf(path, sizeof path, "%.20s/stat", name);
    if (read_small(task, path, text, sizeof text) <= 0 || !parse_stat(text, &stat))
        return;
    int length = snprintf(pair, sizeof pair, "[%" PRId64 ",%" PRId64 "]",
                          (int64_t)stat.user_ticks * tick_ns(),
                          (int64_t)stat.system_ticks * tick_ns());
    json_key(json, name);
    json_raw(json, pair, (size_t)length);
    snprintf(path, sizeof path, "%.20s/schedstat", name);
    if (read_small(task, path, text, sizeof text) > 0 && sscanf(text, "%*u %llu", &waited) == 1)
        *wait_ns = (*wait_ns < 0 ? 0 : *wait_ns) + (int64_t)waited;
}

static void sample_threads(const struct telemetry *t, struct json *json)
{
    int64_t wait_ns = -1;
    int count = 0;
    if (!t->tasks)
        return;
    rewinddir(t->tasks);
    json_key(json, "threads");
    json_open(json, '{');
    for (struct dirent *entry; count <= THREADS_MAX && (entry = readdir(t->tasks));)
        if (isdigit((unsigned char)*entry->d_name) && count++ < THREADS_MAX)
            sample_thread(dirfd(t->tasks), json, entry->d_name, &wait_ns);
    json_close(json, '}');
    if (count <= THREADS_MAX) /* else it would be the sum of some of them */
        write_known(json, "runqueue_wait_ns", wait_ns);
}

/* Opened each time: the file belongs to the memory that the process had when it was opened. */
static void sample_pss(struct telemetry *t, struct json *json)
{
    char path[64], text[2048];
    int64_t began = monotonic_ns();
    if (began < t->pss_due_ns)
        return;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)t->job);
    if (read_small(AT_FDCWD, path, text, sizeof text) > 0) {
        write_known(json, "pss_bytes", kilobytes(text, "Pss"));
        write_known(json, "locked_bytes", kilobytes(text, "Locked"));
    }
    int64_t now = monotonic_ns(), pause = (now - began) * SLOW_SHARE;
    t->pss_due_ns = now + (pause > PSS_EVERY_NS ? pause : PSS_EVERY_NS);
}

static void sample_memory(const struct telemetry *t, struct json *json)
{
    char text[4096];
    unsigned long long pages;
    if (reread(t->statm_fd, text, sizeof text) && sscanf(text, "%*u %llu", &pages) == 1 && pages > 0)
        json_member_int(json, "rss_bytes", (int64_t)pages * sysconf(_SC_PAGESIZE));
    if (!reread(t->meminfo_fd, text, sizeof text))
        return;
    write_known(json, "mem_available_bytes", kilobytes(text, "MemAvailable"));
    int64_t swap = kilobytes(text, "SwapTotal"), unused = kilobytes(text, "SwapFree");
    if (swap > 0 && unused >= 0)
        json_member_int(json, "swap_used_bytes", swap - unused);
}

/* "mm_stat" of each: the original bytes, the compressed, and all the memory that is taken. */
static void sample_zram(const struct telemetry *t, struct json *json)
{
    const size_t most = sizeof t->zram_fds / sizeof *t->zram_fds;
    int64_t original_sum = 0, memory_sum = 0;
    bool any = false;
    for (size_t i = 0; i < most; i++) {
        char text[256];
        unsigned long long original, memory;
        if (reread(t->zram_fds[i], text, sizeof text) &&
            sscanf(text, "%llu %*u %llu", &original, &memory) == 2) {
            original_sum += (int64_t)original;
            memory_sum += (int64_t)memory;
            any = true;
        }
    }
    if (any) {
        json_member_int(json, "zram_original_bytes", original_sum);
        json_member_int(json, "zram_memory_bytes", memory_sum);
    }
}

/* Documentation/block/stat.rst: reads, merged, sectors read, ms; the same for writes; in flight,
 * ms in which it had something to do. */
static void sample_storage(const struct telemetry *t, struct json *json)
{
    char text[512];
    unsigned long long read, written, busy_ms;
    if (reread(t->io_fd, text, sizeof text)) {
        write_known(json, "read_bytes", named_number(text, "read_bytes"));
        write_known(json, "write_bytes", named_number(text, "write_bytes"));
    }
    if (reread(t->device_fd, text, sizeof text) &&
        sscanf(text, "%*u %*u %llu %*u %*u %*u %llu %*u %*u %llu", &read, &written, &busy_ms) == 3) {
        json_member_int(json, "device_read_bytes", (int64_t)read * SECTOR_BYTES);
        json_member_int(json, "device_write_bytes", (int64_t)written * SECTOR_BYTES);
        json_member_int(json, "device_busy_ns", (int64_t)busy_ms * NS_PER_MS);
    }
}

/* Lines such as "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345" (microseconds). */
static void sample_pressure(const struct telemetry *t, struct json *json)
{
    bool any = false;
    for (size_t i = 0; i < 3; i++) {
        char text[512], name[32];
        if (!reread(t->pressure_fds[i], text, sizeof text))
            continue;
        if (!any) {
            json_key(json, "pressure_ns");
            json_open(json, '{');
            any = true;
        }
        for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
            const char *total = strstr(line, "total=");
            if (!total)
                continue;
            snprintf(name, sizeof name, "%s_%.*s", pressures[i], (int)strcspn(line, " "), line);
            json_member_int(json, name, strtoll(total + strlen("total="), NULL, 10) * 1000);
        }
    }
    if (any)
        json_close(json, '}');
}

/* The first line of /proc/stat, in ticks: user nice system idle iowait irq softirq steal. */
static void sample_cpus(const struct telemetry *t, struct json *json)
{
    char text[512];
    unsigned long long user, nice, system, irq, softirq, steal;
    if (!reread(t->cpu_fd, text, sizeof text) ||
        sscanf(text, "cpu %llu %llu %llu %*u %*u %llu %llu %llu", &user, &nice, &system, &irq,
               &softirq, &steal) != 6)
        return;
    json_member_int(json, "cpu_busy_ns",
                    (int64_t)(user + nice + system + irq + softirq) * tick_ns());
    json_member_int(json, "cpu_steal_ns", (int64_t)steal * tick_ns());
}

/* Right after the time of all CPUs, which it is held against. Some kernels do not list children, and
 * all processes are gone through. */
static void sample_tree(struct telemetry *t, struct json *json)
{
    /* By CPU time: on a busy board a look waits for a CPU, which costs the job nothing. */
    const int64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (monotonic_ns() < t->tree_due_ns || !cputimes_look(&t->times))
        return;
    const int64_t cost = clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
    t->tree_due_ns = monotonic_ns() + cost * SLOW_SHARE;
    json_member_int(json, "tree_cpu_ns", t->times.tree_ns);
    write_known(json, "reclaim_cpu_ns", t->times.reclaim_ns);
}

static void write_output(const struct output *output, const char *name, struct json *json)
{
    int64_t pieces = atomic_load(&output->pieces);
    json_key(json, name);
    json_open(json, '{');
    json_member_int(json, "pieces", pieces);
    json_member_int(json, "lines", atomic_load(&output->lines));
    json_member_int(json, "bytes", atomic_load(&output->bytes));
    if (pieces) {
        json_member_int(json, "first_ns", atomic_load(&output->first_ns));
        json_member_int(json, "last_ns", atomic_load(&output->last_ns));
    }
    json_close(json, '}');
}

void telemetry_sample(struct telemetry *t, bool last)
{
    struct json json = { 0 };
    if (last)
        t->tree_due_ns = 0;
    json_open(&json, '{');
    json_member_int(&json, "mono_ns", monotonic_ns());
    write_output(&t->output[0], "stdout", &json);
    write_output(&t->output[1], "stderr", &json);
    sample_memory(t, &json);
    sample_pss(t, &json);
    sample_process(t, &json);
    sample_threads(t, &json);
    sample_storage(t, &json);
    sample_zram(t, &json);
    sample_pressure(t, &json);
    sample_cpus(t, &json);
    sample_tree(t, &json);
    sensors_write_zones(&t->zones, &json);
    sensors_write(&t->cooling, "cooling", &json);
    sensors_write(&t->frequencies, "freq_khz", &json);
    sensors_write(&t->limits, "freq_limit_khz", &json);
    sensors_write(&t->devices, "devfreq_hz", &json);
    sensors_write(&t->device_limits, "devfreq_limit_hz", &json);
    json_close(&json, '}');
    if (!json.failed) {
        sink_add(t->sink, json.text, json.length);
        sink_add(t->sink, "\n", 1);
    }
    json_free(&json);
}
