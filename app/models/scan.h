/* All downloaded models: one row for each revision, and for each quantization of a revision with GGUF files. Reads the
 * Hugging Face cache only. Main thread. */
#ifndef QUIRE_APP_MODELS_SCAN_H
#define QUIRE_APP_MODELS_SCAN_H

#include "app/models/cache.h"

#include <stdint.h>
#include <time.h>

struct hub_row {
    char typed[HUB_TYPED_BYTES]; /* what a command takes: ORG/NAME[:QUANT][@REVISION] */
    char name[HUB_NAME_BYTES], quant[HUB_QUANT_BYTES], revision[HUB_REVISION_BYTES], commit[HUB_COMMIT_BYTES];
    bool is_gguf;
    uint64_t bytes; /* of its files; revisions may share them */
    time_t changed; /* of the newest file */
    char missing[200]; /* "" if it is complete, otherwise "without FILE, FILE" */
};

struct hub_rows {
    struct hub_row *items; /* owned; by name, then revision, then quantization */
    size_t n;
};

/* An empty or missing cache has no rows. QUIRE_IO: it cannot be read. */
int hub_scan(struct hub_rows *out, struct quire_error *err);
void hub_rows_free(struct hub_rows *rows);

#endif
