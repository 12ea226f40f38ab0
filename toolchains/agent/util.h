/* Clocks, whole reads and writes, and the few facts about processes that every part needs. */
#ifndef LABCTL_UTIL_H
#define LABCTL_UTIL_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#define NS_PER_SECOND 1000000000LL
#define NS_PER_MS 1000000LL

/* Room for a boot id or a sandbox id, with its final NUL. */
#define BOOT_ID_SIZE 128

/* A clock in nanoseconds; on a virtual board the wall clock is what that board makes of it. */
int64_t clock_ns(clockid_t clock);

static inline int64_t monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* How long this boot was suspended so far: CLOCK_MONOTONIC stands still then. */
int64_t asleep_ns(void);

/* Write all of it, whatever interrupts; false with errno set. */
bool write_all(int fd, const void *data, size_t length);

/* Read at most size - 1 bytes from the start of a small file and end them with a NUL.
 * The number of bytes, or -1 with errno set. at: a directory, or AT_FDCWD. */
ssize_t read_small(int at, const char *path, char *buffer, size_t size);

/* Open a file to read if it is plain: not a link, of one name, nothing that a reader waits for. -1
 * with errno set; *why: what else it is, or NULL. */
int open_plain(int at, const char *path, const char **why);
/* The same as read_small of such a file. */
ssize_t read_plain(int at, const char *path, char *buffer, size_t size);
/* What keeps a file from being plain ("is a FIFO"); NULL: nothing. */
const char *not_plain(const struct stat *status);

/* The same for a file held open, such as one of /proc. */
ssize_t reread_small(int fd, char *buffer, size_t size);

/* Make `name` in directory `at` hold exactly these bytes, by a temporary name and a rename.
 * durable: fsync the file and the directory too. False with errno set. */
bool write_atomic(int at, const char *name, const char *text, size_t length, bool durable);

/* What names this boot: LABCTL_SANDBOX in a virtual board, else the kernel's boot id.
 * False where neither is known. */
bool current_boot_id(char id[BOOT_ID_SIZE]);

/* A virtual board makes some things up for its agent, in the folder LABCTL_SANDBOX_FAKES:
 * clock      seconds to add to the wall clock
 * oom_kills  to add to what the kernel has counted
 * memory_kb  all that its memory has, free as well
 * no_pid_namespaces  1: its kernel has none
 * sys/       thermal zones and CPU frequencies are looked for here only, if it exists */
#define FAKES_VARIABLE "LABCTL_SANDBOX_FAKES"

/* The whole number in a file of that folder; 0 on a board, and where nothing is made up. */
int64_t fake_number(const char *name);
/* What stands before /sys: the folder, or nothing. False when it is too long. */
bool sys_prefix(char *prefix, size_t size);

/* Field 22 of /proc/PID/stat: with the pid it names one process of this boot.
 * 0 when there is no such process, or only its zombie. */
uint64_t process_start_ticks(pid_t pid);

/* Decimal digits alone. False on anything else, and on overflow. */
bool parse_u64(const char *text, uint64_t *value);

/* A list of CPUs as the kernel writes it ("0-3,5"). False on anything else. */
bool parse_cpus(const char *text, cpu_set_t *cpus);
/* The same from a set; text[size]. */
void format_cpus(const cpu_set_t *cpus, char *text, size_t size);

/* Seconds with at most nine decimals ("1800", "0.25") to nanoseconds. */
bool parse_seconds(const char *text, int64_t *ns);

/* Words for an errno of writing to path: a file system may be full of files, not of bytes. */
const char *reason(int error, const char *path);

#endif
