#include "app/batch/first_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* OpenAI's line that was not sent, OpenAI's reply, Anthropic's result. NULL: the line did not fail. */
static const char *message_of(json_t *line)
{
    const char *text = NULL;
    if (json_unpack(line, "{s:{s:s}}", "error", "message", &text) == 0 ||
        json_unpack(line, "{s:{s:{s:{s:s}}}}", "response", "body", "error", "message", &text) == 0 ||
        json_unpack(line, "{s:{s:{s:{s:s}}}}", "result", "error", "error", "message", &text) == 0)
        return text;
    return NULL;
}

void batch_first_error(const char *path, uint64_t max_bytes, char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    uint64_t n_read = 0;
    bool is_found = false;
    text[0] = 0;
    while (file && !is_found && n_read < max_bytes && (n = getline(&line, &capacity, file)) >= 0) {
        n_read += (uint64_t)n;
        if (!strstr(line, "\"error\":{")) /* a quotation mark inside a text has a backslash */
            continue;
        json_t *parsed = json_loads(line, JSON_ALLOW_NUL, NULL);
        const char *message = message_of(parsed);
        is_found = message != NULL;
        if (is_found)
            snprintf(text, size, "%s", message);
        json_decref(parsed);
    }
    free(line);
    if (file)
        fclose(file);
}
