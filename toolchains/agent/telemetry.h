/* What the job and the board do while it runs, sampled from /proc and /sys.
 *
 * One JSON object a line; what the kernel does not offer is left out:
 *     mono_ns             when the sample was taken (CLOCK_MONOTONIC)
 *     rss_bytes           resident set of the job's main process; left out once it has ended
 *     utime_ns, stime_ns  its processor time, all threads (resolution: the kernel's clock tick)
 *     minflt, majflt      its page faults so far
 *     read_bytes          what it made the storage layer read so far
 *     mem_available_bytes MemAvailable of the board
 *     temps_mc            thermal zone -> thousandths of a degree Celsius
 *     freq_khz            CPU -> its present frequency
 */
#ifndef LABCTL_TELEMETRY_H
#define LABCTL_TELEMETRY_H

#include <sys/types.h>

#include "sink.h"

#define SENSORS_MAX 64

/* One number in a file of /sys that is kept open. */
struct sensor {
    int fd;
    char name[64];
};

struct sensors {
    size_t count;
    struct sensor list[SENSORS_MAX];
};

/* Thermal zones, named as the kernel numbers them: "thermal_zone0 soc-thermal". */
void sensors_open_zones(struct sensors *sensors);
/* CPU frequencies, named by the CPU's number. */
void sensors_open_frequencies(struct sensors *sensors);
/* False when it cannot be read now. */
bool sensor_read(const struct sensor *sensor, int64_t *value);

/* MemAvailable or another line of /proc/meminfo (fd) in bytes; -1 when absent. */
int64_t meminfo_bytes(int fd, const char *name);

struct telemetry {
    struct sink *sink;
    int stat_fd, statm_fd, io_fd, meminfo_fd; /* -1: not offered */
    struct sensors zones, frequencies;
};

void telemetry_open(struct telemetry *telemetry, struct sink *sink, pid_t job);
void telemetry_sample(struct telemetry *telemetry);

#endif
