/* Removes models from the Hugging Face cache: links of a snapshot, and the blobs that no other link of the repository
 * names. Never follows a link out of the repository. One thread; the caller holds the repository's lock. */
#ifndef QUIRE_TOOLS_HUB_REMOVE_H
#define QUIRE_TOOLS_HUB_REMOVE_H

#include "app/models/cache.h"

#include <stddef.h>
#include <stdint.h>

struct hub_removal_file {
    char *path, *blob; /* owned; blob: NULL for a file that is not a link into blobs/ */
    bool selected;
};

struct hub_removal {
    char repo[HUB_PATH_BYTES];
    bool is_whole; /* the repository with all its revisions */
    char commit[HUB_COMMIT_BYTES]; /* otherwise: this revision, or one quantization of it */
    struct hub_removal_file *files; /* of all revisions; owned */
    size_t n_files;
    uint64_t bytes; /* that the removal frees */
    size_t n_selected, n_revisions;
};

/* Selects what a name means: ORG/NAME is the whole repository, ORG/NAME@REVISION a revision, ORG/NAME:QUANT one GGUF
 * file with its splits. QUIRE_NOT_FOUND: the cache has none. *out needs hub_removal_free() in any case. */
int hub_removal_plan(const struct hub_name *name, bool has_revision, struct hub_removal *out, struct quire_error *err);
int hub_removal_apply(const struct hub_removal *removal, struct quire_error *err);
void hub_removal_free(struct hub_removal *removal);

#endif
