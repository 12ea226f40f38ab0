#define _GNU_SOURCE
#include "options.h"

#include <stdbool.h>
#include <string.h>

#include "failure.h"
#include "threads.h"
#include "util.h"

#define MAX_IDLE_NS (3600 * NS_PER_SECOND)
/* About thirty years; it keeps sums of times within an int64_t. */
#define MAX_SECONDS_NS (1000000000LL * NS_PER_SECOND)

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
    else if (known->resident && strcmp(name, "--resident") == 0)
        *known->resident = value;
    else if (known->timeout_ns && strcmp(name, "--timeout") == 0)
        *good = take_seconds(value, known->timeout_ns) && *known->timeout_ns > 0;
    else if (known->wait_ns && strcmp(name, "--seconds") == 0)
        *good = take_seconds(value, known->wait_ns);
    else if (known->jobs && strcmp(name, "--jobs") == 0)
        *known->jobs = value;
    else if (known->before && strcmp(name, "--before") == 0)
        *good = take_number(value, INT64_MAX, known->before);
    else if (known->epoch && strcmp(name, "--epoch") == 0)
        *good = take_number(value, INT64_MAX, known->epoch);
    else if (known->sample_ms && strcmp(name, "--sample-ms") == 0)
        *good = take_number(value, 3600 * 1000, known->sample_ms);
    else if (known->max_output_bytes && strcmp(name, "--max-output-bytes") == 0)
        *good = take_number(value, INT64_MAX, known->max_output_bytes);
    else if (known->chunk_bytes && strcmp(name, "--chunk") == 0)
        *good = take_number(value, INT64_MAX, known->chunk_bytes) && *known->chunk_bytes > 0;
    else if (known->part_bytes && strcmp(name, "--parts") == 0)
        *good = take_number(value, INT64_MAX, known->part_bytes) && *known->part_bytes > 0;
    else if (known->plain_bytes && strcmp(name, "--plain") == 0)
        *good = take_number(value, INT64_MAX, known->plain_bytes) && *known->plain_bytes > 0;
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

char **parse_options(char **words, const struct options *known)
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
