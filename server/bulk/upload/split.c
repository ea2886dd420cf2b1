#include "server/bulk/upload/split.h"

#include <stdlib.h>
#include <string.h>

#define MAX_KEY 64
#define MAX_DEPTH 100
#define REQUESTS "requests"

struct bulk_split {
    bool in_string, escaped, is_over;
    bool expects_key; /* at depth 1: the next string is a key */
    bool in_requests; /* the value of "requests" is being read */
    bool has_requests;
    unsigned depth;
    char open[MAX_DEPTH]; /* the brackets that are open */
    char key[MAX_KEY];    /* a member's name in the outermost object; longer names are cut */
    size_t n_key, n_lines;
    bool in_line;
};

int bulk_split_open(struct bulk_split **out, struct quire_error *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

void bulk_split_close(struct bulk_split *s)
{
    free(s);
}

static int invalid(struct quire_error *err, const char *why)
{
    return quire_fail(err, QUIRE_INVALID, "the body is not a JSON object {\"requests\": [{...}, ...]}: %s", why);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void put(struct bulk_split *s, char c, struct buffer *out)
{
    /* A line has no line break inside: between values it is white space, and in a string it is not JSON anyway. */
    const char as = c == '\n' || c == '\r' ? ' ' : c;
    s->in_line = true;
    buffer_append(out, &as, 1);
}

static int begin_value(struct bulk_split *s, char c, struct quire_error *err)
{
    if (s->is_over || (s->depth == 0 && c != '{'))
        return invalid(err, s->is_over ? "something follows its end" : "it does not begin with {");
    if (s->depth == 1 && s->n_key == strlen(REQUESTS) && memcmp(s->key, REQUESTS, s->n_key) == 0) {
        if (c != '[' || s->has_requests)
            return invalid(err, s->has_requests ? "\"requests\" is there twice" : "\"requests\" is not an array");
        s->in_requests = s->has_requests = true;
    }
    if (s->depth == 2 && s->in_requests && c != '{')
        return invalid(err, "an item of \"requests\" is not an object");
    return QUIRE_OK;
}

static int open_bracket(struct bulk_split *s, char c, struct buffer *out, struct quire_error *err)
{
    int status = begin_value(s, c, err);
    if (status != QUIRE_OK)
        return status;
    if (s->depth == MAX_DEPTH)
        return invalid(err, "it is nested too deep");
    if (s->in_requests && s->depth >= 2)
        put(s, c, out);
    s->open[s->depth++] = c;
    s->expects_key = s->depth == 1;
    return QUIRE_OK;
}

static int close_bracket(struct bulk_split *s, char c, struct buffer *out, struct quire_error *err)
{
    if (s->depth == 0 || s->open[s->depth - 1] != (c == '}' ? '{' : '['))
        return invalid(err, "brackets do not match");
    s->depth--;
    if (s->in_requests && s->depth >= 2)
        put(s, c, out);
    if (s->in_requests && s->depth == 2) {
        buffer_append(out, "\n", 1);
        s->n_lines++;
        s->in_line = false;
    }
    if (s->depth == 1)
        s->in_requests = false;
    s->is_over = s->depth == 0;
    return QUIRE_OK;
}

/* A character within a string. */
static void take_text(struct bulk_split *s, char c, struct buffer *out)
{
    if (s->in_requests && s->depth > 2)
        put(s, c, out);
    if (!s->escaped && c == '"') {
        s->in_string = false;
        return;
    }
    if (s->depth == 1 && s->expects_key && s->n_key < MAX_KEY)
        s->key[s->n_key++] = c;
    s->escaped = !s->escaped && c == '\\';
}

static int take(struct bulk_split *s, char c, struct buffer *out, struct quire_error *err)
{
    if (s->in_string) {
        take_text(s, c, out);
        return QUIRE_OK;
    }
    if (c == '{' || c == '[')
        return open_bracket(s, c, out, err);
    if (c == '}' || c == ']')
        return close_bracket(s, c, out, err);
    if (is_blank(c) && !s->in_line)
        return QUIRE_OK;
    if (s->depth == 1 && (c == ':' || c == ',')) {
        s->expects_key = c == ',';
        return QUIRE_OK;
    }
    if (s->depth == 2 && s->in_requests && c == ',')
        return QUIRE_OK;
    if (s->depth != 1 || !s->expects_key) { /* a value that is no object or array */
        int status = s->depth <= 2 ? begin_value(s, c, err) : (int)QUIRE_OK;
        if (status != QUIRE_OK)
            return status;
    }
    if (c == '"') {
        s->in_string = true;
        if (s->depth == 1 && s->expects_key)
            s->n_key = 0;
    }
    if (s->in_requests && s->depth > 2)
        put(s, c, out);
    return QUIRE_OK;
}

int bulk_split_feed(struct bulk_split *s, const char *bytes, size_t n, struct buffer *out, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (size_t i = 0; i < n && status == QUIRE_OK; i++)
        status = take(s, bytes[i], out, err);
    return status == QUIRE_OK && out->failed ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory") : status;
}

int bulk_split_end(const struct bulk_split *s, struct quire_error *err)
{
    if (!s->is_over)
        return invalid(err, "it does not end");
    if (!s->has_requests || s->n_lines == 0)
        return quire_fail(err, QUIRE_INVALID, "requests: must be an array of at least one request");
    return QUIRE_OK;
}
