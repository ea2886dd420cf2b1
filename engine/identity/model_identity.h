/* The identity of a model's description: one digest of everything in it that can change a bit of an answer.
 *
 * It is computed from the description in a canonical form, never from the bytes of a file. Two config.json files
 * with the same meaning have the same digest, and RoPE enters as the resulting frequencies. A field that changes no
 * bit (max_position of a decoder, the name of a folder, bos) stays out.
 *
 * A new field of the description must be added here, or to the list of excluded fields in model_identity.c. Pure
 * functions; any thread.
 */
#ifndef QUIRE_ENGINE_MODEL_IDENTITY_H
#define QUIRE_ENGINE_MODEL_IDENTITY_H

#include "base/hash.h"
#include "engine/model/model.h"

/* desc: the whole model (no share, no stage), after weights_stored_dtype() has inspected the checkpoint. */
struct key256 model_identity(const struct model_desc *desc);

#endif
