/* Describes and opens a draft model, and checks that its token ids mean the same tokens as the model's.
 *
 * The shapes, the dtypes and even the padding of the vocabulary may differ. The meaning of an id may not. If both
 * directories have a tokenizer.json, their vocabularies and added tokens are compared. An added token that only one
 * of them has is harmless, because no guess of it is ever accepted; so is padding, "[PAD" id "]". If one directory
 * has no tokenizer.json, the sizes of the vocabularies must be equal. Pure except for reading files; any thread.
 */
#ifndef QUIRE_ENGINE_DRAFT_H
#define QUIRE_ENGINE_DRAFT_H

#include "base/status.h"
#include "engine/model/opened.h"

/* The caller closes *out (opened_model_close). QUIRE_INVALID: another tokenizer; else as model_describe() and
 * checkpoint_open() and weights_unused(). */
int model_open_draft(const char *draft_dir, const char *model_dir, const struct model_config *model, bool ignore_unused,
                     struct opened_model *out, struct quire_error *err);

/* The comparison of two parsed tokenizer.json: what the fuzzer calls. */
int model_same_tokens(const char *draft, size_t n_draft, const char *model, size_t n_model, struct quire_error *err);

#endif
