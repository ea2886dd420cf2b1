/* The identity of a model directory, which a front end and an engine compare. Reads files; any thread. */
#ifndef QUIRE_APP_SERVING_IDENTITY_H
#define QUIRE_APP_SERVING_IDENTITY_H

#include "base/hash.h"
#include "base/status.h"

/* Compared in HELLO between a front end and an engine: quire_text_identity(), and the SHA-256 of config.json and of
 * generation_config.json (of nothing if the file does not exist). */
struct serving_identity {
    struct key256 text, config, generation;
    char numerics[24]; /* "law=2\n": K_NUMERICS_VERSION, the beginning of an engine's arithmetic identity */
};
int serving_identity_read(const char *model_dir, struct serving_identity *out, struct quire_error *err);

#endif
