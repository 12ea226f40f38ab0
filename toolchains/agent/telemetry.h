/* What the job and the board do while it runs, sampled from /proc and /sys.
 *
 * One JSON object a line. What the kernel does not offer is left out. Counters are "so far": since
 * the process began, or since the board did.
 *
 * Of the job's main process, left out once it has ended where the kernel forgets it then:
 *     rss_bytes             resident set
 *     pss_bytes             the same, with shared pages divided among those who share them; seldom,
 *                           because the kernel goes through all its pages for it
 *     locked_bytes          what of it is locked in memory; seldom too
 *     utime_ns, stime_ns    processor time of all its threads (resolution: the kernel's tick)
 *     minflt, majflt        page faults
 *     threads               thread id -> [user ns, system ns] of those that live
 *     runqueue_wait_ns      how long the threads that live were ready but had no CPU; left out where
 *                           there are more threads than are looked at (64)
 *     read_bytes            what it made the storage layer read
 *     write_bytes           what it made the storage layer write
 * Of the job's whole tree:
 *     tree_cpu_ns           processor time of everything that the job started, living or ended;
 *                           on boards of many processes in some samples only
 * Of its output, as the supervisor has it at that moment:
 *     stdout, stderr        pieces (reads from the pipe), lines and bytes of the stream so far, and
 *                           when the first and the last piece came (first_ns, last_ns)
 * Of the board:
 *     device_read_bytes, device_write_bytes, device_busy_ns
 *                           the block device of the job's directory
 *     mem_available_bytes   MemAvailable
 *     swap_used_bytes       where there is swap
 *     zram_original_bytes, zram_memory_bytes
 *                           what compressed swap holds, and the memory it takes for that
 *     pressure_ns           time in which tasks stalled: "cpu_some", "memory_full", "io_full" ...
 *     cpu_busy_ns           time of all CPUs that was not idle or waiting for storage
 *     reclaim_cpu_ns        what of it the kernel's threads took that free memory (kswapd, kcompactd);
 *                           left out where they are not to be seen
 *     cpu_steal_ns          time that a hypervisor took
 *     temps_mc              thermal zone -> thousandths of a degree Celsius
 *     temps_untrusted       thermal zone -> "78, perhaps whole degrees": what it wrote, and why that
 *                           is no temperature; left out where all of them are
 *     cooling               cooling device -> its state, 0 when it does nothing
 *     freq_khz              CPU -> its present frequency
 *     freq_limit_khz        CPU -> the highest that it is allowed now
 *     devfreq_hz, devfreq_limit_hz
 *                           the same of other devices, such as the memory ("dmc"), in Hz
 * and mono_ns, when the sample was begun (CLOCK_MONOTONIC).
 */
#ifndef LABCTL_TELEMETRY_H
#define LABCTL_TELEMETRY_H

#include <dirent.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "cputimes.h"
#include "sensors.h"
#include "sink.h"

/* A line of /proc/meminfo (fd) in bytes; -1 when absent. */
int64_t meminfo_bytes(int fd, const char *name);

/* The number after "name:" at the beginning of a line; -1 when absent. */
int64_t named_number(const char *text, const char *name);

/* The "stat" of the block device that holds what is open as fd; -1 where it has none. */
int block_stat_open(int fd);

/* One stream so far. Written by the supervisor's thread, read by the sampler's: `pieces` is the last
 * to be written and the first to be read, so that the others are those of this piece or later. */
struct output {
    _Atomic int64_t pieces, lines, bytes, first_ns, last_ns;
};

struct telemetry {
    struct sink *sink;
    const struct output *output; /* of stdout and stderr */
    pid_t job;
    struct cputimes times; /* of the job's tree, and of page reclaim */
    DIR *tasks;                                         /* NULL: not offered */
    int stat_fd, statm_fd, io_fd;                       /* of the job; -1: not offered */
    int meminfo_fd, cpu_fd, device_fd, pressure_fds[3]; /* of the board */
    int zram_fds[4];                                    /* "mm_stat" of each; -1: no such */
    struct sensors zones, cooling, frequencies, limits, devices, device_limits;
    int64_t pss_due_ns, tree_due_ns;
};

/* dir: the job's directory. output: of its two streams. */
void telemetry_open(struct telemetry *telemetry, struct sink *sink, const struct output *output,
                    pid_t job, int dir);
/* last: with what is otherwise in some samples only, for the differences over all the time. */
void telemetry_sample(struct telemetry *telemetry, bool last);

#endif
