/* A model that guesses for another: described, opened, and known to speak of the same tokens by the same numbers.
 *
 * Their shapes, dtypes and even their padding of the vocabulary may differ; what a number means may not. Where both
 * directories have a tokenizer.json their vocabularies and added tokens are compared (an added token that only one has can
 * never be guessed right, and harms nobody; nor can padding, "[PAD" id "]"); where one lacks it, the sizes of the
 * vocabularies must be equal. Pure but for reading files; any thread.
 */
#ifndef QUIRE_ENGINE_DRAFT_H
#define QUIRE_ENGINE_DRAFT_H

#include "base/status.h"
#include "engine/model/model.h"
#include "engine/checkpoint/checkpoint.h"

/* *checkpoint is the caller's (checkpoint_close). QUIRE_INVALID: another tokenizer; else as model_describe() and
 * checkpoint_open() and weights_unused(). */
int model_open_draft(const char *draft_dir, const char *model_dir, const struct model_desc *model, bool ignore_unused,
                     struct model_desc *out, struct checkpoint **checkpoint, struct quire_error *err);

/* The comparison of two parsed tokenizer.json: what the fuzzer calls. */
int model_same_tokens(const char *draft, size_t n_draft, const char *model, size_t n_model, struct quire_error *err);

#endif
