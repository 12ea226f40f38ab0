/* As much JSON as the agent needs: a writer, and a reader of members of one flat object. */
#ifndef LABCTL_JSON_H
#define LABCTL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Start with { 0 }. Bytes that are not UTF-8 become U+FFFD. */
struct json {
    char *text; /* NUL-terminated */
    size_t length, capacity;
    bool comma;  /* the next value follows another */
    bool failed; /* no memory: the text must not be used */
};

void json_open(struct json *json, char bracket);  /* '{' or '[' */
void json_close(struct json *json, char bracket); /* '}' or ']' */
void json_key(struct json *json, const char *key);
void json_string(struct json *json, const char *value); /* NULL writes null */
void json_int(struct json *json, int64_t value);
void json_null(struct json *json);
void json_bool(struct json *json, bool value);
void json_raw(struct json *json, const char *value, size_t length); /* already JSON */

/* Members, for short. */
void json_member_string(struct json *json, const char *key, const char *value);
void json_member_int(struct json *json, const char *key, int64_t value);
/* Absent (null) when negative. */
void json_member_count(struct json *json, const char *key, int64_t value);

/* Write the text and a line end to fd, and free it; false with errno set. */
bool json_print(struct json *json, int fd);
void json_free(struct json *json);

/* The raw value of a member of the outermost object: its length in *length, or NULL. */
const char *json_find(const char *text, const char *key, size_t *length);
bool json_find_u64(const char *text, const char *key, uint64_t *value);
/* A string without escapes that fits, NUL added. */
bool json_find_text(const char *text, const char *key, char *value, size_t size);

#endif
