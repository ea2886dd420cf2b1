/* Vectors of texts, from a running server or from a model opened here. One thread. */
#ifndef QUIRE_TOOLS_EMBEDDER_H
#define QUIRE_TOOLS_EMBEDDER_H

#include "app/warm/client.h"

#include <stddef.h>

struct embedder;

/* client: borrowed; uses its /v1/embeddings. */
int embedder_of_server(struct cache_client *client, struct embedder **out, struct quire_error *err);
/* Opens the embedding model in a directory. ignore_unused: weights that the model does not use are not an error. */
int embedder_of_model(const char *model_dir, bool ignore_unused, struct embedder **out, struct quire_error *err);
void embedder_close(struct embedder *e); /* NULL is allowed */

#define EMBEDDER_MAX_TEXTS 128
/* n texts, at most EMBEDDER_MAX_TEXTS, none of them empty. The caller frees *vectors, [n][*size]; every call returns
 * the same size. */
int embedder_run(struct embedder *e, const char *const *texts, size_t n, float **vectors, size_t *size,
                 struct quire_error *err);

#endif
