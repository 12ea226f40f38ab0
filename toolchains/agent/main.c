/* The on-board agent of labctl: starts jobs, stamps what they print, and tells facts.
 *
 *     agent run --dir D --timeout S --epoch N [--lease FILE] [--sample-ms N]
 *               [--max-output-bytes N] [--cpus LIST] [--nice N] [--memlock 0|1]
 *               -- program argument...
 *     agent wait --dir D [--seconds S]
 *     agent stop --dir D [--seconds S]
 *     agent facts
 *     agent hash [--chunk BYTES] FILE...
 *     agent receive --file FILE --target FILE --size BYTES --chunk BYTES
 *                   [--executable 0|1] [--idle S]
 *     agent bench-memory [--threads N] [--bytes N] [--seconds S]
 *     agent bench-storage --file FILE [--threads N] [--bytes N] [--seconds S]
 *     agent exec -- program argument...
 *     agent version
 *
 * README.md beside this file has the formats of what it prints and writes.
 */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emulate.h"
#include "json.h"
#include "threads.h"
#include "util.h"

extern char **environ;

#define DEFAULT_SAMPLE_MS 1000
#define DEFAULT_MAX_OUTPUT_BYTES (64LL << 20)
#define DEFAULT_STOP_NS (15 * NS_PER_SECOND)
#define DEFAULT_IDLE_NS (60 * NS_PER_SECOND)
#define MEMORY_BENCH_NS (3 * NS_PER_SECOND)
#define STORAGE_BENCH_NS (20 * NS_PER_SECOND)
#define MAX_IDLE_NS (3600 * NS_PER_SECOND)
/* Sent again whole when a bit of it is wrong. */
#define MAX_CHUNK_BYTES (64 << 20)
/* About thirty years; it keeps sums of times within an int64_t. */
#define MAX_SECONDS_NS (1000000000LL * NS_PER_SECOND)

char *failure_line(const char *kind, const char *format, va_list arguments)
{
    char message[8192];
    struct json json = { 0 };
    vsnprintf(message, sizeof message, format, arguments);
    json_open(&json, '{');
    json_member_int(&json, "schema", 1);
    json_member_string(&json, "error", kind);
    json_member_string(&json, "message", message);
    json_close(&json, '}');
    if (json.failed)
        json_free(&json);
    return json.text;
}

int fail(int status, const char *kind, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *line = failure_line(kind, format, arguments);
    va_end(arguments);
    puts(line ? line : "{}");
    fflush(stdout);
    free(line);
    return status;
}

/* The options of one command. An option is known to a command when its pointer is set. */
struct options {
    const char **dir, **lease, **file, **target;
    cpu_set_t *cpus;
    int *nice;
    int64_t *timeout_ns, *wait_ns, *idle_ns;
    uint64_t *epoch, *sample_ms, *max_output_bytes, *chunk_bytes, *size, *executable, *threads, *bytes;
    uint64_t *memlock;
};

static bool take_number(const char *text, uint64_t most, uint64_t *value)
{
    return parse_u64(text, value) && *value <= most;
}

static bool take_seconds(const char *text, int64_t *ns)
{
    return parse_seconds(text, ns) && *ns <= MAX_SECONDS_NS;
}

static bool take_nice(const char *text, int *nice)
{
    uint64_t value;
    const bool negative = *text == '-';
    if (!take_number(text + negative, negative ? 20 : 19, &value))
        return false;
    *nice = negative ? -(int)value : (int)value;
    return true;
}

