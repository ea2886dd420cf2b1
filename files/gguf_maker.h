/* The parts of gguf_make_config() share this state: the config.json in progress, and readers of the file's keys. Private
 * to files/gguf_config.c, gguf_family.c and gguf_refuse.c. Pure; any thread.
 */
#ifndef QUIRE_FILES_GGUF_MAKER_H
#define QUIRE_FILES_GGUF_MAKER_H

#include "base/status.h"
#include "files/gguf.h"
#include "files/gguf_family.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define GGUF_KEY_BYTES 160

struct gguf_maker {
    const struct gguf *g;
    const struct gguf_family *family; /* NULL until it is known, and of generation_config.json */
    json_t *json;
    struct quire_error *err;
    int status; /* the first failure; afterwards every call does nothing */
};

/* Adds a field, whose value it owns. */
void maker_set(struct gguf_maker *m, const char *name, json_t *value);
void maker_fail(struct gguf_maker *m, enum quire_status status, const char *key, const char *says);

/* Keys of the architecture, "block_count" for "llama.block_count". maker_has(): whether it is there. */
const char *maker_key(const struct gguf_maker *m, const char *key, char out[GGUF_KEY_BYTES]);
bool maker_has(const struct gguf_maker *m, const char *key);
/* 0: it is absent. `must`: then it is a failure. */
uint64_t maker_integer(struct gguf_maker *m, const char *key, bool must);
double maker_number(struct gguf_maker *m, const char *key, double otherwise);
struct gguf_text maker_text(struct gguf_maker *m, const char *key, const char *otherwise);
bool maker_text_is(struct gguf_text text, const char *what);
bool maker_has_tensor(const struct gguf_maker *m, const char *name);
/* The numbers of a head of q: attention.key_length, or what embedding_length leaves. 0: unknown. */
uint64_t maker_head_dim(struct gguf_maker *m);

#endif
