#include "server/front/tools/answer_parts.h"

#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct answer_part *add(struct answer_parts *parts, enum answer_kind kind)
{
    if ((parts->n & (parts->n + 1)) == 0) { /* full: capacities are 1, 3, 7, ... */
        const size_t capacity = (size_t)parts->n * 2 + 1;
        struct answer_part *items = realloc(parts->items, capacity * sizeof *items);
        if (!items) {
            parts->failed = true;
            return NULL;
        }
        parts->items = items;
    }
    struct answer_part *part = &parts->items[parts->n++];
    *part = (struct answer_part){.kind = kind};
    parts->n_bytes += sizeof *part;
    return part;
}

static void append(struct answer_parts *parts, enum answer_kind kind, const char *text, size_t n)
{
    struct answer_part *last = parts->n > 0 ? &parts->items[parts->n - 1] : NULL;
    if (parts->failed)
        return;
    if (!last || last->kind != kind)
        last = add(parts, kind);
    if (!last)
        return;
    buffer_append(&last->text, text, n);
    parts->n_bytes += n;
    parts->failed |= last->text.failed;
}

static void on_text(void *context, const char *text, size_t n)
{
    append(context, ANSWER_TEXT, text, n);
}

static void on_reasoning(void *context, const char *text, size_t n)
{
    append(context, ANSWER_REASONING, text, n);
}

static void on_arguments(void *context, const char *text, size_t n)
{
    append(context, ANSWER_CALL, text, n);
}

static void on_call(void *context, const struct tool_call *call)
{
    struct answer_parts *parts = context;
    struct answer_part *part = parts->failed ? NULL : add(parts, ANSWER_CALL);
    if (!part)
        return;
    parts->n_calls++;
    part->name = strndup(call->name, call->n_name);
    part->id = call->id ? strndup(call->id, call->n_id) : NULL;
    parts->n_bytes += call->n_name + call->n_id;
    parts->failed |= !part->name || (call->id && !part->id);
}

static void on_end(void *context)
{
    (void)context;
}

struct answer_sink answer_parts_sink(struct answer_parts *parts)
{
    return (struct answer_sink){on_reasoning, {on_text, on_call, on_arguments, on_end, parts}};
}

void answer_parts_free(struct answer_parts *parts)
{
    for (uint32_t i = 0; i < parts->n; i++) {
        buffer_free(&parts->items[i].text);
        free(parts->items[i].name);
        free(parts->items[i].id);
    }
    free(parts->items);
    *parts = (struct answer_parts){0};
}

void tool_call_id(enum tool_format format, const char *prefix, char out[TOOL_CALL_ID_BYTES])
{
    uint64_t random[2];
    quire_random(random, sizeof random);
    if (format == TOOL_MISTRAL)
        snprintf(out, TOOL_CALL_ID_BYTES, "%09" PRIx64, random[0] >> 28);
    else
        snprintf(out, TOOL_CALL_ID_BYTES, "%.6s%016" PRIx64 "%08" PRIx64, prefix, random[0], random[1] & UINT32_MAX);
}
