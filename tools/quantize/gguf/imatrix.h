/* llama.cpp's importance matrix: for each matrix the mean square of each of its inputs. Reads the GGUF form (tensors
 * NAME.in_sum2 and NAME.counts) and the older binary form. Owns the numbers. One thread opens; any thread may read. */
#ifndef QUIRE_TOOLS_QUANTIZE_GGUF_IMATRIX_H
#define QUIRE_TOOLS_QUANTIZE_GGUF_IMATRIX_H

#include "base/hash.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct imatrix;

/* The file is hostile until checked. QUIRE_INVALID names the entry. */
int imatrix_open(const char *path, struct imatrix **out, struct quire_error *err);
/* The same of a file's bytes: what the fuzzer calls. */
int imatrix_read(const void *data, size_t n_bytes, struct imatrix **out, struct quire_error *err);
void imatrix_close(struct imatrix *m); /* NULL is fine */

/* Sets *out to [n_matrices, n_cols] importances of a tensor by GGUF's name, or to NULL if the file has none for it.
 * QUIRE_INVALID: the file's entry has another size. */
int imatrix_find(const struct imatrix *m, const char *tensor, uint64_t n_matrices, uint64_t n_cols, const float **out,
                 struct quire_error *err);
/* A hash of all entries. */
struct key256 imatrix_hash(const struct imatrix *m);

#endif
