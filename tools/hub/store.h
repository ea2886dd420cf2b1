/* Writes links, refs and directories into the Hugging Face cache in the layout of huggingface_hub, and checks the lock
 * and free space. REPO is HUB/models--ORG--NAME. One thread. */
#ifndef QUIRE_TOOLS_HUB_STORE_H
#define QUIRE_TOOLS_HUB_STORE_H

#include "base/status.h"

#include <stdint.h>

/* Creates REPO/blobs and related directories, and takes HUB/.locks/models--ORG--NAME/quire.lock, so that two pulls of
 * one model run in turn. If another process holds it, calls on_wait(context) and waits. Closing *fd releases the lock.
 */
int hub_store_lock(const char *repo, void (*on_wait)(void *context), void *context, int *fd, struct quire_error *err);

/* Checks that this many bytes are free; the error names the free space. */
int hub_store_check_space(const char *repo, uint64_t n_bytes, struct quire_error *err);

/* REPO/snapshots/COMMIT/FILE -> ../../blobs/ETAG, atomically. */
int hub_store_link(const char *repo, const char *commit, const char *file, const char *etag, struct quire_error *err);
/* REPO/refs/REVISION: COMMIT, atomically. Does nothing if the revision is the commit. */
int hub_store_ref(const char *repo, const char *revision, const char *commit, struct quire_error *err);

#endif
