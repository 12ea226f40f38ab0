/* `agent bench-storage`: how fast a file of this storage is read, and whether it truly came from it.
 *
 * Sequential and random reads with O_DIRECT and through an emptied page cache, and page faults on a
 * mapping, which is how a mapped model is read. O_DIRECT is not believed: some file systems
 * (encrypted f2fs) accept it and read through the cache. A read counts as uncached when mincore(2)
 * finds the cache empty - before a read through it, after a direct one - and the kernel's own count
 * of bytes from storage agrees; where one of the two is not known the other decides.
 *
 *     {"schema":1,"agent_version":…,"file_bytes":N,"created":true,"direct_accepted":true,
 *      "results":[{"pattern":"sequential"|"random"|"mapping","method":"direct"|"dropped",
 *                  "threads":N,"block_bytes":N,"bytes_read":N,"bytes_per_second":N,
 *                  "resident_bytes":N|null,"storage_bytes":N|null,"uncached":true|false|null}, …]}
 *
 * "mapping": threads take the next block_bytes each, touching every page of it in turn.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"
#include "bench_file.h"
#include "failure.h"
#include "json.h"
#include "telemetry.h"
#include "threads.h"
#include "util.h"

#define SEQUENTIAL_BYTES (1 << 20)
#define RANDOM_BYTES 4096
#define MAPPING_BYTES (256 << 10)
/* Share of a file, in 1/100, that may be in the cache of a read called uncached ... */
#define CACHED_PERCENT 1
/* ... and the least of what was read that storage has to have delivered. */
#define DELIVERED_PERCENT 90

enum pattern { SEQUENTIAL, RANDOM, MAPPING };
static const char *const pattern_names[] = { "sequential", "random", "mapping" };

struct reading {
    enum pattern pattern;
    bool direct;
    int fd;
    const volatile char *mapping;
    int64_t page_bytes, block_bytes, blocks, stride, until_ns;
    int64_t next;       /* the block to read next; shared by all threads */
    int64_t bytes_read; /* by all of them */
    int error;          /* errno of a read that failed */
};

