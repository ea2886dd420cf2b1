/* A model's output, parsed for reasoning and tool calls in each format: whole, and in pieces. The result must not
 * depend on the pieces, and no text may be lost.
 *
 * input: {u8: the format of calls} {u8: bits 0 to 2 the format of reasoning, the others the size of the pieces} {text}
 */
#include "fuzz.h"

#include "server/front/tools/answer_parser.h"

#include <stdlib.h>
#include <string.h>

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* All in order: a byte 0 before each call, 1 before its arguments and 2 behind them; 3 before reasoning and 4 before
 * text, where another kind came before. */
struct heard {
    struct buffer all;
    char last;
    size_t n_text, n_calls, n_malformed;
    bool in_call;
};

static void mark(struct heard *h, char kind)
{
    if (h->last != kind)
        buffer_append(&h->all, &kind, 1);
    h->last = kind;
}

static void on_text(void *context, const char *text, size_t n)
{
    struct heard *h = context;
    must(n > 0 && !h->in_call);
    mark(h, 4);
    buffer_append(&h->all, text, n);
    h->n_text += n;
}

static void on_reasoning(void *context, const char *text, size_t n)
{
    struct heard *h = context;
    must(n > 0 && !h->in_call);
    mark(h, 3);
    buffer_append(&h->all, text, n);
    h->n_text += n;
}

static void on_begin(void *context, const struct tool_call *call)
{
    struct heard *h = context;
    must(call->n_name > 0 && call->index == h->n_calls && !h->in_call);
    h->in_call = true;
    h->n_calls++;
    h->last = 0;
    buffer_append(&h->all, "\0", 1);
    buffer_append(&h->all, call->name, call->n_name);
    buffer_append(&h->all, "\1", 1);
}

static void on_arguments(void *context, const char *text, size_t n)
{
    struct heard *h = context;
    must(n > 0 && h->in_call);
    buffer_append(&h->all, text, n);
}

static void on_end(void *context)
{
    struct heard *h = context;
    must(h->in_call);
    h->in_call = false;
    buffer_append(&h->all, "\2", 1);
}

static struct heard parse(const uint8_t how[2], const char *text, size_t n, size_t step)
{
    static const char tools[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"properties\":"
        "{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"any\":{}}}}}]";
    struct answer_parser p = {.reasoning.format = (enum reasoning_format)((how[1] & 7) % N_REASONING_FORMATS),
                              .tools.format = (enum tool_format)(how[0] % N_TOOL_FORMATS),
                              .tools.tools = {tools, sizeof tools - 1}};
    struct heard h = {.last = 9};
    const struct answer_sink sink = {on_reasoning, {on_text, on_begin, on_arguments, on_end, &h}};
    for (size_t i = 0, end; i < n; i = end) {
        end = n - i < step ? n : i + step;
        while (end < n && ((unsigned char)text[end] & 0xc0) == 0x80) /* pieces are whole characters */
            end++;
        must(answer_parser_push(&p, text + i, end - i, &sink));
    }
    must(answer_parser_finish(&p, &sink));
    must(!h.in_call && p.n_calls == h.n_calls);
    h.n_malformed = p.tools.n_malformed;
    answer_parser_free(&p);
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const char *text = (const char *)data + 2;
    size_t n = size - 2;
    struct heard whole = parse(data, text, n, n + 1), pieces = parse(data, text, n, 1 + data[1] / 8);
    must(whole.n_calls == pieces.n_calls && whole.n_malformed == pieces.n_malformed);
    must(whole.all.n == pieces.all.n);
    must(whole.all.n == 0 || memcmp(whole.all.data, pieces.all.data, whole.all.n) == 0);
    must(whole.n_text <= n);
    if (whole.n_calls == 0 && (data[1] & 7) % N_REASONING_FORMATS == REASONING_NONE)
        must(whole.n_text == n && (n == 0 || memcmp(whole.all.data + 1, text, n) == 0));
    buffer_free(&whole.all);
    buffer_free(&pieces.all);
    return 0;
}
