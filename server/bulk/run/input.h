/* The lines of an input file, found once: where each begins, which repeat a custom_id, and the order in which they run.
 * Empty lines are no lines. Any thread, one at a time. The file must not change; a line that did is an error, nothing
 * worse.
 */
#ifndef QUIRE_BULK_INPUT_H
#define QUIRE_BULK_INPUT_H

#include "base/buffer.h"
#include "base/status.h"
#include "server/bulk/run/line.h"

#include <stddef.h>
#include <stdint.h>

struct bulk_input;

/* Reads the whole file once and parses every line, so a server calls this outside its loop. url: as for
 * bulk_line_read(); copied. QUIRE_IO: the file cannot be read; QUIRE_INVALID: it has more than max_lines lines, or none;
 * QUIRE_NO_MEMORY. */
int bulk_input_open(const char *path, enum bulk_dialect dialect, const char *url, uint32_t max_lines,
                    struct bulk_input **out, struct quire_error *err);
void bulk_input_close(struct bulk_input *in); /* NULL is allowed */
uint32_t bulk_input_lines(const struct bulk_input *in);
/* Names the bytes, the dialect and the url: results of another input are not resumed. */
uint64_t bulk_input_digest(const struct bulk_input *in);
/* The line's number in the file, from 1: empty lines count. */
uint64_t bulk_input_number(const struct bulk_input *in, uint32_t line);
/* Reads a line into text, whose former content is dropped, and checks it: bulk_line_read(), and a custom_id that an earlier
 * line has is QUIRE_INVALID, too. out refers to text. */
int bulk_input_read(const struct bulk_input *in, uint32_t line, struct buffer *text, struct bulk_line *out,
                    struct quire_error *err);
/* The order in which lines run, [bulk_input_lines()]: lines whose prompts begin alike are neighbours, so that a shared
 * prefix is computed once and is still cached. Groups keep the order of their first lines. Borrowed. */
const uint32_t *bulk_input_order(const struct bulk_input *in);

#endif
