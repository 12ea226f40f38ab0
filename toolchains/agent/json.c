#define _GNU_SOURCE
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

static void append(struct json *json, const char *bytes, size_t length)
{
    if (json->failed)
        return;
    if (json->length + length + 1 > json->capacity) {
        size_t capacity = (json->length + length + 1) * 2;
        char *text = realloc(json->text, capacity);
        if (!text) {
            json->failed = true;
            return;
        }
        json->text = text;
        json->capacity = capacity;
    }
    memcpy(json->text + json->length, bytes, length);
    json->length += length;
    json->text[json->length] = '\0';
}

static void separate(struct json *json)
{
    if (json->comma)
        append(json, ",", 1);
    json->comma = true;
}

void json_open(struct json *json, char bracket)
{
    separate(json);
    append(json, &bracket, 1);
    json->comma = false;
}

void json_close(struct json *json, char bracket)
{
    append(json, &bracket, 1);
    json->comma = true;
}

/* The length of the UTF-8 sequence at `text`, or 0 where there is none (RFC 3629). */
static size_t utf8_length(const unsigned char *text)
{
    if (text[0] < 0x80)
        return 1;
    size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

static void append_quoted(struct json *json, const char *value)
{
    const unsigned char *next = (const unsigned char *)value;
    append(json, "\"", 1);
    while (*next) {
        size_t length = utf8_length(next);
        if (length == 0) {
            append(json, "\\ufffd", 6);
            length = 1;
        } else if (*next < 0x20 || *next == 0x7f) {
            char escape[8];
            snprintf(escape, sizeof escape, "\\u%04x", *next);
            append(json, escape, 6);
        } else {
            if (*next == '"' || *next == '\\')
                append(json, "\\", 1);
            append(json, (const char *)next, length);
        }
        next += length;
    }
    append(json, "\"", 1);
}

void json_key(struct json *json, const char *key)
{
    separate(json);
    append_quoted(json, key);
    append(json, ":", 1);
    json->comma = false;
}

void json_string(struct json *json, const char *value)
{
    if (!value) {
        json_null(json);
        return;
    }
    separate(json);
    append_quoted(json, value);
}

void json_raw(struct json *json, const char *value, size_t length)
{
    separate(json);
    append(json, value, length);
}

void json_int(struct json *json, int64_t value)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)value);
    json_raw(json, digits, (size_t)length);
}

void json_null(struct json *json)
{
    json_raw(json, "null", 4);
}

void json_bool(struct json *json, bool value)
{
    json_raw(json, value ? "true" : "false", value ? 4 : 5);
}

void json_member_string(struct json *json, const char *key, const char *value)
{
    json_key(json, key);
    json_string(json, value);
}

void json_member_int(struct json *json, const char *key, int64_t value)
{
    json_key(json, key);
    json_int(json, value);
}

void json_member_count(struct json *json, const char *key, int64_t value)
{
    json_key(json, key);
    if (value < 0)
        json_null(json);
    else
        json_int(json, value);
}

void json_free(struct json *json)
{
    free(json->text);
    *json = (struct json){ 0 };
}

bool json_print(struct json *json, int fd)
{
    append(json, "\n", 1);
    bool good = !json->failed && write_all(fd, json->text, json->length);
    json_free(json);
    return good;
}

static const char *skip_space(const char *text)
{
    return text + strspn(text, " \t\r\n");
}

/* Past the closing quote of the string that starts here, or NULL. */
static const char *skip_string(const char *text)
{
    for (text++; *text && *text != '"'; text++)
        if (*text == '\\' && text[1])
            text++;
    return *text ? text + 1 : NULL;
}

/* Past the value that starts here, or NULL. */
static const char *skip_value(const char *text)
{
    if (*text == '"')
        return skip_string(text);
    if (*text != '{' && *text != '[') {
        size_t length = strcspn(text, ",]} \t\r\n\"");
        return length ? text + length : NULL;
    }
    int depth = 0;
    while (*text) {
        if (*text == '"') {
            if (!(text = skip_string(text)))
                return NULL;
            continue;
        }
        if (*text == '{' || *text == '[')
            depth++;
        if ((*text == '}' || *text == ']') && --depth == 0)
            return text + 1;
        text++;
    }
    return NULL;
}

const char *json_find(const char *text, const char *key, size_t *length)
{
    text = skip_space(text);
    if (*text++ != '{')
        return NULL;
    for (text = skip_space(text); *text == '"'; text = skip_space(text)) {
        const char *name = text + 1, *end = skip_string(text);
        if (!end)
            return NULL;
        bool found = strlen(key) == (size_t)(end - 1 - name) &&
                     memcmp(name, key, (size_t)(end - 1 - name)) == 0;
        text = skip_space(end);
        if (*text != ':')
            return NULL;
        const char *value = skip_space(text + 1);
        if (!(text = skip_value(value)))
            return NULL;
        if (found) {
            *length = (size_t)(text - value);
            return value;
        }
        text = skip_space(text);
        if (*text != ',')
            return NULL;
        text++;
    }
    return NULL;
}

bool json_find_u64(const char *text, const char *key, uint64_t *value)
{
    char digits[24];
    size_t length;
    const char *raw = json_find(text, key, &length);
    if (!raw || length >= sizeof digits)
        return false;
    memcpy(digits, raw, length);
    digits[length] = '\0';
    return parse_u64(digits, value);
}

bool json_find_text(const char *text, const char *key, char *value, size_t size)
{
    size_t length;
    const char *raw = json_find(text, key, &length);
    if (!raw || *raw != '"' || length - 2 >= size || memchr(raw, '\\', length))
        return false;
    memcpy(value, raw + 1, length - 2);
    value[length - 2] = '\0';
    return true;
}
