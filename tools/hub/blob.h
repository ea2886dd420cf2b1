/* A file of the Hugging Face cache during download. Parts arrive in any order and survive the process. The file becomes
 * blobs/ETAG atomically when it is complete and verified.
 *
 * Before that, it is blobs/ETAG.quire.incomplete: the sparse content, then one byte for each unit of 1 MiB, 1 if the
 * unit is present. (huggingface_hub's own ETAG.incomplete grows from its beginning and would continue a file with holes
 * wrongly.) One thread, which holds the repository's lock.
 */
#ifndef QUIRE_TOOLS_HUB_BLOB_H
#define QUIRE_TOOLS_HUB_BLOB_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define HUB_UNIT_BYTES (1u << 20)
#define HUB_MAX_BLOB_BYTES (1ull << 40)
#define HUB_ETAG_BYTES 129

struct hub_blob {
    char *path, *part; /* blobs/ETAG, and the temporary name; owned */
    uint64_t size_bytes;
    uint64_t present_bytes; /* of present units */
    uint32_t n_units;
    uint32_t n_hashed; /* units from the beginning that are hashed */
    uint8_t *units; /* enum hub_unit; owned */
    int fd; /* -1: not open, or done */
    bool done; /* blobs/ETAG exists */
    bool has_sha256; /* the ETag is a SHA-256: for every file in LFS */
    char etag[HUB_ETAG_BYTES];
    struct quire_sha256_state sha256;
};
enum hub_unit { HUB_UNIT_MISSING, HUB_UNIT_ASKED, HUB_UNIT_THERE };

/* The value of the ETag header as a file name: without W/ and quotes. Returns false if it is not valid. */
bool hub_etag_parse(const char *header, char out[HUB_ETAG_BYTES]);

/* Continues an earlier download, or starts one. Sets done if the blob already exists. On an error *b is closed. */
int hub_blob_open(struct hub_blob *b, const char *repo, const char *etag, uint64_t size_bytes, struct quire_error *err);
/* Keeps the downloaded part; if there is none, no file remains. */
void hub_blob_close(struct hub_blob *b);

/* Returns the next run of missing units, at most max_bytes, as bytes [*begin, *end), and marks its units as requested.
 * Returns false if there is none. */
bool hub_blob_ask(struct hub_blob *b, uint64_t max_bytes, uint64_t *begin, uint64_t *end);
/* Marks units of [begin, end) that have not arrived as missing again. */
void hub_blob_unask(struct hub_blob *b, uint64_t begin, uint64_t end);

/* Writes bytes [at, at+n) of a run of units, in order. Units that end in it are then present. */
int hub_blob_write(struct hub_blob *b, uint64_t at, const void *bytes, uint64_t n, struct quire_error *err);

/* Hashes the next few units, if they are present. */
int hub_blob_hash_some(struct hub_blob *b, struct quire_error *err);
/* Returns whether all units are present and hashed. */
bool hub_blob_is_whole(const struct hub_blob *b);
/* Renames a complete blob. QUIRE_INVALID: its SHA-256 differs from its ETag; then restart or discard it. */
int hub_blob_finish(struct hub_blob *b, struct quire_error *err);
/* Deletes the content, to start again or for good. */
int hub_blob_restart(struct hub_blob *b, struct quire_error *err);
void hub_blob_discard(struct hub_blob *b);

#endif
