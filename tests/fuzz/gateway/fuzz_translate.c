/* The gateway's translation. The first byte selects: a body of Messages, a whole reply, or a stream of an upstream server
 * in pieces of that size. A body that is accepted becomes valid JSON; a stream becomes events whose blocks begin and end
 * in turn, and does not depend on the pieces. */
#include "../fuzz.h"

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
