/* Lists of files and models in the Hugging Face cache. Owns the lists it returns. Any thread on its own values. */
#ifndef QUIRE_APP_MODELS_SNAPSHOT_H
#define QUIRE_APP_MODELS_SNAPSHOT_H

#include <stddef.h>

struct hub_names {
    char **items; /* owned, in the order of strcmp() */
    size_t n;
};

/* The files of a snapshot whose names do not begin with '.', also in folders below it: "1_Pooling/config.json". */
void hub_snapshot_files(const char *dir, struct hub_names *out);

/* The models of a cache: "ORG/NAME" of each directory HUB/models--ORG--NAME. */
void hub_cache_models(const char *root, struct hub_names *out);

void hub_names_free(struct hub_names *names);

#endif
