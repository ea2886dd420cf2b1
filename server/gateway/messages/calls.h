/* The tool calls of a stream: their parts are collected until a call is complete. Private to this folder. */
#ifndef QUIRE_GATEWAY_MESSAGES_CALLS_H
#define QUIRE_GATEWAY_MESSAGES_CALLS_H

#include "server/gateway/messages/translate.h"

struct translate_call {
    uint64_t index;       /* as the server numbers them; UINT64_MAX: it does not */
    struct buffer id, name, arguments; /* arguments: those that are not sent yet */
    uint32_t depth;       /* open braces and brackets of the arguments */
    bool is_object;       /* they begin with a brace */
    bool in_string, after_backslash;
    bool has_begun;       /* a character that is not blank was read */
    bool is_complete;     /* the object is closed */
    bool is_open;         /* sent as it comes: its block has begun */
};

/* Adds an item of delta.tool_calls. Returns false with an error if it holds too much, or continues a call that was
 * sent. */
bool calls_add(struct translate_stream *t, struct quire_value item, struct api_error *e);
/* Takes a call that was sent out of what is held. */
void calls_sent(struct translate_stream *t, struct translate_call *call);
void calls_free(struct translate_stream *t);

#endif
