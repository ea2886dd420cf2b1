/* The greeting of an engine: what a front end says in HELLO, and whether the engine's HELLO fits it: version, shared key,
 * identities, numerics. It exists until the engine is welcome, and then takes the key with it. Private to server/link.
 * Loop's thread. */
#ifndef QUIRE_LINK_ENGINE_GREETING_H
#define QUIRE_LINK_ENGINE_GREETING_H

#include "base/hash.h"
#include "base/status.h"
#include "server/wire/records.h"

struct engine_greeting;

/* As in engine_client_open(). QUIRE_NO_MEMORY, QUIRE_INTERNAL, or an error of the key file. */
int engine_greeting_new(const struct wire_hello *ours, const char *key_file, struct engine_greeting **out,
                        struct quire_error *err);
void engine_greeting_free(struct engine_greeting *g); /* NULL is allowed */
/* The first credit of the engine, in bytes. */
uint64_t engine_greeting_credit(const struct engine_greeting *g);

/* Reads the engine's first HELLO and fills in our answer, whose pointers are valid as long as g. QUIRE_INVALID says why
 * they cannot talk. */
int engine_greeting_answer(struct engine_greeting *g, const struct wire_hello *theirs, struct wire_hello *out,
                           struct quire_error *err);
/* Checks the engine's second HELLO. QUIRE_INVALID says why it is not welcome. */
int engine_greeting_check(const struct engine_greeting *g, const struct wire_hello *theirs, struct quire_error *err);

#endif
