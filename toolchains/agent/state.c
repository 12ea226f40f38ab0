#define _GNU_SOURCE
#include "state.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sensors.h"
#include "util.h"

#define COUNTERS_BYTES 4096
/* Of time_in_state: USER_HZ, which is 100 on every architecture of Linux but one long gone. */
#define TICK_MS 10
/* Looked at in one go: a byte a page is needed for it. */
#define WINDOW_PAGES 16384
/* Further devices of devfreq are left out, so that the rest of the state has room. */
#define DEVFREQ_BYTES 4096

static bool read_text(const char *folder, const char *file, char *text, size_t size)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path ||
        read_small(AT_FDCWD, path, text, size) <= 0)
        return false;
    text[strcspn(text, "\n")] = '\0';
    return true;
}

static int64_t read_number(const char *folder, const char *file)
{
    char text[32];
    uint64_t value;
    return read_text(folder, file, text, sizeof text) && parse_u64(text, &value) &&
                   value <= INT64_MAX
               ? (int64_t)value
               : -1;
}

/* The next place of the list, counting from now on; NULL when there is none. */
static struct residency *residency_add(struct residencies *all, const char *folder,
                                       const char *counters)
{
    char path[PATH_MAX], text[COUNTERS_BYTES];
    if (all->count == STATE_MEMBERS_MAX ||
        snprintf(path, sizeof path, "%s/%s", folder, counters) >= (int)sizeof path)
        return NULL;
    struct residency *one = &all->list[all->count++];
    *one = (struct residency){ .low = -1, .high = -1 };
    one->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (one->fd >= 0 && reread_small(one->fd, text, sizeof text) > 0)
        one->before = strdup(text);
    return one;
}

/* The CPUs that are clocked together, "0-3"; false for all but the first of them. */
static bool clocked_together(const char *folder, unsigned long own, char *name, size_t size)
{
    char text[1024];
    cpu_set_t cpus;
    if (own >= CPU_SETSIZE)
        return false;
    CPU_ZERO(&cpus);
    CPU_SET(own, &cpus);
    if (read_text(folder, "affected_cpus", text, sizeof text))
        for (char *rest = text, *word; (word = strsep(&rest, " "));) {
            uint64_t number;
            if (!parse_u64(word, &number) || number >= CPU_SETSIZE)
                continue;
            if (number < own)
                return false;
            CPU_SET(number, &cpus);
        }
    format_cpus(&cpus, name, size);
    return true;
}

static void open_clocks(struct residencies *all)
{
    static const char cpu[] = "/sys/devices/system/cpu/cpu";
    glob_t found;
    size_t prefix_length;
    if (!sys_glob("/sys/devices/system/cpu/cpu[0-9]*/cpufreq", &prefix_length, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *folder = found.gl_pathv[i];
        const unsigned long own = strtoul(folder + prefix_length + sizeof cpu - 1, NULL, 10);
        char name[64];
        struct residency *one;
        if (!clocked_together(folder, own, name, sizeof name) ||
            !(one = residency_add(all, folder, "stats/time_in_state")))
            continue;
        memcpy(one->name, name, sizeof name);
        read_text(folder, "scaling_governor", one->text, sizeof one->text);
        one->low = read_number(folder, "scaling_min_freq");
        one->high = read_number(folder, "scaling_max_freq");
    }
    globfree(&found);
}

static void open_cooling(struct residencies *all)
{
    glob_t found;
    size_t prefix_length;
    if (!sys_glob("/sys/class/thermal/cooling_device*", &prefix_length, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *folder = found.gl_pathv[i];
        char type[32] = "";
        struct residency *one = residency_add(all, folder, "stats/time_in_state_ms");
        if (!one)
            continue;
        read_text(folder, "type", type, sizeof type);
        snprintf(one->name, sizeof one->name, "%.31s %.31s", strrchr(folder, '/') + 1, type);
    }
    globfree(&found);
}

/* The highest of a device's frequencies; -1 where the kernel does not list them. */
static int64_t highest_hz(const char *folder)
{
    char text[COUNTERS_BYTES];
    int64_t highest = -1;
    if (!read_text(folder, "available_frequencies", text, sizeof text))
        return -1;
    for (char *rest = text, *word; (word = strsep(&rest, " "));) {
        uint64_t hz;
        if (parse_u64(word, &hz) && hz <= INT64_MAX && (int64_t)hz > highest)
            highest = (int64_t)hz;
    }
    return highest;
}

static void write_text(const char *folder, const char *file, const char *member, struct json *json)
{
    char text[128];
    json_member_string(json, member, read_text(folder, file, text, sizeof text) ? text : NULL);
}

/* Documentation/ABI/testing/sysfs-class-devfreq: Hz. */
void devfreq_write(struct json *json)
{
    glob_t found;
    size_t prefix_length;
    json_open(json, '[');
    const size_t start = json->length;
    if (sys_glob("/sys/class/devfreq/*", &prefix_length, &found)) {
        for (size_t i = 0; i < found.gl_pathc && json->length - start < DEVFREQ_BYTES; i++) {
            const char *folder = found.gl_pathv[i];
            json_open(json, '{');
            json_member_string(json, "device", strrchr(folder, '/') + 1);
            write_text(folder, "governor", "governor", json);
            write_text(folder, "available_governors", "governors", json);
            json_member_count(json, "current_hz", read_number(folder, "cur_freq"));
            json_member_count(json, "min_hz", read_number(folder, "min_freq"));
            json_member_count(json, "max_hz", read_number(folder, "max_freq"));
            json_member_count(json, "highest_hz", highest_hz(folder));
            json_close(json, '}');
        }
        globfree(&found);
    }
    json_close(json, ']');
}

/* Since Linux 5.2 a file's pages are shown to those who may write it; for others the kernel reports
 * that all of them are there. */
static bool may_know(int fd, const struct stat *status)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return geteuid() == 0 || status->st_uid == geteuid() || access(path, W_OK) == 0;
}

/* Bytes of an open file that are in the page cache, -1 where that cannot be known. Reads none. */
static int64_t bytes_in_memory(int fd, int64_t file_bytes)
{
    unsigned char pages[WINDOW_PAGES];
    const int64_t page = sysconf(_SC_PAGESIZE);
    int64_t found = 0;
    for (int64_t from = 0; from < file_bytes; from += WINDOW_PAGES * page) {
        const int64_t left = file_bytes - from;
        const size_t length = (size_t)(left < WINDOW_PAGES * page ? left : WINDOW_PAGES * page);
        void *window = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, (off_t)from);
        if (window == MAP_FAILED)
            return -1;
        const bool known = mincore(window, length, pages) == 0;
        munmap(window, length);
        if (!known)
            return -1;
        for (size_t i = 0; i * (size_t)page < length; i++) {
            const int64_t rest = (int64_t)length - (int64_t)i * page;
            if (pages[i] & 1)
                found += rest < page ? rest : page;
        }
    }
    return found;
}

