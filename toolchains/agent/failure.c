#include "failure.h"

#include <stdio.h>
#include <stdlib.h>

#include "json.h"

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
