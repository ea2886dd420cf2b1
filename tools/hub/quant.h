/* GGUF files of a repository by how they are quantized: ORG/NAME:Q4_K_M means the one file, or the splits of one, whose name ends
 * in -Q4_K_M.gguf or .Q4_K_M.gguf, in any case. No state; any thread.
 */
#ifndef QUIRE_TOOLS_HUB_QUANT_H
#define QUIRE_TOOLS_HUB_QUANT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* *first: the file, or its first split. QUIRE_NOT_FOUND (none, or several): the error lists what there is. */
int hub_quant_choose(char *const *files, size_t n, const char *quant, const char **first, struct quire_error *err);

/* Is `file` the first one, or another split of it? */
bool hub_quant_belongs(const char *file, const char *first);

/* Splits of the first one's file, 1 where it is whole; and the name of the i-th, from 0: false where it is too long. */
unsigned hub_quant_n_splits(const char *first);
bool hub_quant_split(const char *first, unsigned i, char *out, size_t n_out);

#endif
