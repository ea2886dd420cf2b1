/* What checkpoints are known to hold beside a model's weights, told by the names of tensors. Pure; any thread. */
#ifndef QUIRE_ENGINE_EXTRAS_H
#define QUIRE_ENGINE_EXTRAS_H

/* "rotary tables", "vision parts" and the like: static. NULL: no such name is known. */
const char *checkpoint_extra(const char *name);

#endif
