/* The lines of an input file, found once: where each begins, and the order in which they are run. The file is mapped and
 * must not change. Empty lines are no lines. Any thread, one at a time.
 */
#ifndef QUIRE_BULK_INPUT_H
#define QUIRE_BULK_INPUT_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct bulk_input;

/* QUIRE_IO: the file cannot be read; QUIRE_INVALID: it has more than max_lines lines. digest of an input names its bytes
 * and its dialect: results of another input are not resumed. */
int bulk_input_open(const char *path, uint32_t max_lines, struct bulk_input **out, struct quire_error *err);
void bulk_input_close(struct bulk_input *in); /* NULL is allowed */
uint32_t bulk_input_lines(const struct bulk_input *in);
uint64_t bulk_input_digest(const struct bulk_input *in);
/* The text of a line, without its end. Borrowed until bulk_input_close(). */
const char *bulk_input_line(const struct bulk_input *in, uint32_t line, size_t *n_bytes);
/* Writes the order in which lines run to order[bulk_input_lines()]: lines whose bodies begin alike are neighbours, so
 * that a shared prefix is computed once and is still cached. Groups keep the order of their first lines. */
int bulk_input_order(const struct bulk_input *in, uint32_t *order, struct quire_error *err);

#endif
