/* `agent facts`: the board as this program sees it. One JSON object; null = not offered.
 *
 *     machine, kernel        uname(2)
 *     compiled_for           the instruction set of this agent
 *     boot_id                of the kernel, or the virtual board's LABCTL_SANDBOX
 *     sandbox, emulator      what a virtual board exports; null on a board
 *     cpus                   kinds of cores: count, implementer, part, model, features
 *     cpus_allowed           the numbers of those that a job may have ("0-3,5")
 *     memory_total_bytes, memory_available_bytes, page_size_bytes
 *     temps_mc, temps_untrusted, freq_khz
 *                            as in the telemetry; left out where there are none
 *     lowest_khz, highest_khz  CPU -> what its hardware can; left out where unknown
 *     devfreq                devices such as the memory: governor, governors (available), current_hz,
 *                            min_hz, max_hz, highest_hz
 *     sha256                 what `agent hash` uses: "armv8", "x86" or "portable"
 *     mono_ns, utc_ns        the clocks now
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent.h"
#include "emulate.h"
#include "failure.h"
#include "json.h"
#include "sha256.h"
#include "state.h"
#include "telemetry.h"
#include "util.h"

#define KINDS_MAX 16
#define CPUINFO_BYTES (1 << 20)

#if defined __aarch64__
#define COMPILED_FOR "aarch64"
#elif defined __x86_64__
#define COMPILED_FOR "x86_64"
#else
#error "name this instruction set"
#endif

/* One kind of core. The strings lie in the text of /proc/cpuinfo. */
struct cpu_kind {
    int count;
    const char *implementer, *part, *model, *features;
};

static bool same(const char *one, const char *other)
{
    return one == other || (one && other && strcmp(one, other) == 0);
}

static void add_cpu(struct cpu_kind *kinds, size_t *count, const struct cpu_kind *cpu)
{
    if (!cpu->count)
        return;
    for (size_t i = 0; i < *count; i++) {
        if (same(kinds[i].implementer, cpu->implementer) && same(kinds[i].part, cpu->part) &&
            same(kinds[i].model, cpu->model) && same(kinds[i].features, cpu->features)) {
            kinds[i].count++;
            return;
        }
    }
    if (*count < KINDS_MAX)
        kinds[(*count)++] = *cpu;
}

/* Split "name : value" lines in place; a line "processor : N" starts another core. */
static size_t read_cpus(char *text, struct cpu_kind *kinds)
{
    struct cpu_kind cpu = { 0 };
    size_t count = 0;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) {
        char *value = strchr(line, ':');
        if (!value)
            continue;
        line[strcspn(line, "\t:")] = '\0';
        value += 1 + (value[1] == ' ');
        if (strcmp(line, "processor") == 0) {
            add_cpu(kinds, &count, &cpu);
            cpu = (struct cpu_kind){ .count = 1 };
        } else if (strcmp(line, "CPU implementer") == 0) {
            cpu.implementer = value;
        } else if (strcmp(line, "CPU part") == 0) {
            cpu.part = value;
        } else if (strcmp(line, "model name") == 0) {
            cpu.model = value;
        } else if (strcmp(line, "Features") == 0 || strcmp(line, "flags") == 0) {
            cpu.features = value;
        }
    }
    add_cpu(kinds, &count, &cpu);
    return count;
}

static void write_words(struct json *json, const char *words)
{
    json_open(json, '[');
    while (words && *words) {
        char word[64];
        size_t length = strcspn(words, " ");
        if (length > 0 && length < sizeof word) {
            memcpy(word, words, length);
            word[length] = '\0';
            json_string(json, word);
        }
        words += length + strspn(words + length, " ");
    }
    json_close(json, ']');
}

static void write_cpus(struct json *json)
{
    char *text = malloc(CPUINFO_BYTES); /* not static: the supervisor locks what is */
    struct cpu_kind kinds[KINDS_MAX];
    size_t count = 0;
    if (text && read_small(AT_FDCWD, "/proc/cpuinfo", text, CPUINFO_BYTES) > 0)
        count = read_cpus(text, kinds);
    json_key(json, "cpus");
    json_open(json, '[');
    for (size_t i = 0; i < count; i++) {
        json_open(json, '{');
        json_member_int(json, "count", kinds[i].count);
        json_member_string(json, "implementer", kinds[i].implementer);
        json_member_string(json, "part", kinds[i].part);
        json_member_string(json, "model", kinds[i].model);
        json_key(json, "features");
        write_words(json, kinds[i].features);
        json_close(json, '}');
    }
    json_close(json, ']');
    free(text);
}

int command_facts(void)
{
    static struct sensors sensors;
    struct utsname system;
    struct json json = { 0 };
    char boot_id[BOOT_ID_SIZE], cpu_list[256];
    cpu_set_t cpus;
    if (uname(&system) != 0)
        return fail(EXIT_SYSTEM, "system", "uname: %s", strerror(errno));
    bool known = current_boot_id(boot_id);
    int meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    json_open(&json, '{');
    json_member_int(&json, "schema", 1);
    json_member_string(&json, "agent_version", AGENT_VERSION);
    json_member_string(&json, "machine", system.machine);
    json_member_string(&json, "kernel", system.release);
    json_member_string(&json, "compiled_for", COMPILED_FOR);
    json_member_string(&json, "boot_id", known ? boot_id : NULL);
    json_member_string(&json, "sandbox", getenv("LABCTL_SANDBOX"));
    json_member_string(&json, "emulator", getenv(EMULATOR_VARIABLE));
    write_cpus(&json);
    const bool allowed = sched_getaffinity(0, sizeof cpus, &cpus) == 0;
    if (allowed)
        format_cpus(&cpus, cpu_list, sizeof cpu_list);
    json_member_string(&json, "cpus_allowed", allowed ? cpu_list : NULL);
    const int64_t made_up = fake_number("memory_kb") * 1024;
    json_member_count(&json, "memory_total_bytes",
                      made_up ? made_up : meminfo_bytes(meminfo, "MemTotal"));
    json_member_count(&json, "memory_available_bytes",
                      made_up ? made_up : meminfo_bytes(meminfo, "MemAvailable"));
    json_member_int(&json, "page_size_bytes", sysconf(_SC_PAGESIZE));
    sensors_open_zones(&sensors);
    sensors_write_zones(&sensors, &json);
    sensors_open_cpufreq(&sensors, "scaling_cur_freq");
    sensors_write(&sensors, "freq_khz", &json);
    sensors_open_cpufreq(&sensors, "cpuinfo_min_freq");
    sensors_write(&sensors, "lowest_khz", &json);
    sensors_open_cpufreq(&sensors, "cpuinfo_max_freq");
    sensors_write(&sensors, "highest_khz", &json);
    json_key(&json, "devfreq");
    devfreq_write(&json);
    json_member_string(&json, "sha256", sha256_implementation());
    json_member_int(&json, "mono_ns", monotonic_ns());
    json_member_int(&json, "utc_ns", clock_ns(CLOCK_REALTIME));
    json_close(&json, '}');
    return json_print(&json, STDOUT_FILENO) ? 0 : EXIT_SYSTEM;
}
