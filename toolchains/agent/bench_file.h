/* The file that bench-storage reads, and what of it the page cache holds. */
#ifndef LABCTL_BENCH_FILE_H
#define LABCTL_BENCH_FILE_H

#include <stdbool.h>
#include <stdint.h>

struct bench_file {
    int fd;
    int64_t bytes;
    bool created;
    bool residency_known; /* mincore(2) tells only who may write the file, or owns it */
};

/* Open `path`, or make it when it is not there: of `bytes` (0: a usual size), never more than a
 * quarter of the free space, and without a name, so that nothing is left however this ends.
 * 0, or the exit status of a failure that was printed. */
int bench_file_open(struct bench_file *file, const char *path, int64_t bytes);
void bench_file_close(const struct bench_file *file);

/* Read around the page cache from now on, or not; false when the file system refuses. */
bool bench_file_direct(const struct bench_file *file, bool on);

/* Empty the page cache of it. Return the bytes still in it, -1 where the kernel does not tell. */
int64_t bench_file_drop(const struct bench_file *file);
int64_t bench_file_resident(const struct bench_file *file);

#endif
