/* The on-board agent of labctl: starts jobs, stamps what they print, and tells facts.
 *
 *     agent run --dir D --timeout S --epoch N [--lease FILE] [--sample-ms N]
 *               [--max-output-bytes N] [--cpus LIST] [--nice N] [--memlock 0|1]
 *               [--resident FILE] -- program argument...
 *     agent wait --dir D [--seconds S]
 *     agent stop --dir D [--seconds S] [--lease FILE --epoch N]
 *     agent guard --lease FILE --epoch N -- program argument...
 *     agent take --lease FILE --epoch N --before N [--jobs DIR] -- TEXT
 *     agent facts
 *     agent hash [--chunk BYTES | --parts BYTES | --plain BYTES] FILE...
 *     agent receive --file FILE --target FILE --size BYTES --chunk BYTES
 *                   [--executable 0|1] [--idle S] [--lease FILE --epoch N]
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
#include "failure.h"
#include "options.h"
#include "util.h"

extern char **environ;

#define DEFAULT_SAMPLE_MS 1000
#define DEFAULT_MAX_OUTPUT_BYTES (64LL << 20)
#define DEFAULT_STOP_NS (15 * NS_PER_SECOND)
#define DEFAULT_IDLE_NS (60 * NS_PER_SECOND)
#define MEMORY_BENCH_NS (3 * NS_PER_SECOND)
#define STORAGE_BENCH_NS (20 * NS_PER_SECOND)
/* Sent again whole when a bit of it is wrong. */
#define MAX_CHUNK_BYTES (64 << 20)

static int parse_run(char **words)
{
    struct run_options run = { 0 };
    uint64_t sample_ms = DEFAULT_SAMPLE_MS, max_output = DEFAULT_MAX_OUTPUT_BYTES;
    uint64_t memlock = 0;
    static cpu_set_t cpus;
    static struct lease_hold lease = { .epoch = UINT64_MAX };
    const struct options known = { .dir = &run.dir,
                                   .lease = &lease.path,
                                   .resident = &run.resident,
                                   .timeout_ns = &run.timeout_ns,
                                   .epoch = &lease.epoch,
                                   .cpus = &cpus,
                                   .nice = &run.nice,
                                   .memlock = &memlock,
                                   .sample_ms = &sample_ms,
                                   .max_output_bytes = &max_output };
    run.argv = parse_options(words, &known);
    if (!run.argv)
        return EXIT_USAGE;
    if (!run.dir || !run.timeout_ns || lease.epoch == UINT64_MAX)
        return fail(EXIT_USAGE, "usage", "run needs --dir, --timeout and --epoch");
    if (!*run.argv || !**run.argv)
        return fail(EXIT_USAGE, "usage", "run needs a program");
    run.lease = &lease;
    run.cpus = CPU_COUNT(&cpus) ? &cpus : NULL;
    run.memlock = memlock;
    run.sample_ns = (int64_t)sample_ms * NS_PER_MS;
    run.max_output_bytes = (int64_t)max_output;
    return command_run(&run);
}

static int parse_watch(char **words, int64_t ns, bool stops)
{
    const char *dir = NULL;
    struct lease_hold lease = { 0 };
    struct options known = { .dir = &dir, .wait_ns = &ns };
    if (stops) {
        known.lease = &lease.path;
        known.epoch = &lease.epoch;
    }
    words = parse_options(words, &known);
    if (!words)
        return EXIT_USAGE;
    if (!dir || *words)
        return fail(EXIT_USAGE, "usage", "wait and stop need --dir and no further arguments");
    return stops ? command_stop(dir, ns, &lease) : command_wait(dir, ns);
}

static int parse_hash(char **words)
{
    uint64_t chunk_bytes = 0, part_bytes = 0, most = 0;
    words = parse_options(words, &(struct options){ .chunk_bytes = &chunk_bytes,
                                                    .part_bytes = &part_bytes,
                                                    .plain_bytes = &most });
    if (!words)
        return EXIT_USAGE;
    if (!*words)
        return fail(EXIT_USAGE, "usage", "hash needs a file");
    if ((chunk_bytes || most) && part_bytes)
        return fail(EXIT_USAGE, "usage", "hash takes --chunk or --plain, or --parts, not both");
    return part_bytes ? command_hash_parts(words, part_bytes)
                      : command_hash(words, chunk_bytes, most);
}

