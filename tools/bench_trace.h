/* Traces of requests: lengths, times and shared prefixes, from a file nobody vouched for.
 *
 *   lines of JSON   {"timestamp": MS, "input_length": N, "output_length": N, "hash_ids": [...]}, as Mooncake's; a hash
 *                   stands for BENCH_TRACE_BLOCK tokens, and equal hashes for equal tokens; hash_ids may be absent
 *   CSV             a header line, then rows; known columns (others are passed over):
 *                   input   ContextTokens, input_toks, num_prefill_tokens
 *                   output  GeneratedTokens, output_toks, num_decode_tokens
 *                   time    TIMESTAMP (2023-11-16 18:17:03.9799600), arrival_time_ns; may be absent
 *
 * Errors name the line. No global state; any thread on its own trace.
 */
#ifndef QUIRE_TOOLS_BENCH_TRACE_H
#define QUIRE_TOOLS_BENCH_TRACE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_TRACE_BLOCK 512u
#define BENCH_MAX_LENGTH (1u << 24) /* tokens of a prompt or an answer */

struct bench_trace {
    struct bench_trace_row {
        double arrival_s;   /* since the first row; never falls */
        uint32_t n_input, n_output; /* 1..BENCH_MAX_LENGTH */
        size_t first_hash;  /* into hashes */
        uint32_t n_hashes;  /* 0, or enough blocks for the input */
    } *rows;
    size_t n_rows;
    uint64_t *hashes;
    size_t n_hashes;
    bool has_times;
};

/* Lines of JSON when it begins with {, else CSV. name begins the error text. Out is freed by bench_trace_free(), also
 * after a failure. */
int bench_trace_read(const char *text, size_t n, const char *name, struct bench_trace *out, struct quire_error *err);
void bench_trace_free(struct bench_trace *trace);

/* A file of at most max_bytes, whole and NUL-terminated; the caller frees *text. */
int bench_read_file(const char *path, size_t max_bytes, char **text, size_t *n, struct quire_error *err);

#endif
