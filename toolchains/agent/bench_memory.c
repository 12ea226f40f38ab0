/* `agent bench-memory`: how fast the CPUs read DRAM, with 1, 2, 4 ... threads.
 *
 * In a pass the threads read all of a buffer that is several times the last cache, each the next
 * piece that nobody has taken: a slow core, or one that is taken away, leaves more to the others. The
 * rate of a number of threads is that of its best pass: whatever else runs can only slow one down.
 *
 *     {"schema":1,"agent_version":…,"buffer_bytes":N,"last_cache_bytes":N|null,
 *      "instructions":"neon","results":[{"threads":N,"bytes_per_second":N,"passes":N}, …]}
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent.h"
#include "failure.h"
#include "json.h"
#include "telemetry.h"
#include "threads.h"
#include "util.h"

#define LEAST_BYTES (16LL << 20)
#define DEFAULT_BYTES (64LL << 20)
#define CACHES_TIMES 8
#define LEAST_PASSES 3
/* Many of them in a pass, and each long enough for the prefetcher. */
#define PIECE_BYTES (256 << 10)

#if defined __aarch64__
#define INSTRUCTIONS "neon"
#elif defined __x86_64__
#define INSTRUCTIONS "sse2"
#endif

/* Sixteen bytes: a register of NEON, or of SSE2. */
typedef uint64_t vector __attribute__((vector_size(16)));

struct reading {
    const vector *buffer;
    int64_t pieces, next; /* next: the piece to read next; shared by all threads */
    uint64_t sum;
};

/* Eight independent sums, so that no load waits for an addition. */
static void read_pieces(void *context, int number, int threads)
{
    const int64_t vectors = PIECE_BYTES / sizeof(vector);
    struct reading *reading = context;
    vector sums[8] = { 0 }, sum = { 0 };
    int64_t piece;
    (void)number, (void)threads;
    while ((piece = __atomic_fetch_add(&reading->next, 1, __ATOMIC_RELAXED)) < reading->pieces) {
        const vector *next = reading->buffer + piece * vectors, *end = next + vectors;
        for (; next < end; next += 8)
            for (int i = 0; i < 8; i++)
                sums[i] += next[i];
    }
    for (int i = 0; i < 8; i++)
        sum += sums[i];
    /* Used, so that nothing is left out. */
    __atomic_fetch_add(&reading->sum, sum[0] + sum[1], __ATOMIC_RELAXED);
}

/* The size of the largest cache in bytes; -1 where sysfs does not tell. */
static int64_t last_cache_bytes(void)
{
    glob_t found;
    int64_t largest = -1;
    if (glob("/sys/devices/system/cpu/cpu0/cache/index*/size", 0, NULL, &found) != 0)
        return -1;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char text[32], *unit;
        if (read_small(AT_FDCWD, found.gl_pathv[i], text, sizeof text) <= 0)
            continue;
        int64_t bytes = strtoll(text, &unit, 10);
        bytes *= *unit == 'K' ? 1024 : *unit == 'M' ? 1 << 20 : 1;
        if (bytes > largest)
            largest = bytes;
    }
    globfree(&found);
    return largest;
}

/* What was asked for, else several times the cache, as far as a quarter of free memory goes. */
static int64_t buffer_bytes(int64_t asked, int64_t cache)
{
    int64_t bytes = asked ? asked : DEFAULT_BYTES;
    if (!asked && cache * CACHES_TIMES > bytes)
        bytes = cache * CACHES_TIMES;
    int meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    int64_t most = meminfo_bytes(meminfo, "MemAvailable") / 4;
    close(meminfo);
    return !asked && most > 0 && bytes > most ? most : bytes;
}

static bool measure(struct json *json, struct reading *reading, int threads, int64_t ns)
{
    int64_t best_ns = INT64_MAX, passes = 0, until = monotonic_ns() + ns;
    static struct team team;
    if (!team_start(&team, threads, read_pieces, reading))
        return false;
    while (passes < LEAST_PASSES || monotonic_ns() < until) {
        reading->next = 0; /* all threads wait for the pass to begin */
        int64_t took = team_pass(&team);
        if (took < best_ns)
            best_ns = took;
        passes++;
    }
    team_end(&team);
    double read = (double)reading->pieces * PIECE_BYTES;
    json_open(json, '{');
    json_member_int(json, "threads", threads);
    json_member_int(json, "bytes_per_second", (int64_t)(read / (double)best_ns * 1e9));
    json_member_int(json, "passes", passes);
    json_close(json, '}');
    return true;
}

int command_bench_memory(const struct bench_options *options)
{
    static struct reading reading;
    struct json json = { 0 };
    const int64_t cache = last_cache_bytes();
    const int64_t bytes = buffer_bytes(options->bytes, cache) / PIECE_BYTES * PIECE_BYTES;
    const int most = options->threads ? options->threads : cpus_allowed();
    const int steps = thread_steps(most);
    if (options->bytes && bytes < LEAST_BYTES)
        return fail(EXIT_USAGE, "usage", "--bytes has to be %lld at least", LEAST_BYTES);
    if (bytes < LEAST_BYTES)
        return fail(EXIT_SYSTEM, "system", "too little memory is free to measure its speed");
    char *buffer = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return fail(EXIT_SYSTEM, "system", "cannot get %lld bytes of memory: %s", (long long)bytes,
                    strerror(errno));
    memset(buffer, 1, (size_t)bytes); /* pages of their own, not all the same page of zeros */
    reading.buffer = (const vector *)(const void *)buffer;
    reading.pieces = bytes / PIECE_BYTES;
    json_open(&json, '{');
    json_member_int(&json, "schema", 1);
    json_member_string(&json, "agent_version", AGENT_VERSION);
    json_member_int(&json, "buffer_bytes", bytes);
    json_member_count(&json, "last_cache_bytes", cache);
    json_member_string(&json, "instructions", INSTRUCTIONS);
    json_key(&json, "results");
    json_open(&json, '[');
    for (int threads = 1; threads; threads = thread_step_after(threads, most))
        if (!measure(&json, &reading, threads, options->ns / steps))
            return fail(EXIT_SYSTEM, "system", "cannot start %d threads", threads);
    json_close(&json, ']');
    json_close(&json, '}');
    return json_print(&json, STDOUT_FILENO) ? 0 : EXIT_SYSTEM;
}
