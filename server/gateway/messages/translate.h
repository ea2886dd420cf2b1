/* Anthropic's Messages for upstream servers that speak OpenAI's API only: the body of a request becomes one of
 * /v1/chat/completions; the reply, whole or as a stream, becomes one of Messages.
 *
 * Clients receive the shapes of docs/reference/http-api.md, section 17. A field that chat completions lack is rejected
 * if it would change the answer, and reported if it is left out. Pure: no I/O, no clock. One thread for each request.
 * Output is appended to buffers of the caller, whose `failed` the caller checks.
 */
#ifndef QUIRE_GATEWAY_TRANSLATE_H
#define QUIRE_GATEWAY_TRANSLATE_H

#include "base/buffer.h"
#include "server/front/api/api_error.h"
#include "text/quire_json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the request ---------------------------------------------------------------------------- */

struct translate_facts {
    bool is_stream;
    bool is_eager;         /* a tool has eager_input_streaming: its calls are sent as they come */
    bool drops_thinking;   /* `thinking` is set: chat completions have no such field */
    bool drops_cache_marks; /* cache_control is set: such servers cache prefixes without marks */
};

/* Appends the body for `model`, the upstream's name. Returns false with an error that names the field. The body was
 * opened by quire_doc_open(). */
bool translate_request(struct buffer *o, const struct quire_doc *body, const char *model, struct translate_facts *facts,
                       struct api_error *e);

/* ---- a whole reply -------------------------------------------------------------------------- */

/* Appends the message. model: the name that the client knows. id: of the request, without "msg_". Returns false with a
 * 502 if the reply has no answer. */
bool translate_reply(struct buffer *o, const char *text, size_t n, const char *model, const char *id,
                     struct api_error *e);

/* ---- a stream ------------------------------------------------------------------------------- */

#define TRANSLATE_MAX_CALLS 128
#define TRANSLATE_MAX_HELD_BYTES (4u << 20) /* all incomplete calls together */

struct translate_call;

struct translate_stream {
    const char *model, *id; /* borrowed from the caller until translate_stream_free() */
    bool is_eager;
    bool has_begun;   /* message_start is sent, before the first part of the answer */
    bool has_ended;   /* message_stop is sent */
    int open;         /* the kind of the open block */
    uint32_t n_blocks;
    struct translate_call *calls; /* [n_calls] in the order of their first parts */
    uint32_t n_calls, n_sent, n_tool_blocks;
    size_t n_held;    /* bytes in calls */
    char stop_reason[16];   /* "" until a choice has finished */
    char *stop_sequence;    /* malloc'd: a JSON string; NULL: none */
    uint64_t input, cached_input, output; /* tokens */
};

void translate_stream_begin(struct translate_stream *t, const char *id, const char *model, bool is_eager);
/* Translates one event's data (not [DONE]). Returns false with an error if it is not a chunk, reports an error, or
 * holds too much: the caller sends translate_stream_error() and ends the reply. */
bool translate_stream_event(struct translate_stream *t, const char *data, size_t n, struct buffer *o,
                            struct api_error *e);
/* The upstream's stream has ended. is_done: by [DONE]. cost: a number for usage.cost, or NULL. Appends the last events;
 * returns false if the stream was cut: no [DONE], and no choice had finished. */
bool translate_stream_end(struct translate_stream *t, bool is_done, const char *cost, struct buffer *o,
                          struct api_error *e);
/* The last event of a stream that failed. */
void translate_stream_error(const struct translate_stream *t, const struct api_error *why, struct buffer *o);
void translate_stream_free(struct translate_stream *t);

#endif
