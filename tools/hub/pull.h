/* Brings files of a repository into the Hugging Face cache: asks the hub what each is, gathers them in pieces over several
 * connections, continues what an earlier pull left, tries again what fails, and checks lengths and SHA-256.
 *
 * One thread, by curl's multi interface. The caller has the repository's lock and has made REPO/blobs.
 */
#ifndef QUIRE_TOOLS_HUB_PULL_H
#define QUIRE_TOOLS_HUB_PULL_H

#include "tools/hub/blob.h"
#include "tools/hub/http.h"

struct hub_pull;
struct hub_pull_options {
    const struct hub *hub;
    const struct hub_name *name;
    const struct hub_list *list; /* what to bring */
    const char *repo; /* HUB/models--ORG--NAME */
    uint32_t n_connections;
    hub_note *note; /* something is tried again; may be NULL */
    void (*progress)(void *context, const struct hub_pull *pull); /* some ten times a second; may be NULL */
    void *context;
};
/* Everything in options is borrowed until hub_pull_close(). */
int hub_pull_open(const struct hub_pull_options *options, struct hub_pull **out, struct quire_error *err);
void hub_pull_close(struct hub_pull *pull);

/* First: what is each file? Then there are sizes. */
int hub_pull_resolve(struct hub_pull *pull, struct quire_error *err);
/* Then the content. On failure what came is kept. */
int hub_pull_content(struct hub_pull *pull, struct quire_error *err);

/* Of all files: their bytes, those that are there, and how many came over the network, thrown away ones included. */
uint64_t hub_pull_total_bytes(const struct hub_pull *pull);
uint64_t hub_pull_present_bytes(const struct hub_pull *pull);
uint64_t hub_pull_received_bytes(const struct hub_pull *pull);
/* The blob of list->files[i]: a name below REPO/blobs. */
const char *hub_pull_etag(const struct hub_pull *pull, size_t i);
/* How many files had a SHA-256 to be checked against. */
size_t hub_pull_n_hashed(const struct hub_pull *pull);

#endif