/* Every block once: random order is a stride that has no divisor in common with their number. */
static int64_t coprime_stride(int64_t blocks)
{
    for (int64_t stride = blocks * 5 / 8 + 1;; stride++) {
        int64_t a = stride, b = blocks;
        while (b) {
            int64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return stride;
    }
}

static bool read_block(struct reading *reading, int64_t block, char *buffer)
{
    const int64_t offset = block * reading->block_bytes;
    if (reading->pattern == MAPPING) {
        for (int64_t at = 0; at < reading->block_bytes; at += reading->page_bytes)
            (void)reading->mapping[offset + at];
        return true;
    }
    for (int64_t done = 0; done < reading->block_bytes;) {
        ssize_t got = pread(reading->fd, buffer + done, (size_t)(reading->block_bytes - done),
                            offset + done);
        if (got <= 0) {
            if (got < 0 && errno == EINTR)
                continue;
            __atomic_store_n(&reading->error, got ? errno : EIO, __ATOMIC_RELAXED);
            return false;
        }
        done += got;
    }
    return true;
}

static void read_blocks(void *context, int number, int threads)
{
    struct reading *reading = context;
    char *buffer = NULL;
    (void)number, (void)threads;
    if (posix_memalign((void **)&buffer, 4096, SEQUENTIAL_BYTES) != 0) {
        __atomic_store_n(&reading->error, ENOMEM, __ATOMIC_RELAXED);
        return;
    }
    while (monotonic_ns() < reading->until_ns) {
        int64_t count = __atomic_fetch_add(&reading->next, 1, __ATOMIC_RELAXED);
        if (count >= reading->blocks)
            break;
        int64_t block = reading->pattern == RANDOM ? count * reading->stride % reading->blocks
                                                   : count;
        if (!read_block(reading, block, buffer))
            break;
        __atomic_fetch_add(&reading->bytes_read, reading->block_bytes, __ATOMIC_RELAXED);
    }
    free(buffer);
}

/* What storage delivered to this process so far; -1 where the kernel does not count it. */
static int64_t delivered_bytes(void)
{
    char text[512];
    return read_small(AT_FDCWD, "/proc/self/io", text, sizeof text) > 0
               ? named_number(text, "read_bytes")
               : -1;
}

static void write_result(struct json *json, const struct reading *reading, int threads, int64_t ns,
                         int64_t resident, int64_t delivered, int64_t file_bytes)
{
    const bool shown = resident >= 0 || delivered >= 0;
    const bool uncached = resident <= file_bytes / 100 * CACHED_PERCENT &&
                          (delivered < 0 ||
                           delivered >= reading->bytes_read / 100 * DELIVERED_PERCENT);
    json_open(json, '{');
    json_member_string(json, "pattern", pattern_names[reading->pattern]);
    json_member_string(json, "method", reading->direct ? "direct" : "dropped");
    json_member_int(json, "threads", threads);
    json_member_int(json, "block_bytes", reading->block_bytes);
    json_member_int(json, "bytes_read", reading->bytes_read);
    json_member_int(json, "bytes_per_second",
                    (int64_t)((double)reading->bytes_read * 1e9 / (double)(ns ? ns : 1)));
    json_member_count(json, "resident_bytes", resident);
    json_member_count(json, "storage_bytes", delivered);
    json_key(json, "uncached");
    if (shown)
        json_bool(json, uncached);
    else
        json_null(json);
    json_close(json, '}');
}

/* One line of the results. 0 or the errno of what failed. */
static int measure(struct json *json, const struct bench_file *file, struct reading reading,
                   int threads, int64_t ns)
{
    static struct team team;
    char *mapping = NULL;
    reading.fd = file->fd;
    reading.page_bytes = sysconf(_SC_PAGESIZE);
    reading.blocks = file->bytes / reading.block_bytes;
    reading.stride = coprime_stride(reading.blocks);
    if (reading.pattern == MAPPING) {
        mapping = mmap(NULL, (size_t)file->bytes, PROT_READ, MAP_SHARED, file->fd, 0);
        if (mapping == MAP_FAILED)
            return errno;
        reading.mapping = mapping;
    }
    int64_t resident = bench_file_drop(file);
    posix_fadvise(file->fd, 0, 0,
                  reading.pattern == RANDOM ? POSIX_FADV_RANDOM : POSIX_FADV_SEQUENTIAL);
    if (!team_start(&team, threads, read_blocks, &reading))
        return EAGAIN;
    if (reading.direct && !bench_file_direct(file, true))
        return errno;
    int64_t before = delivered_bytes();
    reading.until_ns = monotonic_ns() + ns;
    int64_t took = team_pass(&team);
    int64_t after = delivered_bytes();
    team_end(&team);
    if (reading.direct) {
        bench_file_direct(file, false);
        resident = bench_file_resident(file);
    }
    if (mapping)
        munmap(mapping, (size_t)file->bytes);
    if (!reading.error)
        write_result(json, &reading, threads, took, resident,
                     before < 0 || after < 0 ? -1 : after - before, file->bytes);
    return reading.error;
}

static int measure_all(struct json *json, const struct bench_file *file, int most, bool direct,
                       int64_t ns)
{
    const struct reading readings[] = {
        { .pattern = SEQUENTIAL, .direct = true, .block_bytes = SEQUENTIAL_BYTES },
        { .pattern = SEQUENTIAL, .block_bytes = SEQUENTIAL_BYTES },
        { .pattern = RANDOM, .direct = true, .block_bytes = RANDOM_BYTES },
        { .pattern = RANDOM, .block_bytes = RANDOM_BYTES },
        { .pattern = MAPPING, .block_bytes = MAPPING_BYTES },
    };
    const size_t count = sizeof readings / sizeof *readings;
    const int64_t each_ns = ns / (2 + 3 * thread_steps(most));
    for (size_t i = 0; i < count; i++) {
        if (readings[i].direct && !direct)
            continue;
        const int threads_most = readings[i].pattern == SEQUENTIAL ? 1 : most;
        for (int threads = 1; threads; threads = thread_step_after(threads, threads_most)) {
            int error = measure(json, file, readings[i], threads, each_ns);
            if (error)
                return error;
        }
    }
    return 0;
}

int command_bench_storage(const struct bench_options *options)
{
    struct bench_file file;
    struct json json = { 0 };
    int status = bench_file_open(&file, options->file, options->bytes);
    if (status)
        return status;
    const bool direct = bench_file_direct(&file, true) && bench_file_direct(&file, false);
    json_open(&json, '{');
    json_member_int(&json, "schema", 1);
    json_member_string(&json, "agent_version", AGENT_VERSION);
    json_member_int(&json, "file_bytes", file.bytes);
    json_key(&json, "created");
    json_bool(&json, file.created);
    json_key(&json, "direct_accepted");
    json_bool(&json, direct);
    json_key(&json, "results");
    json_open(&json, '[');
    int error = measure_all(&json, &file, options->threads ? options->threads : cpus_allowed(),
                            direct, options->ns);
    bench_file_close(&file);
    if (error)
        return fail(EXIT_SYSTEM, "system", "cannot read %s: %s", options->file, strerror(error));
    json_close(&json, ']');
    json_close(&json, '}');
    return json_print(&json, STDOUT_FILENO) ? 0 : EXIT_SYSTEM;
}
