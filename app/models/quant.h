/* GGUF files of a repository by quantization: ORG/NAME:Q4_K_M selects the file, or the splits of one, whose name ends
 * in -Q4_K_M.gguf or .Q4_K_M.gguf, in any case. No state; any thread. */
#ifndef QUIRE_APP_MODELS_QUANT_H
#define QUIRE_APP_MODELS_QUANT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* *first: the file, or its first split. QUIRE_NOT_FOUND (no match, or several): the error lists the files. */
int hub_quant_choose(char *const *files, size_t n, const char *quant, const char **first, struct quire_error *err);

/* *first: the only GGUF file of a model, or its first split. QUIRE_NOT_FOUND: none. QUIRE_INVALID: several; the error
 * lists their quantizations. */
int hub_quant_only(char *const *files, size_t n, const char **first, struct quire_error *err);

/* The quantization in a file's name: "Q4_K_M" of "model-Q4_K_M-00001-of-00002.gguf", the whole name if it has no '-' or
 * '.'. Returns false, with "" in out, if it is not a model's GGUF file or the text is too long. */
bool hub_quant_of_file(const char *file, char *out, size_t n_out);

/* The shortest end of first's name that selects this file among files[n], at most n_out - 1 bytes. Returns false if
 * there is none. */
bool hub_quant_label(char *const *files, size_t n, const char *first, char *out, size_t n_out);

/* Returns whether `file` is a GGUF file of a model, and the first one of its splits. */
bool hub_quant_is_first(const char *file);

/* Returns whether `file` is the first one, or another split of it. */
bool hub_quant_belongs(const char *file, const char *first);

/* Number of splits, 1 for a single file; and the name of the i-th, from 0: false if it is too long. */
unsigned hub_quant_n_splits(const char *first);
bool hub_quant_split(const char *first, unsigned i, char *out, size_t n_out);

#endif