void state_begin(struct state *state, const char *file)
{
    struct stat status;
    *state = (struct state){ .file_bytes = -1, .resident_bytes = -1 };
    open_clocks(&state->clocks);
    open_cooling(&state->cooling);
    devfreq_write(&state->devfreq);
    const int fd = file ? open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
        may_know(fd, &status)) {
        state->file_bytes = status.st_size;
        state->resident_bytes = bytes_in_memory(fd, status.st_size);
    }
    close(fd);
}

/* The number on the line of a key; 0 when it is not there. */
static long long counted(const char *text, const char *key, size_t length)
{
    for (const char *line = text; line && *line;) {
        if (strncmp(line, key, length) == 0 && (line[length] == ' ' || line[length] == '\t'))
            return strtoll(line + length, NULL, 10);
        line = strchr(line, '\n');
        if (line)
            line++;
    }
    return 0;
}

/* What has grown, by its key. The kernel's "state3" of a cooling device is 3. */
static void write_growth(const struct residency *one, const char *member, long long unit_ms,
                         struct json *json)
{
    char now[COUNTERS_BYTES];
    if (!one->before || reread_small(one->fd, now, sizeof now) <= 0)
        return;
    json_key(json, member);
    json_open(json, '{');
    for (char *rest = now, *line; (line = strsep(&rest, "\n"));) {
        const size_t length = strcspn(line, " \t");
        const long long grown =
            line[length] ? strtoll(line + length, NULL, 10) - counted(one->before, line, length) : 0;
        char key[32];
        if (grown <= 0 || length >= sizeof key)
            continue;
        memcpy(key, line, length);
        key[length] = '\0';
        json_member_int(json, strncmp(key, "state", 5) == 0 ? key + 5 : key, grown * unit_ms);
    }
    json_close(json, '}');
}

static void write_clocks(const struct residencies *clocks, struct json *json)
{
    json_key(json, "cpufreq");
    json_open(json, '[');
    for (size_t i = 0; i < clocks->count; i++) {
        const struct residency *one = &clocks->list[i];
        json_open(json, '{');
        json_member_string(json, "cpus", one->name);
        json_member_string(json, "governor", *one->text ? one->text : NULL);
        json_member_count(json, "min_khz", one->low);
        json_member_count(json, "max_khz", one->high);
        write_growth(one, "time_in_state_ms", TICK_MS, json);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_cooling(const struct residencies *cooling, struct json *json)
{
    json_key(json, "cooling");
    json_open(json, '[');
    for (size_t i = 0; i < cooling->count; i++) {
        const struct residency *one = &cooling->list[i];
        if (!one->before)
            continue;
        json_open(json, '{');
        json_member_string(json, "device", one->name);
        write_growth(one, "time_in_state_ms", 1, json);
        json_close(json, '}');
    }
    json_close(json, ']');
}

void state_write(const struct state *state, struct json *json)
{
    write_clocks(&state->clocks, json);
    write_cooling(&state->cooling, json);
    json_key(json, "devfreq");
    if (state->devfreq.failed || !state->devfreq.text)
        json_raw(json, "[]", 2);
    else
        json_raw(json, state->devfreq.text, state->devfreq.length);
    json_key(json, "resident");
    if (state->resident_bytes < 0) {
        json_null(json);
        return;
    }
    json_open(json, '{');
    json_member_int(json, "file_bytes", state->file_bytes);
    json_member_int(json, "resident_bytes", state->resident_bytes);
    json_close(json, '}');
}
