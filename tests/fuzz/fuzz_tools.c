/* A model's output, searched for tool calls: whole, and in pieces. The result must not depend on the pieces, and no
 * text may be lost.
 *
 * input: {u8: bit 0 the format, the others the size of the pieces} {text}
 */
#include "fuzz.h"

#include "server/front/output/tool_parser.h"

#include <stdlib.h>
#include <string.h>

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* Content and calls, in order: a byte 0 before each call, 1 before its arguments and 2 behind them. */
struct heard {
    struct buffer all;
    size_t n_content, n_calls;
};

static void on_text(void *context, const char *text, size_t n)
{
    struct heard *h = context;
    must(n > 0);
    buffer_append(&h->all, text, n);
    h->n_content += n;
}

static void on_call(void *context, const struct tool_call *call)
{
    struct heard *h = context;
    must(call->n_name > 0);
    must(call->n_arguments > 0 && call->arguments[0] != '"');
    buffer_append(&h->all, "\0", 1);
    buffer_append(&h->all, call->name, call->n_name);
    buffer_append(&h->all, "\1", 1);
    buffer_append(&h->all, call->arguments, call->n_arguments);
    buffer_append(&h->all, "\2", 1);
    h->n_calls++;
}

static struct heard parse(enum tool_format format, const char *text, size_t n, size_t step)
{
    struct tool_parser p = {.format = format};
    struct heard h = {0};
    const struct tool_sink sink = {.text = on_text, .call = on_call, .context = &h};
    for (size_t i = 0; i < n; i += step)
        must(tool_parser_push(&p, text + i, n - i < step ? n - i : step, &sink));
    must(tool_parser_finish(&p, &sink));
    tool_parser_free(&p);
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    enum tool_format format = data[0] & 1 ? TOOL_LLAMA3_JSON : TOOL_HERMES;
    const char *text = (const char *)data + 1;
    size_t n = size - 1;
    struct heard whole = parse(format, text, n, n + 1), pieces = parse(format, text, n, 1 + data[0] / 2);
    must(whole.n_calls == pieces.n_calls && whole.all.n == pieces.all.n);
    must(whole.all.n == 0 || memcmp(whole.all.data, pieces.all.data, whole.all.n) == 0);
    must(whole.n_content <= n);
    if (whole.n_calls == 0)
        must(whole.n_content == n && (n == 0 || memcmp(whole.all.data, text, n) == 0));
    buffer_free(&whole.all);
    buffer_free(&pieces.all);
    return 0;
}
