/* The calls of an assistant's turn that still need a result, while a body's messages are read. Any thread. */
#ifndef QUIRE_FRONT_OPEN_CALLS_H
#define QUIRE_FRONT_OPEN_CALLS_H

#include "server/front/api/api_error.h"
#include "text/quire_json.h"

#include <stdbool.h>
#include <stddef.h>

/* Calls of one turn. Each result is compared with them. */
#define OPEN_CALLS_MAX 1024
/* Bytes of an id as the body has it. The server writes shorter ones. */
#define OPEN_CALLS_MAX_ID 8192

struct open_call {
    struct quire_value id; /* a string of the body; absent: chats may leave it out, and any result answers the call */
    size_t message, part;  /* where it stands in the body */
    bool is_answered;
};
struct open_calls { /* zero at first */
    struct open_call *calls; /* of the turn */
    size_t n, first_open; /* all before first_open are answered */
};
void open_calls_free(struct open_calls *o);
/* A new turn. */
void open_calls_clear(struct open_calls *o);
/* Returns false with an error in e that names path, also if the turn has this id already. */
bool open_calls_add(struct open_calls *o, struct quire_value id, size_t message, size_t part, const char *path,
                    struct api_error *e);
/* A result for this id; absent: for the first call. Returns false if no call waits for it. */
bool open_calls_answer(struct open_calls *o, struct quire_value id);
/* The first call without a result; NULL: all have one. */
const struct open_call *open_calls_first(const struct open_calls *o);

#endif
