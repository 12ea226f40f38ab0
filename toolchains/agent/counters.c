#define _GNU_SOURCE
#include "counters.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf_call.h"
#include "sensors.h"
#include "util.h"

/* At most this part of the time: a job may have little of the CPUs, and the agent stays far below it. */
#define SLOW_SHARE 3000
#define LINES_EACH_DOUBLING 4096
#define NONE UINT64_MAX
#if defined __aarch64__
#define IS_ARM true
#else
#define IS_ARM false
#endif

/* What an ARM CPU counts is found by the names of its driver: there, the kernel's own "cache misses" are
 * those of the first cache. The last level that it lists counts. */
static const struct event {
    const char *name;
    uint32_t type;
    uint64_t config; /* NONE: the kernel has no name of its own for it */
    const char *arm[3];
} events[COUNTERS] = {
    { "cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, { "cpu_cycles" } },
    { "instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, { "inst_retired" } },
    { "last_level_refills",
      PERF_TYPE_HARDWARE,
      PERF_COUNT_HW_CACHE_MISSES,
      { "l3d_cache_refill", "ll_cache_miss_rd", "l2d_cache_refill" } },
    { "bus_accesses", PERF_TYPE_HARDWARE, NONE, { "bus_access" } },
    { "stalled_cycles",
      PERF_TYPE_HARDWARE,
      PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
      { "stall_backend" } },
    { "task_clock_ns", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, { 0 } },
    { "page_faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, { 0 } },
    { "context_switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES, { 0 } },
};
#define REFILLS 2
#define SWITCHES (COUNTERS - 1)

/* The CPU's counters, by the kernel's driver of an ARM CPU; kinds: how many kinds of CPU have their own. */
struct pmu {
    char folder[PATH_MAX];
    size_t kinds;
};

static void find_pmu(struct pmu *pmu)
{
    static const char *const patterns[] = { "/sys/bus/event_source/devices/armv8*",
                                            "/sys/bus/event_source/devices/cpu_*" };
    glob_t found;
    size_t prefix_length;
    *pmu = (struct pmu){ 0 };
    for (int i = 0; i < 2; i++) {
        if (!sys_glob(patterns[i], &prefix_length, &found))
            continue;
        pmu->kinds += found.gl_pathc;
        if (i == 0)
            snprintf(pmu->folder, sizeof pmu->folder, "%s", found.gl_pathv[0]);
        globfree(&found);
    }
}

/* "event=0x2a" of the driver's file, and the driver's number. */
static bool arm_event(const struct pmu *pmu, const char *name, struct perf_event_attr *attributes)
{
    char path[PATH_MAX], text[64], type[32];
    uint64_t number;
    if (snprintf(path, sizeof path, "%s/events/%s", pmu->folder, name) >= (int)sizeof path ||
        read_small(AT_FDCWD, path, text, sizeof text) <= 0 || strncmp(text, "event=", 6) != 0)
        return false;
    snprintf(path, sizeof path, "%.4000s/type", pmu->folder);
    if (read_small(AT_FDCWD, path, type, sizeof type) <= 0)
        return false;
    type[strcspn(type, "\n")] = '\0';
    if (!parse_u64(type, &number) || number > UINT32_MAX)
        return false;
    attributes->type = (uint32_t)number;
    attributes->config = strtoull(text + 6, NULL, 16);
    return true;
}

static bool choose(struct counters *all, int i, const struct pmu *pmu,
                   struct perf_event_attr *attributes)
{
    const struct event *event = &events[i];
    attributes->type = event->type;
    attributes->config = event->config;
    if (event->type != PERF_TYPE_HARDWARE)
        return true;
    const char *why = "this CPU's driver lists no such event";
    if (pmu->kinds > 1)
        why = "several kinds of CPU count apart";
    else if (!*pmu->folder && event->config != NONE && !(IS_ARM && i == REFILLS)) {
        if (i == REFILLS)
            snprintf(all->refills, sizeof all->refills, "cache-misses");
        return true;
    }
    for (int j = 0; pmu->kinds == 1 && *pmu->folder && j < 3 && event->arm[j]; j++)
        if (arm_event(pmu, event->arm[j], attributes)) {
            if (i == REFILLS)
                snprintf(all->refills, sizeof all->refills, "%s", event->arm[j]);
            return true;
        }
    snprintf(all->list[i].why, sizeof all->list[i].why, "%s", why);
    return false;
}

static void refused(struct counter *one, int error)
{
    static const char path[] = "/proc/sys/kernel/perf_event_paranoid";
    char level[16] = "";
    if (read_small(AT_FDCWD, path, level, sizeof level) > 0)
        level[strcspn(level, "\n")] = '\0';
    if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV)
        snprintf(one->why, sizeof one->why, "this CPU or kernel does not count it (%s)",
                 strerror(error));
    else if (error == ENOSYS)
        snprintf(one->why, sizeof one->why, "the kernel has no perf events");
    else if ((error == EACCES || error == EPERM) && (geteuid() == 0 || atoi(level) < 3))
        snprintf(one->why, sizeof one->why,
                 "refused (%s): by SELinux, a container or the like (perf_event_paranoid is %s)",
                 strerror(error), *level ? level : "not there");
    else if (error == EACCES || error == EPERM)
        snprintf(one->why, sizeof one->why, "refused: perf_event_paranoid is %s", level);
    else
        snprintf(one->why, sizeof one->why, "%s", strerror(error));
}

void counters_open(struct counters *all, pid_t pid)
{
    struct pmu pmu;
    *all = (struct counters){ .opened_ns = monotonic_ns() };
    find_pmu(&pmu);
    for (int i = 0; i < COUNTERS; i++) {
        struct counter *one = &all->list[i];
        struct perf_event_attr attributes = {
            .size = sizeof attributes,
            .disabled = 1,
            .inherit = 1,
            .enable_on_exec = 1,
            .exclude_hv = 1,
            .exclude_kernel = all->user_only,
            .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
        };
        *one = (struct counter){ .fd = -1, .value = -1, .permille = 1000 };
        if (!choose(all, i, &pmu, &attributes))
            continue;
        one->fd = perf_open(&attributes, pid);
        if (one->fd < 0 && (errno == EACCES || errno == EPERM) && !all->user_only) {
            attributes.exclude_kernel = 1;
            one->fd = perf_open(&attributes, pid);
            all->user_only = one->fd >= 0;
        }
        if (one->fd < 0) {
            refused(one, errno);
        } else if (i == SWITCHES && all->user_only) { /* they happen in the kernel */
            close(one->fd);
            one->fd = -1;
            snprintf(one->why, sizeof one->why, "only root may count the kernel's work here");
        }
    }
}

static void read_one(struct counter *one)
{
    struct perf_count count;
    if (one->fd < 0 || !perf_read(one->fd, &count) || !count.running_ns)
        return;
    const double scale = (double)count.enabled_ns / (double)count.running_ns;
    const int64_t scaled = (int64_t)((double)count.value * scale);
    one->value = scaled > one->value ? scaled : one->value; /* it is a counter */
    one->permille = (int64_t)(1000 / scale + 0.5);
}

void counters_read(struct counters *all, struct sink *sink, int64_t now, bool last)
{
    char line[64 + COUNTERS * 48];
    size_t length;
    bool any = false;
    if (all->ended || (!last && now < all->due_ns))
        return;
    all->ended = last;
    const int64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    length = (size_t)snprintf(line, sizeof line, "{\"mono_ns\":%" PRId64 ",\"counts\":{", now);
    for (int i = 0; i < COUNTERS; i++) {
        read_one(&all->list[i]);
        if (all->list[i].value < 0)
            continue;
        length += (size_t)snprintf(line + length, sizeof line - length, "%s\"%s\":%" PRId64,
                                   any ? "," : "", events[i].name, all->list[i].value);
        any = true;
    }
    length += (size_t)snprintf(line + length, sizeof line - length, "}}\n");
    if (any)
        sink_add(sink, line, length);
    const int64_t pause = (clock_ns(CLOCK_THREAD_CPUTIME_ID) - began) * SLOW_SHARE;
    const int64_t thin = (now - all->opened_ns) / LINES_EACH_DOUBLING;
    all->due_ns = now + (pause > thin ? pause : thin);
    for (int i = 0; last && i < COUNTERS; i++) {
        struct counter *one = &all->list[i];
        if (one->fd < 0)
            continue;
        close(one->fd);
        one->fd = -1;
        if (one->value < 0)
            snprintf(one->why, sizeof one->why, "it had no turn: the CPU's counters were in use");
    }
}

/* The unit of a refill; -1 where it is not known. */
static int64_t line_bytes(void)
{
#if defined __aarch64__
    uint64_t type;
    __asm__("mrs %0, ctr_el0" : "=r"(type));
    return 4 << (type >> 16 & 15);
#else
    static const char path[] = "/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size";
    char text[16];
    return read_small(AT_FDCWD, path, text, sizeof text) > 0 ? strtol(text, NULL, 10) : -1;
#endif
}

void counters_write(const struct counters *all, struct json *json)
{
    if (!all->opened_ns) { /* there was no process */
        json_null(json);
        return;
    }
    json_open(json, '{');
    json_key(json, "counts");
    json_open(json, '{');
    for (int i = 0; i < COUNTERS; i++)
        if (all->list[i].value >= 0)
            json_member_int(json, events[i].name, all->list[i].value);
    json_close(json, '}');
    json_key(json, "counted_permille");
    json_open(json, '{');
    for (int i = 0; i < COUNTERS; i++)
        if (all->list[i].value >= 0 && all->list[i].permille < 1000)
            json_member_int(json, events[i].name, all->list[i].permille);
    json_close(json, '}');
    json_key(json, "absent");
    json_open(json, '{');
    for (int i = 0; i < COUNTERS; i++)
        if (*all->list[i].why)
            json_member_string(json, events[i].name, all->list[i].why);
    json_close(json, '}');
    json_key(json, "user_only");
    json_bool(json, all->user_only);
    json_member_string(json, "refill_event", *all->refills ? all->refills : NULL);
    json_member_count(json, "line_bytes", line_bytes());
    json_close(json, '}');
}
