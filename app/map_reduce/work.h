/* The stages of a map-reduce: chunks of files, a request for each, and requests over their results until one is left. Each
 * stage is a job (app/bulk/job.h) whose files are in a folder of the work, so a killed work continues. Main thread.
 */
#ifndef QUIRE_APP_MAP_REDUCE_WORK_H
#define QUIRE_APP_MAP_REDUCE_WORK_H

#include "app/bulk/place.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define WORK_CHUNK_TOKENS 2000

/* All borrowed. */
struct work_options {
    struct place *place;
    const char *model; /* the name in requests; NULL: the server's first */
    const char *map, *reduce; /* prompts: "{text}" in them is where the text goes; else it follows */
    const char *const *files; /* [n_files] */
    size_t n_files;
    uint32_t chunk_tokens; /* 0: WORK_CHUNK_TOKENS, or as many as fit into the context */
    uint32_t overlap; /* below half of chunk_tokens */
    uint32_t max_tokens; /* of each answer */
    uint32_t concurrency; /* 0: the place's */
};

struct work_report {
    uint32_t n_chunks, n_stages, n_requests, n_resumed;
    uint32_t n_cut; /* answers that reached max_tokens */
    uint64_t input_tokens, cached_tokens, output_tokens; /* of this run */
    double elapsed_s;
    char folder[64]; /* of the stages, in the current folder; removed at the end */
};

/* *answer: malloc'd, set on success. QUIRE_EXHAUSTED: interrupted; the same work continues later. QUIRE_INVALID names the
 * file or option that is wrong, or the chunk that failed. */
int work_run(const struct work_options *options, char **answer, struct work_report *report, struct quire_error *err);

#endif