/* True when the option is known; *good false when its value is not acceptable. */
static bool take_option(const struct options *known, const char *name, const char *value,
                        bool *good)
{
    *good = true;
    if (known->dir && strcmp(name, "--dir") == 0)
        *known->dir = value;
    else if (known->lease && strcmp(name, "--lease") == 0)
        *known->lease = value;
    else if (known->timeout_ns && strcmp(name, "--timeout") == 0)
        *good = take_seconds(value, known->timeout_ns) && *known->timeout_ns > 0;
    else if (known->wait_ns && strcmp(name, "--seconds") == 0)
        *good = take_seconds(value, known->wait_ns);
    else if (known->epoch && strcmp(name, "--epoch") == 0)
        *good = take_number(value, INT64_MAX, known->epoch);
    else if (known->sample_ms && strcmp(name, "--sample-ms") == 0)
        *good = take_number(value, 3600 * 1000, known->sample_ms);
    else if (known->max_output_bytes && strcmp(name, "--max-output-bytes") == 0)
        *good = take_number(value, INT64_MAX, known->max_output_bytes);
    else if (known->chunk_bytes && strcmp(name, "--chunk") == 0)
        *good = take_number(value, INT64_MAX, known->chunk_bytes) && *known->chunk_bytes > 0;
    else if (known->file && strcmp(name, "--file") == 0)
        *known->file = value;
    else if (known->target && strcmp(name, "--target") == 0)
        *known->target = value;
    else if (known->executable && strcmp(name, "--executable") == 0)
        *good = take_number(value, 1, known->executable);
    else if (known->size && strcmp(name, "--size") == 0)
        *good = take_number(value, INT64_MAX, known->size);
    else if (known->cpus && strcmp(name, "--cpus") == 0)
        *good = parse_cpus(value, known->cpus);
    else if (known->nice && strcmp(name, "--nice") == 0)
        *good = take_nice(value, known->nice);
    else if (known->memlock && strcmp(name, "--memlock") == 0)
        *good = take_number(value, 1, known->memlock);
    else if (known->threads && strcmp(name, "--threads") == 0)
        *good = take_number(value, THREADS_MOST, known->threads) && *known->threads > 0;
    else if (known->bytes && strcmp(name, "--bytes") == 0)
        *good = take_number(value, INT64_MAX, known->bytes) && *known->bytes > 0;
    else if (known->idle_ns && strcmp(name, "--idle") == 0)
        *good = take_seconds(value, known->idle_ns) && *known->idle_ns <= MAX_IDLE_NS;
    else
        return false;
    return true;
}

/* What follows the options (and "--", if it is there), or NULL after having said what is wrong. */
static char **parse(char **words, const struct options *known)
{
    while (*words && strncmp(*words, "--", 2) == 0) {
        bool good;
        const char *name = *words++;
        if (name[2] == '\0')
            return words;
        const char *value = *words ? *words : "";
        if (!take_option(known, name, value, &good)) {
            fail(EXIT_USAGE, "usage", "unknown option %s", name);
            return NULL;
        }
        if (!*words) {
            fail(EXIT_USAGE, "usage", "%s needs a value", name);
            return NULL;
        }
        if (!good || !*value) {
            fail(EXIT_USAGE, "usage", "%s does not take the value '%s'", name, value);
            return NULL;
        }
        words++;
    }
    return words;
}

static int parse_run(char **words)
{
    struct run_options run = { 0 };
    uint64_t sample_ms = DEFAULT_SAMPLE_MS, max_output = DEFAULT_MAX_OUTPUT_BYTES;
    uint64_t epoch = UINT64_MAX, memlock = 0;
    static cpu_set_t cpus;
    const struct options known = { .dir = &run.dir,
                                   .lease = &run.lease,
                                   .timeout_ns = &run.timeout_ns,
                                   .epoch = &epoch,
                                   .cpus = &cpus,
                                   .nice = &run.nice,
                                   .memlock = &memlock,
                                   .sample_ms = &sample_ms,
                                   .max_output_bytes = &max_output };
    run.argv = parse(words, &known);
    if (!run.argv)
        return EXIT_USAGE;
    if (!run.dir || !run.timeout_ns || epoch == UINT64_MAX)
        return fail(EXIT_USAGE, "usage", "run needs --dir, --timeout and --epoch");
    if (!*run.argv || !**run.argv)
        return fail(EXIT_USAGE, "usage", "run needs a program");
    run.epoch = epoch;
    run.cpus = CPU_COUNT(&cpus) ? &cpus : NULL;
    run.memlock = memlock;
    run.sample_ns = (int64_t)sample_ms * NS_PER_MS;
    run.max_output_bytes = (int64_t)max_output;
    return command_run(&run);
}