static int parse_receive(char **words)
{
    static struct lease_hold lease;
    struct receive_options receive = { .size = UINT64_MAX,
                                       .idle_ns = DEFAULT_IDLE_NS,
                                       .lease = &lease };
    uint64_t executable = 0;
    words = parse_options(words, &(struct options){ .file = &receive.file,
                                                    .target = &receive.target,
                                                    .lease = &lease.path,
                                                    .epoch = &lease.epoch,
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
    words = parse_options(words, &known);
    if (!words)
        return EXIT_USAGE;
    if (*words)
        return fail(EXIT_USAGE, "usage", "'%s' is no option of this command", *words);
    if (storage && !bench.file)
        return fail(EXIT_USAGE, "usage", "bench-storage needs --file");
    bench.threads = (int)threads;
    bench.bytes = (int64_t)bytes;
    return storage ? command_bench_storage(&bench) : command_bench_memory(&bench);
}

/* Becomes the program, behind an emulator where it needs one. */
static int become(char **argv)
{
    char path[PATH_MAX], lacking[320];
    bool is_found = find_program(argv[0], getenv("PATH"), path, sizeof path);
    if (is_found)
        emulated_exec(path, argv, environ);
    int error = errno;
    if (is_found && error == ENOENT && lacks_interpreter(path, lacking, sizeof lacking))
        return fail(EXIT_NOT_FOUND, "spawn-failed", "cannot execute %s: %s", argv[0], lacking);
    return fail(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE, "spawn-failed",
                "cannot execute %s: %s", argv[0], strerror(error));
}

static int parse_exec(char **words)
{
    words = parse_options(words, &(struct options){ 0 });
    if (!words)
        return EXIT_USAGE;
    if (!*words || !**words)
        return fail(EXIT_USAGE, "usage", "exec needs a program");
    return become(words);
}

/* Becomes the program while the lease allows it; the program keeps the lock to its end. */
static int parse_guard(char **words)
{
    struct lease_hold lease = { .epoch = UINT64_MAX };
    words = parse_options(words,
                          &(struct options){ .lease = &lease.path, .epoch = &lease.epoch });
    if (!words)
        return EXIT_USAGE;
    if (!lease.path || lease.epoch == UINT64_MAX || !*words || !**words)
        return fail(EXIT_USAGE, "usage", "guard needs --lease, --epoch and a program");
    int status = lease_enter(&lease, true);
    return status ? status : become(words);
}

static int parse_take(char **words)
{
    struct take_options take = { .before = UINT64_MAX };
    words = parse_options(words, &(struct options){ .lease = &take.lease,
                                                    .jobs = &take.jobs,
                                                    .epoch = &take.epoch,
                                                    .before = &take.before });
    if (!words)
        return EXIT_USAGE;
    if (!take.lease || !take.epoch || take.before == UINT64_MAX || !words[0] || words[1])
        return fail(EXIT_USAGE, "usage", "take needs --lease, --epoch, --before and a text");
    take.text = *words;
    return command_take(&take);
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    char **words = argv + (argc > 1 ? 2 : 1);
    if (strcmp(command, "run") == 0)
        return parse_run(words);
    if (strcmp(command, "wait") == 0)
        return parse_watch(words, 0, false);
    if (strcmp(command, "stop") == 0)
        return parse_watch(words, DEFAULT_STOP_NS, true);
    if (strcmp(command, "guard") == 0)
        return parse_guard(words);
    if (strcmp(command, "take") == 0)
        return parse_take(words);
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
                "agent run|wait|stop|guard|take|facts|hash|receive|bench-memory|bench-storage|exec|"
                "version, not '%s'",
                command);
}
