#include "server/link/engine_greeting.h"

#include "server/wire/frame.h"
#include "server/wire/key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_CREDIT ((uint64_t)1 << 20)

struct engine_greeting {
    struct wire_hello ours;
    char model[WIRE_MAX_TEXT];
    char numerics[24]; /* the line with which the engine's arithmetic must begin; empty: any */
    bool has_key;
    struct key256 key, proof;
    uint8_t engine_nonce[WIRE_NONCE_BYTES], our_nonce[WIRE_NONCE_BYTES];
};

static void copy_ours(struct engine_greeting *g, const struct wire_hello *ours)
{
    size_t n_model = ours->n_model < sizeof g->model ? ours->n_model : sizeof g->model;
    if (n_model)
        memcpy(g->model, ours->model, n_model);
    snprintf(g->numerics, sizeof g->numerics, "%.*s", (int)ours->n_arithmetic,
             ours->n_arithmetic ? ours->arithmetic : "");
    g->ours = (struct wire_hello){
        .version = WIRE_VERSION,
        .identity_text = ours->identity_text,
        .identity_config = ours->identity_config,
        .identity_generation = ours->identity_generation,
        .model = g->model,
        .n_model = n_model,
        .initial_credit = ours->initial_credit ? ours->initial_credit : DEFAULT_CREDIT,
    };
    if (g->ours.initial_credit < WIRE_MIN_CREDIT)
        g->ours.initial_credit = WIRE_MIN_CREDIT;
}

int engine_greeting_new(const struct wire_hello *ours, const char *key_file, struct engine_greeting **out,
                        struct quire_error *err)
{
    struct engine_greeting *g = *out = calloc(1, sizeof *g);
    if (!g)
        return quire_fail(err, QUIRE_NO_MEMORY, "engine client: out of memory");
    copy_ours(g, ours);
    g->has_key = key_file != NULL;
    int status = QUIRE_OK;
    if (quire_hash_init())
        status = quire_fail(err, QUIRE_INTERNAL, "engine client: no random numbers");
    else if (key_file)
        status = wire_key_read(key_file, &g->key, err);
    if (status == QUIRE_OK)
        return QUIRE_OK;
    engine_greeting_free(g);
    *out = NULL;
    return status;
}

void engine_greeting_free(struct engine_greeting *g)
{
    free(g);
}

uint64_t engine_greeting_credit(const struct engine_greeting *g)
{
    return g->ours.initial_credit;
}

int engine_greeting_answer(struct engine_greeting *g, const struct wire_hello *theirs, struct wire_hello *out,
                           struct quire_error *err)
{
    if (theirs->version != WIRE_VERSION)
        return quire_fail(err, QUIRE_INVALID, "HELLO: version: the engine speaks %u, this front end %u",
                          theirs->version, WIRE_VERSION);
    if (theirs->n_nonce && !g->has_key)
        return quire_fail(err, QUIRE_INVALID,
                          "HELLO: nonce: the engine asks for its shared key, and no key file was given");
    if (!theirs->n_nonce && g->has_key)
        return quire_fail(err, QUIRE_INVALID,
                          "HELLO: nonce: the engine asks for no key, although a key file was given");
    *out = g->ours;
    if (!g->has_key)
        return QUIRE_OK;
    memcpy(g->engine_nonce, theirs->nonce, sizeof g->engine_nonce);
    quire_random(g->our_nonce, sizeof g->our_nonce);
    g->proof = wire_key_proof(&g->key, WIRE_KEY_FRONT, g->engine_nonce, g->our_nonce);
    out->nonce = g->our_nonce;
    out->n_nonce = sizeof g->our_nonce;
    out->key_proof = g->proof.bytes;
    out->n_key_proof = sizeof g->proof.bytes;
    return QUIRE_OK;
}

/* Answers of another numerics version have other bits: answers that were cached, recorded or expected from ours do not
 * match them. An engine that sends no version is older than this check, and so has another version. */
static int check_numerics(const struct engine_greeting *g, const struct wire_hello *theirs, struct quire_error *err)
{
    const size_t n = strlen(g->numerics);
    if (n == 0 || (theirs->n_arithmetic >= n && memcmp(theirs->arithmetic, g->numerics, n) == 0))
        return QUIRE_OK;
    const char *tells = theirs->n_arithmetic ? theirs->arithmetic : "an older law";
    const size_t n_tells = theirs->n_arithmetic ? theirs->n_arithmetic : strlen(tells);
    const char *end = memchr(tells, '\n', n_tells);
    const size_t n_line = end ? (size_t)(end - tells) : n_tells;
    return quire_fail(
        err, QUIRE_INVALID,
        "HELLO: arithmetic: the engine computes by %.*s of docs/internals/numerics.md, this front end knows %.*s: start both from "
        "one release",
        n_line < sizeof g->numerics ? (int)n_line : (int)sizeof g->numerics, tells, (int)n - 1, g->numerics);
}

static bool differs(const struct key256 *a, const struct key256 *b)
{
    return memcmp(a, b, sizeof *a) != 0;
}

/* Returns whether it is not zero. An older release sends zero. */
static bool is_told(const struct key256 *identity)
{
    static const struct key256 none;
    return differs(identity, &none);
}

int engine_greeting_check(const struct engine_greeting *g, const struct wire_hello *theirs, struct quire_error *err)
{
    if (g->has_key) {
        const struct key256 proof = wire_key_proof(&g->key, WIRE_KEY_ENGINE, g->engine_nonce, g->our_nonce);
        if (theirs->n_key_proof == 0 || !quire_secret_equal(proof.bytes, theirs->key_proof, sizeof proof.bytes))
            return quire_fail(err, QUIRE_INVALID, "HELLO: key_proof: the engine does not know the key");
    }
    if (differs(&theirs->identity_text, &g->ours.identity_text))
        return quire_fail(err, QUIRE_INVALID,
                          "HELLO: identity_text: tokenizer or chat template differ from the engine's");
    if (differs(&theirs->identity_config, &g->ours.identity_config))
        return quire_fail(err, QUIRE_INVALID, "HELLO: identity_config: config.json differs from the engine's");
    if (is_told(&theirs->identity_generation) && is_told(&g->ours.identity_generation) &&
        differs(&theirs->identity_generation, &g->ours.identity_generation))
        return quire_fail(err, QUIRE_INVALID,
                          "HELLO: identity_generation: generation_config.json differs from the engine's");
    return check_numerics(g, theirs, err);
}
