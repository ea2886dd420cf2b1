/* Workloads: lengths, times and shared prefixes, from an untrusted file.
 *
 *   JSON lines      {"timestamp": T, "input_length": N, "output_length": N, "hash_ids": [...]}. A hash stands for a block
 *                   of tokens, and equal hashes for equal tokens; hash_ids may be absent. Mooncake's times are
 *                   milliseconds and its blocks have 512 tokens; those of vllm bench's timed traces are seconds and
 *                   16 tokens unless its options say otherwise. Quire's own optional fields: "tenant" (a name),
 *                   "class" (0..7), "priority" (lower runs first), "deadline_ms" (for the first token)
 *   CSV             a header line, then rows; known columns (others are ignored):
 *                   input   ContextTokens, input_toks, num_prefill_tokens
 *                   output  GeneratedTokens, output_toks, num_decode_tokens
 *                   time    TIMESTAMP (2023-11-16 18:17:03.9799600), arrival_time_ns; may be absent
 *
 * Errors name the line. No global state; any thread on its own workload.
 */
#ifndef QUIRE_TOOLS_BENCH_WORKLOAD_H
#define QUIRE_TOOLS_BENCH_WORKLOAD_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_WORKLOAD_BLOCK 512u
#define BENCH_MAX_LENGTH (1u << 24) /* tokens of a prompt or an answer */
#define BENCH_WORKLOAD_MAX_TENANTS 1024u
#define BENCH_WORKLOAD_MAX_NAME 64u

/* How to read JSON lines. */
struct bench_workload_form {
    double unit_ms;        /* milliseconds of a timestamp of 1 */
    uint32_t block_tokens; /* tokens per hash */
    bool own_tail;         /* hash_ids may cover a part of the input; the rest belongs to the request alone */
};
extern const struct bench_workload_form bench_workload_mooncake;

struct bench_workload {
    struct bench_workload_row {
        double arrival_s;   /* since the first row; never decreases */
        uint32_t n_input, n_output; /* 1..BENCH_MAX_LENGTH */
        size_t first_hash;  /* into hashes */
        uint32_t n_hashes;  /* 0, or enough blocks for the input unless the form has own tails */
        uint32_t tenant;    /* into tenants */
        uint32_t class_index;
        int32_t priority;
        double deadline_ms; /* after arrival; 0: no deadline */
    } *rows;
    size_t n_rows;
    uint64_t *hashes;
    size_t n_hashes;
    /* [0] is "default", for requests without another one. Only letters, digits and ._-. */
    char (*tenants)[BENCH_WORKLOAD_MAX_NAME + 1];
    uint32_t n_tenants;
    bool has_times;
};

/* JSON lines of the given form if it begins with {, otherwise CSV. name begins the error text. Call
 * bench_workload_free(), also after an error. */
int bench_workload_read(const char *text, size_t n, const char *name, const struct bench_workload_form *form,
                        struct bench_workload *out, struct quire_error *err);
/* Returns whether a tenant may have this name of n bytes. */
bool bench_workload_is_name(const char *name, size_t n);
void bench_workload_free(struct bench_workload *workload);

/* Reads a file of at most max_bytes, NUL-terminated; the caller frees *text. */
int bench_read_file(const char *path, size_t max_bytes, char **text, size_t *n, struct quire_error *err);

#endif
