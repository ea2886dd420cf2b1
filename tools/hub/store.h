/* What is written into the Hugging Face cache besides blobs, as huggingface_hub writes it: links, refs and directories;
 * and what is asked before: the lock and the space. REPO is HUB/models--ORG--NAME. One thread.
 */
#ifndef QUIRE_TOOLS_HUB_STORE_H
#define QUIRE_TOOLS_HUB_STORE_H

#include "base/status.h"

#include <stdint.h>

/* Makes REPO/blobs and the like, and takes HUB/.locks/models--ORG--NAME/quire.lock, so that two pulls of one model take
 * turns. When another has it: on_wait(context), then it waits. *fd: closing it gives the lock back. */
int hub_store_lock(const char *repo, void (*on_wait)(void *context), void *context, int *fd, struct quire_error *err);

/* Are that many bytes free? Says how many are when not. */
int hub_store_check_space(const char *repo, uint64_t n_bytes, struct quire_error *err);

/* REPO/snapshots/COMMIT/FILE -> ../../blobs/ETAG, at once. */
int hub_store_link(const char *repo, const char *commit, const char *file, const char *etag, struct quire_error *err);
/* REPO/refs/REVISION: COMMIT, at once. Nothing for a revision that is the commit. */
int hub_store_ref(const char *repo, const char *revision, const char *commit, struct quire_error *err);

#endif
