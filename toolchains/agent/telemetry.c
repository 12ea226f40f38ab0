#define _GNU_SOURCE
#include "telemetry.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json.h"
#include "util.h"

static void sensor_add(struct sensors *sensors, const char *path, const char *name)
{
    if (sensors->count == SENSORS_MAX)
        return;
    struct sensor *sensor = &sensors->list[sensors->count];
    sensor->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (sensor->fd < 0)
        return;
    snprintf(sensor->name, sizeof sensor->name, "%s", name);
    sensors->count++;
}

/* The paths of /sys that match, on a virtual board those that it made up; false for none. */
static bool sys_glob(const char *pattern, size_t *prefix_length, glob_t *found)
{
    char path[PATH_MAX];
    if (!sys_prefix(path, sizeof path))
        return false;
    *prefix_length = strlen(path);
    size_t room = sizeof path - *prefix_length;
    return snprintf(path + *prefix_length, room, "%s", pattern) < (int)room &&
           glob(path, 0, NULL, found) == 0;
}

void sensors_open_zones(struct sensors *sensors)
{
    glob_t found;
    size_t prefix_length;
    sensors->count = 0;
    if (sys_glob("/sys/class/thermal/thermal_zone*", &prefix_length, &found)) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            char path[PATH_MAX], type[48] = "", name[64];
            snprintf(path, sizeof path, "%s/type", found.gl_pathv[i]);
            if (read_small(AT_FDCWD, path, type, sizeof type) > 0)
                type[strcspn(type, "\n")] = '\0';
            snprintf(name, sizeof name, "%.31s %.31s", strrchr(found.gl_pathv[i], '/') + 1, type);
            snprintf(path, sizeof path, "%s/temp", found.gl_pathv[i]);
            sensor_add(sensors, path, name);
        }
        globfree(&found);
    }
}

void sensors_open_frequencies(struct sensors *sensors)
{
    glob_t found;
    size_t prefix_length;
    sensors->count = 0;
    if (sys_glob("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq", &prefix_length,
                 &found)) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            char name[16];
            const char *number =
                found.gl_pathv[i] + prefix_length + strlen("/sys/devices/system/cpu/cpu");
            snprintf(name, sizeof name, "%d", atoi(number));
            sensor_add(sensors, found.gl_pathv[i], name);
        }
        globfree(&found);
    }
}

bool sensor_read(const struct sensor *sensor, int64_t *value)
{
    char text[32], *end;
    if (reread_small(sensor->fd, text, sizeof text) <= 0)
        return false;
    *value = strtoll(text, &end, 10);
    return end != text && (*end == '\n' || *end == '\0');
}

/* The number after a line's name in a file such as /proc/meminfo; -1 when absent. */
static int64_t named_number(const char *text, const char *name)
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

int64_t meminfo_bytes(int fd, const char *name)
{
    char text[4096];
    if (fd < 0 || reread_small(fd, text, sizeof text) <= 0)
        return -1;
    int64_t kilobytes = named_number(text, name);
    return kilobytes < 0 ? -1 : kilobytes * 1024;
}

static int open_proc(pid_t pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

void telemetry_open(struct telemetry *telemetry, struct sink *sink, pid_t job)
{
    telemetry->sink = sink;
    telemetry->stat_fd = open_proc(job, "stat");
    telemetry->statm_fd = open_proc(job, "statm");
    telemetry->io_fd = open_proc(job, "io");
    telemetry->meminfo_fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    sensors_open_zones(&telemetry->zones);
    sensors_open_frequencies(&telemetry->frequencies);
}

static void sample_stat(const struct telemetry *telemetry, struct json *json)
{
    char text[1024], *rest;
    unsigned long long minor, major, user, system;
    if (telemetry->stat_fd < 0 || reread_small(telemetry->stat_fd, text, sizeof text) <= 0 ||
        !(rest = strrchr(text, ')')) ||
        sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %llu %*u %llu %*u %llu %llu", &minor, &major,
               &user, &system) != 4)
        return;
    int64_t tick_ns = NS_PER_SECOND / sysconf(_SC_CLK_TCK);
    json_member_int(json, "utime_ns", (int64_t)user * tick_ns);
    json_member_int(json, "stime_ns", (int64_t)system * tick_ns);
    json_member_int(json, "minflt", (int64_t)minor);
    json_member_int(json, "majflt", (int64_t)major);
}

static void sample_memory(const struct telemetry *telemetry, struct json *json)
{
    char text[256];
    unsigned long long pages;
    if (telemetry->statm_fd >= 0 && reread_small(telemetry->statm_fd, text, sizeof text) > 0 &&
        sscanf(text, "%*u %llu", &pages) == 1 && pages > 0)
        json_member_int(json, "rss_bytes", (int64_t)pages * sysconf(_SC_PAGESIZE));
    int64_t available = meminfo_bytes(telemetry->meminfo_fd, "MemAvailable");
    if (available >= 0)
        json_member_int(json, "mem_available_bytes", available);
}

static void sample_storage(const struct telemetry *telemetry, struct json *json)
{
    char text[512];
    if (telemetry->io_fd < 0 || reread_small(telemetry->io_fd, text, sizeof text) <= 0)
        return;
    int64_t bytes = named_number(text, "read_bytes");
    if (bytes >= 0)
        json_member_int(json, "read_bytes", bytes);
}

static void sample_sensors(const struct sensors *sensors, const char *key, struct json *json)
{
    int64_t value;
    if (sensors->count == 0)
        return;
    json_key(json, key);
    json_open(json, '{');
    for (size_t i = 0; i < sensors->count; i++)
        if (sensor_read(&sensors->list[i], &value))
            json_member_int(json, sensors->list[i].name, value);
    json_close(json, '}');
}

void telemetry_sample(struct telemetry *telemetry)
{
    struct json json = { 0 };
    json_open(&json, '{');
    json_member_int(&json, "mono_ns", monotonic_ns());
    sample_memory(telemetry, &json);
    sample_stat(telemetry, &json);
    sample_storage(telemetry, &json);
    sample_sensors(&telemetry->zones, "temps_mc", &json);
    sample_sensors(&telemetry->frequencies, "freq_khz", &json);
    json_close(&json, '}');
    if (!json.failed) {
        sink_add(telemetry->sink, json.text, json.length);
        sink_add(telemetry->sink, "\n", 1);
    }
    json_free(&json);
}
