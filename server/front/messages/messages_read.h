/* Reads the parts of a body of Anthropic's /v1/messages into the form of a chat. Private to this folder.
 *
 * All functions return false with an error in e that names the field by its path, such as messages[2].content[0].id.
 * Each appends JSON text to buffers that the caller frees. Any thread on its own body. */
#ifndef QUIRE_FRONT_MESSAGES_READ_H
#define QUIRE_FRONT_MESSAGES_READ_H

#include "base/buffer.h"
#include "server/front/body/json_field.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- cache_control.c ---- */

/* Reads the cache_control of a block, a tool or the body (`owner`), which is at this path; "" is the body.
 * *ttl_s becomes its time in seconds, if that is longer. */
bool messages_cache_control(struct quire_value owner, const char *path, uint32_t *ttl_s, struct api_error *e);

/* ---- messages_turns.c ---- */

/* Appends the messages, without the brackets of the array. *continues: the last one is the assistant's. */
bool messages_turns_add(struct buffer *o, struct quire_value messages, bool *continues, uint32_t *ttl_s,
                        struct api_error *e);

/* ---- messages_tools.c ---- */

/* The tools of a body, in the form of a chat. Both texts are empty without tools, or if tool_choice is "none". */
struct messages_tools {
    struct buffer tools;  /* an array of functions */
    struct buffer choice; /* as tool_choice of a chat */
    bool one_call;        /* at most one call */
    bool forces_calls;
    bool is_eager; /* a tool has eager_input_streaming */
};
bool messages_tools_read(const struct quire_doc *body, struct messages_tools *out, uint32_t *ttl_s,
                         struct api_error *e);
void messages_tools_free(struct messages_tools *t);

/* ---- messages_thinking.c ---- */

struct messages_thinking {
    bool is_set, is_on;
    uint32_t budget; /* tokens; 0: no limit */
};
/* Reads "thinking" without a comparison with max_tokens. */
bool messages_thinking_read(const struct quire_doc *body, struct messages_thinking *out, struct api_error *e);
/* Appends the variables of the chat template to an empty buffer: chat_variables_add(), and those that follow from
 * thinking and from output_config.effort. */
bool messages_variables_add(struct buffer *o, const struct quire_doc *body, const struct messages_thinking *thinking,
                            struct api_error *e);

#endif
