#define _GNU_SOURCE
#include "sensors.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

bool sys_glob(const char *pattern, size_t *prefix_length, glob_t *found)
{
    char path[PATH_MAX];
    if (!sys_prefix(path, sizeof path))
        return false;
    *prefix_length = strlen(path);
    size_t room = sizeof path - *prefix_length;
    return snprintf(path + *prefix_length, room, "%s", pattern) < (int)room &&
           glob(path, 0, NULL, found) == 0;
}

/* Phones' zones that tell voltage, current or charge of the battery in place of a temperature. */
static bool is_of_battery_limits(const char *type)
{
    return strncmp(type, "vbat", 4) == 0 || strncmp(type, "ibat", 4) == 0 ||
           strcmp(type, "socd") == 0 || strstr(type, "bcl");
}

/* Devices of the class "thermal", each named by its folder and its type. */
static void open_thermal(struct sensors *sensors, const char *pattern, const char *file)
{
    glob_t found;
    size_t prefix_length;
    sensors->count = 0;
    if (!sys_glob(pattern, &prefix_length, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char path[PATH_MAX], type[48] = "", name[64];
        snprintf(path, sizeof path, "%s/type", found.gl_pathv[i]);
        if (read_small(AT_FDCWD, path, type, sizeof type) > 0)
            type[strcspn(type, "\n")] = '\0';
        if (is_of_battery_limits(type))
            continue;
        snprintf(name, sizeof name, "%.31s %.31s", strrchr(found.gl_pathv[i], '/') + 1, type);
        snprintf(path, sizeof path, "%s/%s", found.gl_pathv[i], file);
        sensor_add(sensors, path, name);
    }
    globfree(&found);
}

void sensors_open_zones(struct sensors *sensors)
{
    open_thermal(sensors, "/sys/class/thermal/thermal_zone*", "temp");
}

void sensors_open_cooling(struct sensors *sensors)
{
    open_thermal(sensors, "/sys/class/thermal/cooling_device*", "cur_state");
}

void sensors_open_cpufreq(struct sensors *sensors, const char *file)
{
    static const char cpu[] = "/sys/devices/system/cpu/cpu";
    glob_t found;
    size_t prefix_length;
    char pattern[128];
    sensors->count = 0;
    snprintf(pattern, sizeof pattern, "%s[0-9]*/cpufreq/%s", cpu, file);
    if (!sys_glob(pattern, &prefix_length, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", atoi(found.gl_pathv[i] + prefix_length + sizeof cpu - 1));
        sensor_add(sensors, found.gl_pathv[i], name);
    }
    globfree(&found);
}

void sensors_open_devfreq(struct sensors *sensors, const char *file)
{
    glob_t found;
    size_t prefix_length;
    char pattern[128];
    sensors->count = 0;
    snprintf(pattern, sizeof pattern, "/sys/class/devfreq/*/%s", file);
    if (!sys_glob(pattern, &prefix_length, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char folder[PATH_MAX];
        snprintf(folder, sizeof folder, "%s", found.gl_pathv[i]);
        *strrchr(folder, '/') = '\0';
        sensor_add(sensors, found.gl_pathv[i], strrchr(folder, '/') + 1);
    }
    globfree(&found);
}

static bool sensor_read(const struct sensor *sensor, int64_t *value)
{
    char text[32], *end;
    if (reread_small(sensor->fd, text, sizeof text) <= 0)
        return false;
    *value = strtoll(text, &end, 10);
    return end != text && (*end == '\n' || *end == '\0');
}

/* Why a zone's value is neither trusted nor converted; NULL: it is thousandths of a degree. 0 is the
 * same in degrees and thousandths. */
static const char *why_untrusted(const char *text, int64_t *value)
{
    char *end;
    *value = strtoll(text, &end, 10);
    if (end == text || *end)
        return "not a whole number";
    if (*value < -40000 || *value > 150000)
        return "outside -40 to 150 °C";
    return *value && *value > -1000 && *value < 1000 ? "perhaps whole degrees" : NULL;
}

void sensors_write_zones(const struct sensors *zones, struct json *json)
{
    struct json untrusted = { 0 };
    if (zones->count == 0)
        return;
    json_key(json, "temps_mc");
    json_open(json, '{');
    for (size_t i = 0; i < zones->count; i++) {
        char text[32], told[80];
        int64_t value;
        if (reread_small(zones->list[i].fd, text, sizeof text) <= 0)
            continue;
        text[strcspn(text, "\n")] = '\0';
        const char *why = why_untrusted(text, &value);
        if (!why) {
            json_member_int(json, zones->list[i].name, value);
            continue;
        }
        snprintf(told, sizeof told, "%s, %s", text, why);
        json_member_string(&untrusted, zones->list[i].name, told);
    }
    json_close(json, '}');
    if (untrusted.text && !untrusted.failed) {
        json_key(json, "temps_untrusted");
        json_open(json, '{');
        json_raw(json, untrusted.text, untrusted.length);
        json_close(json, '}');
    }
    json_free(&untrusted);
}

void sensors_write(const struct sensors *sensors, const char *key, struct json *json)
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
