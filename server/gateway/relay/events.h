/* Server-sent events of an upstream server's stream: splits the bytes into events, and reads from an event what the
 * gateway needs of it.
 *
 * Lines end in LF, CR or CR LF and may be split anywhere. Comments and fields other than `data` and `event` are
 * dropped, several data lines are joined by LF, and an event without its final empty line is dropped, as the HTML
 * standard says. An event that arrives in one piece is not copied. The bytes are hostile: an event is at most
 * EVENTS_MAX_BYTES. One thread for each splitter.
 */
#ifndef QUIRE_GATEWAY_EVENTS_H
#define QUIRE_GATEWAY_EVENTS_H

#include "base/buffer.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EVENTS_MAX_BYTES (4u << 20)
#define EVENTS_NAME_BYTES 64

struct events_splitter { /* zeroed: at the beginning of a stream */
    struct buffer line;  /* the incomplete line */
    struct buffer data;  /* the event so far, unless `piece` has it */
    const char *piece;   /* its only data line, in the bytes of the current call */
    size_t n_piece;
    char name[EVENTS_NAME_BYTES]; /* the name of the event so far, cut to fit; "" without one */
    bool has_data;
    bool after_cr;   /* a following LF belongs to the last line end */
    bool past_first; /* a byte order mark is allowed only at the beginning */
};

/* data: n bytes, not NUL-terminated, borrowed until the call returns. name: of the `event:` field, or "". Returns
 * false to stop: events_push() then returns at once and does not touch the splitter any more, which may be freed. */
typedef bool (*events_on_event)(void *context, const char *data, size_t n, const char *name);

/* QUIRE_INVALID for an event that is too large, QUIRE_NO_MEMORY; then only events_free() may be called. QUIRE_OK also
 * if on_event stopped it. */
int events_push(struct events_splitter *s, const char *bytes, size_t n, events_on_event on_event, void *context,
                struct quire_error *err);
void events_free(struct events_splitter *s);
/* Appends an event as it is sent: one `data:` line for each line of data, and an empty line. name "": no `event:`
 * line. */
void events_put(struct buffer *o, const char *name, const char *data, size_t n);

/* ---- reading an event ------------------------------------------------------------------------- */

/* Tokens of a request. Messages report them at the start and at the end of a stream. Each report replaces only the
 * counts that it has. */
struct events_usage { /* zeroed at the beginning */
    bool is_set; /* a count was reported */
    uint64_t input, cached_input, output; /* input includes cached_input */
};

struct events_facts {
    bool is_done; /* the text [DONE] */
    bool is_json; /* an object; everything below is false without it */
    bool is_error; /* an error object, in any of the APIs */
    bool has_token; /* a part of the answer: text, reasoning, a tool call */
    bool has_finish; /* a choice's finish_reason is set; in other APIs: the answer is complete */
    bool is_usage_only; /* usage with an empty list of choices: what stream_options.include_usage adds */
    bool has_usage;
    /* Where the usage object lies in data, and the value of its `cost`, which some servers send. The lengths are 0 if
     * there is no such value, or it cannot be located. */
    size_t usage_at, n_usage, cost_at, n_cost;
    char code[64]; /* the code of an error, else its type, else "" */
    char message[256]; /* the message of an error, cut to fit; never "" for an error */
};

/* Reads an event of chat, completions, Responses or Messages, or a whole reply of any of these or of embeddings. usage
 * is updated; NULL if it is not needed. */
void events_read(const char *data, size_t n, struct events_facts *out, struct events_usage *usage);

#endif
