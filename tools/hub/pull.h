/* Downloads files of a repository into the Hugging Face cache: resolves each at the hub, downloads parts over several
 * connections, continues an earlier pull, retries failures, and checks lengths and SHA-256.
 *
 * One thread, with curl's multi interface. The caller holds the repository's lock and has created REPO/blobs.
 */
#ifndef QUIRE_TOOLS_HUB_PULL_H
#define QUIRE_TOOLS_HUB_PULL_H

#include "tools/hub/blob.h"
#include "tools/hub/http.h"

struct hub_pull;
struct hub_pull_options {
    const struct hub *hub;
    const struct hub_name *name;
    const struct hub_list *list; /* the files to download */
    const char *repo; /* HUB/models--ORG--NAME */
    uint32_t n_connections;
    hub_note *note; /* called on a retry; may be NULL */
    void (*progress)(void *context, const struct hub_pull *pull); /* about ten times a second; may be NULL */
    void *context;
};
/* Everything in options is borrowed until hub_pull_close(). */
int hub_pull_open(const struct hub_pull_options *options, struct hub_pull **out, struct quire_error *err);
void hub_pull_close(struct hub_pull *pull);

/* First: resolves each file. The sizes are then known. */
int hub_pull_resolve(struct hub_pull *pull, struct quire_error *err);
/* Then downloads the content. On an error the downloaded part is kept. */
int hub_pull_content(struct hub_pull *pull, struct quire_error *err);

/* Of all files: total bytes, present bytes, and bytes received over the network, including discarded ones. */
uint64_t hub_pull_total_bytes(const struct hub_pull *pull);
uint64_t hub_pull_present_bytes(const struct hub_pull *pull);
uint64_t hub_pull_received_bytes(const struct hub_pull *pull);
/* The blob of list->files[i]: a name below REPO/blobs. */
const char *hub_pull_etag(const struct hub_pull *pull, size_t i);
/* Number of files with a SHA-256 to check. */
size_t hub_pull_n_hashed(const struct hub_pull *pull);

#endif
