/* The translation of bodies and of replies. The first byte selects: a body of Messages (q), a whole reply to it (w),
 * a body to be joined with others (b), a reply to three joined bodies (j), a reply for POST /complete (c), or a stream of
 * an upstream server in pieces of that size. An accepted input becomes valid JSON. A stream becomes events whose blocks
 * begin and end in turn, and does not depend on the pieces. */
#include "../fuzz.h"

#include "server/gateway/batcher/joined.h"
#include "server/gateway/complete/completion.h"
#include "server/gateway/messages/translate.h"
#include "server/gateway/relay/events.h"

#include <stdlib.h>
#include <string.h>

static void check_json(const char *text, size_t n)
{
    struct quire_doc *doc;
    if (quire_doc_open(text, n, 128, "output", &doc, NULL) != QUIRE_OK)
        abort();
    quire_doc_close(doc);
}

static void try_request(const char *text, size_t n)
{
    struct quire_doc *body;
    struct translate_facts facts;
    struct api_error e;
    struct buffer o = {0};
    if (quire_doc_open(text, n, 64, "body", &body, NULL) != QUIRE_OK)
        return;
    if (translate_request(&o, body, "model", &facts, &e) && !quire_json_is_pythons(o.data, o.n, 128))
        abort();
    quire_doc_close(body);
    buffer_free(&o);
}

static void try_reply(const char *text, size_t n)
{
    struct api_error e;
    struct buffer o = {0};
    if (translate_reply(&o, text, n, "model", "id", &e))
        check_json(o.data, o.n);
    buffer_free(&o);
}

static void try_body(const char *text, size_t n)
{
    for (int kind = JOINED_COMPLETIONS; kind <= JOINED_EMBEDDINGS; kind++) {
        struct joined_body one;
        struct buffer o = {0};
        if (!joined_read((enum joined_kind)kind, text, n, &one))
            continue;
        const struct joined_body twice[] = {one, one};
        joined_write(twice, 2, &o);
        if (!quire_json_is_pythons(o.data, o.n, 200))
            abort();
        buffer_free(&o);
    }
}

static void try_joined(const char *text, size_t n)
{
    const struct joined_body bodies[3] = {{.n_value = 3}, {.n_value = 50}, {.n_value = 7}};
    for (int kind = JOINED_COMPLETIONS; kind <= JOINED_EMBEDDINGS; kind++) {
        struct buffer out[3] = {0};
        const bool ok = joined_split((enum joined_kind)kind, text, n, bodies, 3, out);
        for (int i = 0; i < 3; i++) {
            if (ok)
                check_json(out[i].data, out[i].n);
            else if (out[i].n > 0)
                abort();
            buffer_free(&out[i]);
        }
    }
}

static void try_completion(const char *text, size_t n)
{
    struct completion c;
    struct api_error e;
    struct buffer o = {0};
    char *piece;
    size_t n_piece;
    if (completion_read(&c, text, n, &e)) {
        const struct completion_reply r = {.content = c.content,
                                           .n_content = c.n_content,
                                           .model = "m",
                                           .input = c.input,
                                           .output = c.output,
                                           .cost = c.cost};
        completion_put(&o, &r);
        check_json(o.data, o.n);
    }
    completion_free(&c);
    buffer_free(&o);
    completion_piece(text, n, &piece, &n_piece, &e);
    free(piece);
}

/* ---- streams -------------------------------------------------------------------------------- */

struct run {
    struct translate_stream t;
    struct buffer out;
    bool failed, is_done;
};

static bool on_event(void *context, const char *data, size_t n, const char *name)
{
    struct run *r = context;
    struct events_facts f;
    struct events_usage usage = {0};
    struct api_error e;
    (void)name;
    events_read(data, n, &f, &usage);
    if (f.n_usage > n || f.usage_at > n - f.n_usage || (f.is_error && !f.message[0]) ||
        usage.cached_input > usage.input)
        abort();
    r->is_done = f.is_done;
    r->failed = !r->is_done && !translate_stream_event(&r->t, data, n, &r->out, &e);
    return !r->failed && !r->is_done;
}

static bool begins(const char *at, const char *with)
{
    return strncmp(at, with, strlen(with)) == 0;
}

/* Each event is JSON, and one block is open at a time. */
static void check_events(struct run *r)
{
    const char *at = buffer_text(&r->out);
    int open = 0;
    while (at && *at) {
        const char *data = strstr(at, "\ndata: "), *end = data ? strstr(data + 1, "\n\n") : NULL;
        if (!end || !begins(at, "event: "))
            abort();
        check_json(data + 7, (size_t)(end - data - 7));
        open += begins(at, "event: content_block_start\n") - begins(at, "event: content_block_stop\n");
        if (open < 0 || open > 1 || (begins(at, "event: content_block_delta\n") && open != 1) ||
            (begins(at, "event: message_") && open != 0))
            abort();
        at = end + 2;
    }
}

static struct run stream(const char *bytes, size_t n, size_t step, bool is_eager)
{
    struct run r = {0};
    struct events_splitter s = {0};
    struct api_error e;
    translate_stream_begin(&r.t, "id", "model", is_eager);
    for (size_t at = 0; at < n && !r.failed && !r.is_done; at += step)
        if (events_push(&s, bytes + at, n - at < step ? n - at : step, on_event, &r, NULL) != QUIRE_OK)
            abort();
    if (!r.failed)
        r.failed = !translate_stream_end(&r.t, r.is_done, NULL, &r.out, &e);
    check_events(&r);
    events_free(&s);
    translate_stream_free(&r.t);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data + 1;
    if (n < 2)
        return 0;
    if (data[0] == 'q') {
        try_request(text, n - 1);
    } else if (data[0] == 'w') {
        try_reply(text, n - 1);
    } else if (data[0] == 'b') {
        try_body(text, n - 1);
    } else if (data[0] == 'j') {
        try_joined(text, n - 1);
    } else if (data[0] == 'c') {
        try_completion(text, n - 1);
    } else {
        struct run cut = stream(text, n - 1, data[0] % 16 + 1, data[0] & 16),
                   whole = stream(text, n - 1, n, data[0] & 16);
        if (cut.failed != whole.failed || cut.out.n != whole.out.n ||
            (cut.out.n > 0 && memcmp(cut.out.data, whole.out.data, cut.out.n) != 0))
            abort();
        buffer_free(&cut.out);
        buffer_free(&whole.out);
    }
    return 0;
}
