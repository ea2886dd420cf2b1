/* The reply of GET /cache/stats as a table on standard output. Main thread. */
#ifndef QUIRE_TOOLS_CACHE_STATS_TABLE_H
#define QUIRE_TOOLS_CACHE_STATS_TABLE_H

#include <jansson.h>

/* Prints every counter: one line each, and a column for each layer. Unknown counters are printed, too. */
void stats_table_print(const json_t *stats);

#endif
