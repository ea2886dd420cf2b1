/* Recognises tensors that checkpoints hold in addition to a model's weights, by their names. Pure functions; any
 * thread. */
#ifndef QUIRE_ENGINE_EXTRAS_H
#define QUIRE_ENGINE_EXTRAS_H

/* Returns a static description, for example "rotary tables" or "vision parts". Returns NULL if the name is not
 * known. */
const char *checkpoint_extra(const char *name);

#endif
