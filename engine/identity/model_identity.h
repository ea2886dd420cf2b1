/* The identity of a model's description: one digest of everything in it that can change a bit of an answer.
 *
 * It is computed from struct model_desc, in a canonical form of what the engine computes with, and never from the bytes of a
 * file: two config.json that mean the same have one digest, and RoPE is in it as the frequencies that result. A field that
 * changes no bit (max_position of a decoder, the name of a folder, bos) stays out.
 *
 * Whoever adds a field to struct model_desc adds it here too, or to the list of those that stay out in model_identity.c.
 * Pure; any thread.
 */
#ifndef QUIRE_ENGINE_MODEL_IDENTITY_H
#define QUIRE_ENGINE_MODEL_IDENTITY_H

#include "base/hash.h"
#include "engine/model/model.h"

/* desc: of the whole model (no share, no stage), after weights_stored_dtype() has looked at the checkpoint. */
struct key256 model_identity(const struct model_desc *desc);

#endif
