/* One file of the Hugging Face cache while it is gathered: pieces come in any order, survive the process, and become
 * blobs/ETAG at once when all of it is there and right.
 *
 * Until then it is blobs/ETAG.quire.incomplete: the content, sparse, and behind it a byte for each unit of 1 MiB, 1 when
 * the unit is there. (huggingface_hub's own ETAG.incomplete grows from its beginning; a file with holes under that name
 * would be continued wrongly.) One thread; whoever has the repository's lock.
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
    char *path, *part; /* blobs/ETAG and what it is until then; owned */
    uint64_t size_bytes;
    uint64_t present_bytes; /* of units that are there */
    uint32_t n_units;
    uint32_t n_hashed;      /* units from the beginning that the hash has seen */
    uint8_t *units;         /* enum hub_unit; owned */
    int fd;                 /* -1: not open, or done */
    bool done;              /* blobs/ETAG is there */
    bool has_sha256;        /* the ETag is one: of everything that the hub keeps in LFS */
    char etag[HUB_ETAG_BYTES];
    struct quire_sha256_state sha256;
};
enum hub_unit { HUB_UNIT_MISSING, HUB_UNIT_ASKED, HUB_UNIT_THERE };

/* What the ETag header holds, as a file's name: without W/ and quotes. false: it could not be one. */
bool hub_etag_parse(const char *header, char out[HUB_ETAG_BYTES]);

/* Continues what is there, or begins. done is set when the blob exists already. On failure *b is closed. */
int hub_blob_open(struct hub_blob *b, const char *repo, const char *etag, uint64_t size_bytes, struct quire_error *err);
/* What came is kept; where nothing did, nothing is left. */
void hub_blob_close(struct hub_blob *b);

/* The next run of missing units, at most max_bytes: its bytes are [*begin, *end), and its units are asked. false: none. */
bool hub_blob_ask(struct hub_blob *b, uint64_t max_bytes, uint64_t *begin, uint64_t *end);
/* Those of [begin, end) that have not come are missing again. */
void hub_blob_unask(struct hub_blob *b, uint64_t begin, uint64_t end);

/* Bytes of a run that begins and ends where units do: [at, at+n) of it, in order. Units that end in it are there then. */
int hub_blob_write(struct hub_blob *b, uint64_t at, const void *bytes, uint64_t n, struct quire_error *err);

/* Hashes the next few units, if they are there. */
int hub_blob_hash_some(struct hub_blob *b, struct quire_error *err);
/* Is everything there and hashed? */
bool hub_blob_is_whole(const struct hub_blob *b);
/* Of a whole blob: gives it its name. QUIRE_INVALID: its SHA-256 is another than its ETag says. Then: restart or discard. */
int hub_blob_finish(struct hub_blob *b, struct quire_error *err);
/* Throws away what is there, to begin anew; or for good. */
int hub_blob_restart(struct hub_blob *b, struct quire_error *err);
void hub_blob_discard(struct hub_blob *b);

#endif