static int parse_watch(char **words, int64_t ns, int (*command)(const char *, int64_t))
{
    const char *dir = NULL;
    words = parse(words, &(struct options){ .dir = &dir, .wait_ns = &ns });
    if (!words)
        return EXIT_USAGE;
    if (!dir || *words)
        return fail(EXIT_USAGE, "usage", "wait and stop need --dir and no further arguments");
    return command(dir, ns);
}

static int parse_hash(char **words)
{
    uint64_t chunk_bytes = 0;
    words = parse(words, &(struct options){ .chunk_bytes = &chunk_bytes });
    if (!words)
        return EXIT_USAGE;
    if (!*words)
        return fail(EXIT_USAGE, "usage", "hash needs a file");
    return command_hash(words, chunk_bytes);
}

static int parse_receive(char **words)
{
    struct receive_options receive = { .size = UINT64_MAX, .idle_ns = DEFAULT_IDLE_NS };
    uint64_t executable = 0;
    words = parse(words, &(struct options){ .file = &receive.file,
                                            .target = &receive.target,
                                            .executable = &executable,
                                            .size = &receive.size,
                                            .chunk_bytes = &receive.chunk_bytes,
                                            .idle_ns = &receive.idle_ns });
    if (!words)
        return EXIT_USAGE;
    if (!receive.file || !receive.target || receive.size == UINT64_MAX || !receive.chunk_bytes ||
        *words)
        return fail(EXIT_USAGE, "usage", "receive needs --file, --target, --size and --chunk");
    if (receive.chunk_bytes > MAX_CHUNK_BYTES || receive.size / receive.chunk_bytes >= INT32_MAX)
        return fail(EXIT_USAGE, "usage", "chunks of at most %d bytes, and fewer than 2^31",
                    MAX_CHUNK_BYTES);
    receive.mode = executable ? 0755 : 0644;
    return command_receive(&receive);
}

static int parse_bench(char **words, bool storage)
{
    uint64_t threads = 0, bytes = 0;
    struct bench_options bench = { .ns = storage ? STORAGE_BENCH_NS : MEMORY_BENCH_NS };
    struct options known = { .threads = &threads, .bytes = &bytes, .wait_ns = &bench.ns };
    if (storage)
        known.file = &bench.file;
    words = parse(words, &known);
    if (!words)
        return EXIT_USAGE;
    if (*words || (storage && !bench.file))
        return fail(EXIT_USAGE, "usage", "bench-storage needs --file, and no further arguments");
    bench.threads = (int)threads;
    bench.bytes = (int64_t)bytes;
    return storage ? command_bench_storage(&bench) : command_bench_memory(&bench);
}

int command_exec(char **argv)
{
    char path[PATH_MAX];
    if (find_program(argv[0], getenv("PATH"), path, sizeof path))
        emulated_exec(path, argv, environ);
    int error = errno;
    return fail(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE, "spawn-failed",
                "cannot execute %s: %s", argv[0], strerror(error));
}

static int parse_exec(char **words)
{
    words = parse(words, &(struct options){ 0 });
    if (!words)
        return EXIT_USAGE;
    if (!*words || !**words)
        return fail(EXIT_USAGE, "usage", "exec needs a program");
    return command_exec(words);
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    char **words = argv + (argc > 1 ? 2 : 1);
    if (strcmp(command, "run") == 0)
        return parse_run(words);
    if (strcmp(command, "wait") == 0)
        return parse_watch(words, 0, command_wait);
    if (strcmp(command, "stop") == 0)
        return parse_watch(words, DEFAULT_STOP_NS, command_stop);
    if (strcmp(command, "hash") == 0)
        return parse_hash(words);
    if (strcmp(command, "receive") == 0)
        return parse_receive(words);
    if (strcmp(command, "bench-memory") == 0)
        return parse_bench(words, false);
    if (strcmp(command, "bench-storage") == 0)
        return parse_bench(words, true);
    if (strcmp(command, "exec") == 0)
        return parse_exec(words);
    if (strcmp(command, "facts") == 0 && !*words)
        return command_facts();
    if (strcmp(command, "version") == 0 && !*words) {
        puts("labctl-agent " AGENT_VERSION);
        return 0;
    }
    return fail(EXIT_USAGE, "usage",
                "agent run|wait|stop|facts|hash|receive|bench-memory|bench-storage|exec|version,"
                " not '%s'",
                command);
}
