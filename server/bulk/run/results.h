/* The results of one batch: a SQLite file with at most one row for each line. A batch that is run again continues with
 * the lines that have none.
 *
 * One thread opens and puts, and never waits for the disk: a thread of the results writes, 10 times a second at most. What
 * was not written when the process ends (kill -9) is run again. A full disk fails nothing: the rows wait in memory, up
 * to a limit above which bulk_results_is_full() holds back new lines, and are written once there is space.
 */
#ifndef QUIRE_BULK_RESULTS_H
#define QUIRE_BULK_RESULTS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct bulk_results;

enum bulk_outcome {
    BULK_SUCCEEDED, /* a reply with status 200 */
    BULK_ERRORED,
    BULK_CANCELLED,
    BULK_EXPIRED,
};
#define BULK_OUTCOMES 4

struct bulk_tokens {
    uint32_t input, cached, output; /* input includes cached */
    uint64_t cost; /* picodollars: 10^-12 dollars */
};

struct bulk_counts {
    uint32_t n_lines, n_done, n[BULK_OUTCOMES];
    uint64_t input_tokens, cached_tokens, output_tokens, cost;
};

/* Creates the file, or continues it. QUIRE_INVALID: it belongs to another input (digest, n_lines), to another program or to
 * another version. QUIRE_IO: it cannot be opened, is damaged, or is in use by another process. */
int bulk_results_open(const char *path, uint64_t digest, uint32_t n_lines, struct bulk_results **out,
                      struct quire_error *err);
/* Writes what was put, as far as the disk takes it. NULL is allowed. */
void bulk_results_close(struct bulk_results *r);

bool bulk_results_has(const struct bulk_results *r, uint32_t line);
/* json: the line of the output or of the error file, without its end; copied. The first result of a line stays. tokens:
 * added to the counts; NULL: none. QUIRE_NO_MEMORY. */
int bulk_results_put(struct bulk_results *r, uint32_t line, enum bulk_outcome outcome, const char *json, size_t n_json,
                     const struct bulk_tokens *tokens, struct quire_error *err);
/* Too much waits for the disk. */
bool bulk_results_is_full(struct bulk_results *r);
/* What its file takes on the disk, about. */
uint64_t bulk_results_bytes(const struct bulk_results *r);
void bulk_results_count(const struct bulk_results *r, struct bulk_counts *out);
/* Waits until all that was put is written: the checkpoint of a notice of eviction. QUIRE_IO: the disk does not take it. Any
 * thread. */
int bulk_results_flush(struct bulk_results *r, struct quire_error *err);
/* Writes the rows of outcomes (a bit for each: 1 << BULK_SUCCEEDED) in input order, one a line. Rows that were not written
 * yet are missing: bulk_results_flush() comes first. Blocks; any thread. QUIRE_IO: `to` or the file fails. */
int bulk_results_write(struct bulk_results *r, unsigned outcomes, FILE *to, struct quire_error *err);

#endif
