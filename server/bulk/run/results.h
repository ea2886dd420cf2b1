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

struct bulk_counts {
    uint32_t n_lines, n[BULK_EXPIRED + 1]; /* n: by outcome */
    uint64_t input_tokens, cached_tokens, output_tokens;
};

/* Creates the file, or continues it. QUIRE_INVALID: it belongs to another input (digest, n_lines), or to a newer version. */
int bulk_results_open(const char *path, uint64_t digest, uint32_t n_lines, struct bulk_results **out,
                      struct quire_error *err);
void bulk_results_close(struct bulk_results *r); /* writes what was put; NULL is allowed */

bool bulk_results_has(const struct bulk_results *r, uint32_t line);
/* json: the line of the output or of the error file, without its end; copied. The first result of a line stays. tokens:
 * added to the counts. */
struct bulk_tokens {
    uint32_t input, cached, output;
};
int bulk_results_put(struct bulk_results *r, uint32_t line, enum bulk_outcome outcome, const char *json, size_t n_json,
                     const struct bulk_tokens *tokens, struct quire_error *err);
bool bulk_results_is_full(const struct bulk_results *r);
void bulk_results_count(const struct bulk_results *r, struct bulk_counts *out);
/* Waits until all that was put is written: the checkpoint of a notice of eviction. */
int bulk_results_flush(struct bulk_results *r, struct quire_error *err);
/* Writes the rows of outcomes (a bit for each outcome: 1 << BULK_SUCCEEDED) in input order, one a line. Blocks; any thread. */
int bulk_results_write(struct bulk_results *r, unsigned outcomes, FILE *to, struct quire_error *err);

#endif
