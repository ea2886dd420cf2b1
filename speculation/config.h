/* What --speculative-config says: vLLM's JSON, the part of it that Quire has. Pure. */
#ifndef QUIRE_SPECULATION_CONFIG_H
#define QUIRE_SPECULATION_CONFIG_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum draft_method {
    DRAFT_NONE, /* only what requests bring: `prediction` */
    DRAFT_NGRAM,
    DRAFT_SUFFIX,
    DRAFT_MODEL,
    DRAFT_N_METHODS
};
/* "none", "ngram", "suffix", "draft_model". */
const char *draft_method_name(enum draft_method method);
/* DRAFT_N_METHODS: there is none of this name. */
enum draft_method draft_method_find(const char *name);

struct speculative_config {
    enum draft_method method;
    uint32_t num_speculative_tokens; /* of one row at most, 1 … DRAFT_MAX; how many there are follows from what they
                                        are worth (length.h) */
    uint32_t prompt_lookup_min, prompt_lookup_max; /* ngram: tokens that must agree */
    char model[1024];                /* draft_model: its directory */
};

/* As without the flag: no method, and predictions of up to so many tokens a row. */
void speculative_config_default(struct speculative_config *config);
/* QUIRE_INVALID names the member; QUIRE_UNSUPPORTED a method that Quire does not have, such as eagle3. */
int speculative_config_parse(const char *json, size_t n_bytes, struct speculative_config *out, struct quire_error *err);

#endif
