/* The files and batches of a server, in a directory: batches.sqlite, files/ID.jsonl, results/ID.sqlite (the results of a
 * batch that is not finished, server/bulk/run/results.h). Every function blocks. One thread at a time, except for the
 * functions of paths. Everything belongs to a tenant, by name; what another tenant has is not found. QUIRE_UNAVAILABLE:
 * the disk is full or fails.
 */
#ifndef QUIRE_BULK_STORE_H
#define QUIRE_BULK_STORE_H

#include "base/status.h"
#include "server/bulk/store/records.h"

struct bulk_store;

struct bulk_store_options {
    const char *dir;
    uint64_t max_bytes, max_tenant_bytes; /* size of all files; 0: no limit */
};

/* Makes the directory if it does not exist, and removes what a killed process has left unfinished. QUIRE_INVALID: the
 * message names the file: not a store, damaged, of a newer version, or in use by another process. */
int bulk_store_open(const struct bulk_store_options *options, struct bulk_store **out, struct quire_error *err);
void bulk_store_close(struct bulk_store *s); /* NULL is allowed */

/* ---- paths ---- */

#define BULK_PATH_BYTES 4096
void bulk_store_file_path(const struct bulk_store *s, const char *id, char out[BULK_PATH_BYTES]);
/* The path of a file that is not complete yet. */
void bulk_store_part_path(const struct bulk_store *s, const char *id, char out[BULK_PATH_BYTES]);
void bulk_store_results_path(const struct bulk_store *s, const char *id, char out[BULK_PATH_BYTES]);

/* ---- files ---- */

/* The bytes on the disk of what is not a file yet: an upload, or the results of a batch, by its id. They count like a
 * file's until the next call for the id; 0: it is gone, or a file. QUIRE_NO_MEMORY. */
int bulk_store_hold(struct bulk_store *s, const char *tenant, const char *id, uint64_t n_bytes,
                    struct quire_error *err);
/* Whether n_bytes more may be stored. QUIRE_EXHAUSTED: the message names the limit. */
int bulk_store_has_space(struct bulk_store *s, const char *tenant, uint64_t n_bytes, struct quire_error *err);
/* Adds a file whose part is complete and on the disk, and gives it its name. */
int bulk_store_add_file(struct bulk_store *s, const struct bulk_file *f, struct quire_error *err);
/* QUIRE_NOT_FOUND: unknown, expired, or another tenant's. */
int bulk_store_find_file(struct bulk_store *s, const char *tenant, const char *id, struct bulk_file *out,
                         struct quire_error *err);
/* One that no row refers to. */
int bulk_store_drop_file(struct bulk_store *s, const char *id, struct quire_error *err);
/* QUIRE_INVALID: a batch that has not ended uses it. */
int bulk_store_remove_file(struct bulk_store *s, const char *tenant, const char *id, struct quire_error *err);

struct bulk_page {
    const char *after; /* an id: the next ones; NULL: from the start */
    const char *before; /* an id: those before it; NULL. At most one of the two */
    bool ascending; /* the oldest first */
    uint32_t limit;
    int purpose; /* of files: enum bulk_purpose; -1: BULK_INPUT and BULK_OUTPUT */
    int dialect; /* of batches: enum bulk_dialect */
};

/* malloc'd, also after an error. QUIRE_NOT_FOUND: `after` or `before` is unknown. */
int bulk_store_list_files(struct bulk_store *s, const char *tenant, const struct bulk_page *page,
                          struct bulk_file **out, size_t *n, bool *has_more, struct quire_error *err);

/* ---- batches ---- */

int bulk_store_add_batch(struct bulk_store *s, const struct bulk_batch *b, struct quire_error *err);
int bulk_store_update_batch(struct bulk_store *s, const struct bulk_batch *b, struct quire_error *err);
/* Adds its output files, whose parts are complete, and updates it, at once. out, failed: NULL if absent. */
int bulk_store_end_batch(struct bulk_store *s, const struct bulk_batch *b, const struct bulk_file *out,
                         const struct bulk_file *failed, struct quire_error *err);
/* The caller frees out with bulk_batch_free(). */
int bulk_store_find_batch(struct bulk_store *s, const char *tenant, const char *id, struct bulk_batch *out,
                          struct quire_error *err);
/* One that has ended, with its files of BULK_MESSAGES. */
int bulk_store_remove_batch(struct bulk_store *s, const char *tenant, const char *id, struct quire_error *err);
int bulk_store_list_batches(struct bulk_store *s, const char *tenant, const struct bulk_page *page,
                            struct bulk_batch **out, size_t *n, bool *has_more, struct quire_error *err);
/* Those that have not ended, of all tenants, the oldest first. */
int bulk_store_unfinished(struct bulk_store *s, struct bulk_batch **out, size_t *n, struct quire_error *err);

/* Removes files that have expired and that no unfinished batch uses. */
int bulk_store_expire(struct bulk_store *s, int64_t now_s, struct quire_error *err);

struct bulk_store_counts {
    uint64_t n_files, n_bytes, n_batches[BULK_N_STATES];
};
int bulk_store_count(struct bulk_store *s, struct bulk_store_counts *out, struct quire_error *err);

#endif
