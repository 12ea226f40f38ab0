/* Small numbers in files of /sys: temperatures, frequencies, throttling. */
#ifndef LABCTL_SENSORS_H
#define LABCTL_SENSORS_H

#include <glob.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json.h"

#define SENSORS_MAX 128 /* a phone has about 90 thermal zones */

/* One number in a file that is kept open. */
struct sensor {
    int fd;
    char name[64];
};

struct sensors {
    size_t count;
    struct sensor list[SENSORS_MAX];
};

/* The paths of /sys that match, on a virtual board those that it made up; false for none. What
 * stands before "/sys" in them has *prefix_length bytes. */
bool sys_glob(const char *pattern, size_t *prefix_length, glob_t *found);

/* Thermal zones, named as the kernel numbers them: "thermal_zone0 soc-thermal". */
void sensors_open_zones(struct sensors *sensors);
/* States of cooling devices (0: does not throttle): "cooling_device0 thermal-cpufreq-0". */
void sensors_open_cooling(struct sensors *sensors);
/* A file of each CPU's cpufreq, such as "scaling_cur_freq", named by the CPU's number. */
void sensors_open_cpufreq(struct sensors *sensors, const char *file);
/* A file of each device of devfreq, such as "cur_freq", named by the device: "dmc". */
void sensors_open_devfreq(struct sensors *sensors, const char *file);

/* A member `key`: an object of those that can be read now; left out when there are none at all. */
void sensors_write(const struct sensors *sensors, const char *key, struct json *json);
/* The members "temps_mc" (thousandths of a degree) and "temps_untrusted": what a zone wrote that is
 * no such number, and why. Some kernels of vendors write whole degrees, or nonsense. Every reader of
 * temperatures has them from here. */
void sensors_write_zones(const struct sensors *zones, struct json *json);

#endif
