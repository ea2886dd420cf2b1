#include "engine/ranks/step_frame.h"

#include <string.h>

#define N_SIZES 4u
#define MOVE_WORDS 4u

struct step_limits step_limits_of(const struct model_desc *desc, const struct engine_plan *plan)
{
    const uint64_t n_table = ((uint64_t)plan->max_model_len + plan->block_tokens - 1) / plan->block_tokens;
    const uint64_t n_entries = plan->max_num_seqs * n_table;
    struct step_limits out = {
        .n_groups = plan->n_kv_groups,
        .block_tokens = plan->block_tokens,
        .n_tokens = plan->max_num_batched_tokens,
        .n_rows = plan->max_num_seqs,
        .n_outputs = plan->max_logit_rows,
        .n_entries = n_entries < UINT32_MAX ? (uint32_t)n_entries : UINT32_MAX,
        .vocab_size = desc->config->vocab_size,
        .n_positions = plan->max_model_len,
        .present = batch_present(desc),
    };
    for (uint32_t g = 0; g < plan->n_kv_groups; g++) {
        out.n_blocks[g] = plan->groups[g].n_blocks;
        out.n_host_blocks[g] = plan->groups[g].n_host_blocks;
        out.windows[g] = plan->groups[g].window;
        out.sinks[g] = plan->groups[g].n_sinks;
    }
    return out;
}

static bool is_sent(const struct step_limits *l, const struct batch_array *a)
{
    return a->is_sent && batch_has(a, l->present);
}

static size_t bytes_of(const struct step_limits *l, const struct step_sizes *s)
{
    const uint64_t lengths[BATCH_N_LENGTHS] = {[BATCH_TOKENS] = s->n_tokens,
                                               [BATCH_ROWS] = s->n_rows,
                                               [BATCH_OUTPUTS] = s->n_outputs,
                                               [BATCH_ENTRIES] = s->n_entries};
    size_t n_bytes = N_SIZES * sizeof(uint32_t);
    for (uint32_t i = 0; i < BATCH_N_ARRAYS; i++) {
        const struct batch_array *a = &batch_arrays[i];
        uint32_t first;
        if (is_sent(l, a))
            n_bytes += (batch_groups(a, l->n_groups, &first) - first) * lengths[a->length] * a->element_bytes;
    }
    return n_bytes;
}

size_t step_frame_max_bytes(const struct step_limits *l)
{
    const struct step_sizes largest = {l->n_tokens, l->n_rows, l->n_outputs, l->n_entries};
    return bytes_of(l, &largest);
}

static uint8_t *put(uint8_t *to, const void *from, size_t n_bytes)
{
    memcpy(to, from, n_bytes);
    return to + n_bytes;
}

/* An attention row is sent as it lies in memory. */
_Static_assert(sizeof(struct k_attn_row) == 4 * sizeof(uint32_t) && offsetof(struct k_attn_row, token) == 0 &&
                   offsetof(struct k_attn_row, n_tokens) == sizeof(uint32_t) &&
                   offsetof(struct k_attn_row, position) == 2 * sizeof(uint32_t),
               "the frame has token, n_tokens, position, table");

size_t step_frame_write(const struct step_limits *l, const struct forward_batch *b, void *to)
{
    const struct step_sizes sizes = {b->n_tokens, b->n_rows, b->n_outputs, b->n_entries};
    uint8_t *at = put(to, &sizes, sizeof sizes);
    for (uint32_t i = 0; i < BATCH_N_ARRAYS; i++) {
        const struct batch_array *a = &batch_arrays[i];
        const size_t n_bytes = batch_length(b, a->length) * a->element_bytes;
        uint32_t g;
        if (is_sent(l, a))
            for (const uint32_t n = batch_groups(a, l->n_groups, &g); g < n; g++)
                at = put(at, batch_get(b, a, g), n_bytes);
    }
    return (size_t)(at - (uint8_t *)to);
}

int step_frame_sizes(const struct step_limits *l, const void *from, size_t n_bytes, struct step_sizes *out,
                     struct quire_error *err)
{
    if (n_bytes < sizeof *out)
        return quire_fail(err, QUIRE_INVALID, "step frame: %zu bytes, but its sizes alone take %zu", n_bytes,
                          sizeof *out);
    memcpy(out, from, sizeof *out);
    if (out->n_tokens > l->n_tokens || out->n_rows > l->n_rows || out->n_outputs > l->n_outputs ||
        out->n_entries > l->n_entries || out->n_outputs > out->n_tokens || out->n_rows > out->n_tokens)
        return quire_fail(
            err, QUIRE_INVALID,
            "step frame: %u tokens, %u rows, %u outputs and %u table entries, but this rank was opened for "
            "%u, %u, %u and %u",
            out->n_tokens, out->n_rows, out->n_outputs, out->n_entries, l->n_tokens, l->n_rows, l->n_outputs,
            l->n_entries);
    if (n_bytes != bytes_of(l, out))
        return quire_fail(err, QUIRE_INVALID, "step frame: %zu bytes, but its sizes require %zu", n_bytes,
                          bytes_of(l, out));
    return QUIRE_OK;
}

static const uint8_t *take(void *to, const uint8_t *from, size_t n_bytes)
{
    memcpy(to, from, n_bytes);
    return from + n_bytes;
}

static int check_below(const char *what, const uint32_t *values, uint32_t n, uint64_t limit, struct quire_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (values[i] >= limit)
            return quire_fail(err, QUIRE_INVALID, "step frame: %s %u is %u, and must be below %llu", what, i, values[i],
                              (unsigned long long)limit);
    return QUIRE_OK;
}

/* Rows follow each other, and each has the table entries up to its last position. */
static int check_rows(const struct step_limits *l, const struct forward_batch *b, struct quire_error *err)
{
    uint32_t token = 0, table = 0;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct k_attn_row *r = &b->rows[i];
        const uint64_t end = (uint64_t)r->position + r->n_tokens;
        const uint64_t n_entries = (end + l->block_tokens - 1) / l->block_tokens;
        if (r->token != token || r->table != table || r->n_tokens == 0 || r->n_tokens > b->n_tokens - token ||
            end > l->n_positions || n_entries > b->n_entries - table)
            return quire_fail(
                err, QUIRE_INVALID,
                "step frame: row %u has tokens %u + %u at position %u and its table at %u, where token %u "
                "and table %u are next of %u and %u",
                i, r->token, r->n_tokens, r->position, r->table, token, table, b->n_tokens, b->n_entries);
        token += r->n_tokens;
        table += (uint32_t)n_entries;
    }
    if (token != b->n_tokens || table != b->n_entries)
        return quire_fail(err, QUIRE_INVALID, "step frame: rows have %u tokens and %u table entries of %u and %u",
                          token, table, b->n_tokens, b->n_entries);
    return QUIRE_OK;
}

/* A block behind a window and the sinks has no valid index and is not read. */
static bool is_behind(const struct step_limits *l, uint32_t group, const struct k_attn_row *r, uint32_t entry)
{
    const uint64_t end = ((uint64_t)entry + 1) * l->block_tokens;
    return l->windows[group] > 0 && (uint64_t)entry * l->block_tokens >= l->sinks[group] &&
           end + l->windows[group] <= (uint64_t)r->position + 1;
}

static int check_tables(const struct step_limits *l, const struct forward_batch *b, struct quire_error *err)
{
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const uint32_t end = i + 1 < b->n_rows ? b->rows[i + 1].table : b->n_entries, first = b->rows[i].table;
        for (uint32_t g = 0; g < l->n_groups; g++)
            for (uint32_t k = first; k < end; k++) {
                const uint32_t block = b->tables[g][k];
                if (block >= l->n_blocks[g] && !(block == KV_NO_BLOCK && is_behind(l, g, &b->rows[i], k - first)))
                    return quire_fail(err, QUIRE_INVALID,
                                      "step frame: block %u of row %u in KV group %u is %u, of %u blocks", k - first, i,
                                      g, block, l->n_blocks[g]);
            }
    }
    return QUIRE_OK;
}

static int check_outputs(const struct forward_batch *b, const char *called, struct quire_error *err)
{
    for (uint32_t i = 1; i < b->n_outputs; i++)
        if (b->output_tokens[i] <= b->output_tokens[i - 1])
            return quire_fail(err, QUIRE_INVALID, "step frame: output %u has token %u, after token %u", i,
                              b->output_tokens[i], b->output_tokens[i - 1]);
    return check_below(called, b->output_tokens, b->n_outputs, b->n_tokens, err);
}

/* What a value of the array must be below. */
static uint64_t limit_of(const struct step_limits *l, const struct batch_array *a, uint32_t group)
{
    switch (a->values.in) {
    case BATCH_IN_VOCABULARY: return l->vocab_size;
    case BATCH_IN_POSITIONS: return l->n_positions;
    case BATCH_IN_SLOTS: return (uint64_t)l->n_blocks[group] * l->block_tokens;
    default: return a->values.below;
    }
}

static int check_values(const struct step_limits *l, const struct batch_array *a, const struct forward_batch *b,
                        struct quire_error *err)
{
    uint32_t g;
    int status = QUIRE_OK;
    for (const uint32_t n = batch_groups(a, l->n_groups, &g); g < n && status == QUIRE_OK; g++)
        status = check_below(a->called, batch_get(b, a, g), batch_length(b, a->length), limit_of(l, a, g), err);
    return status;
}

static int check_array(const struct step_limits *l, const struct batch_array *a, const struct forward_batch *b,
                       struct quire_error *err)
{
    switch (a->values.in) {
    case BATCH_IN_ANY: return QUIRE_OK;
    case BATCH_IN_ROWS: return check_rows(l, b, err);
    case BATCH_IN_BLOCKS: return check_tables(l, b, err);
    case BATCH_IN_ASCENDING_TOKENS: return check_outputs(b, a->called, err);
    default: return check_values(l, a, b, err);
    }
}

int step_frame_read(const struct step_limits *l, const void *from, struct forward_batch *b, struct quire_error *err)
{
    const uint8_t *at = (const uint8_t *)from + sizeof(struct step_sizes);
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < BATCH_N_ARRAYS && status == QUIRE_OK; i++) {
        const struct batch_array *a = &batch_arrays[i];
        const size_t n_bytes = batch_length(b, a->length) * a->element_bytes;
        uint32_t g;
        if (!is_sent(l, a))
            continue;
        for (const uint32_t n = batch_groups(a, l->n_groups, &g); g < n; g++)
            at = take(batch_get(b, a, g), at, n_bytes);
        status = check_array(l, a, b, err);
    }
    return status;
}

uint32_t step_frame_max_moves(const struct step_limits *l)
{
    return (uint32_t)(step_frame_max_bytes(l) / (MOVE_WORDS * sizeof(uint32_t)));
}

size_t moves_frame_write(const struct kv_move *moves, uint32_t n_moves, void *to)
{
    uint8_t *at = to;
    for (uint32_t i = 0; i < n_moves; i++) {
        const struct kv_move *m = &moves[i];
        at = put(at, (const uint32_t[MOVE_WORDS]){m->to_host, m->group, m->device_block, m->host_block},
                 MOVE_WORDS * sizeof(uint32_t));
    }
    return (size_t)(at - (uint8_t *)to);
}

int moves_frame_read(const struct step_limits *l, const void *from, size_t n_bytes, struct kv_move *moves,
                     uint32_t *n_moves, struct quire_error *err)
{
    const uint8_t *at = from;
    uint32_t m[MOVE_WORDS];
    if (n_bytes % sizeof m != 0)
        return quire_fail(err, QUIRE_INVALID, "moves frame: %zu bytes are not a multiple of %zu", n_bytes, sizeof m);
    *n_moves = (uint32_t)(n_bytes / sizeof m);
    for (uint32_t i = 0; i < *n_moves; i++) {
        at = take(m, at, sizeof m);
        if (m[0] > 1 || m[1] >= l->n_groups || m[2] >= l->n_blocks[m[1]] || m[3] >= l->n_host_blocks[m[1]])
            return quire_fail(err, QUIRE_INVALID,
                              "moves frame: move %u (%u) is of KV group %u, block %u and host block %u", i, m[0], m[1],
                              m[2], m[3]);
        moves[i] = (struct kv_move){.to_host = m[0], .group = m[1], .device_block = m[2], .host_block = m[3]};
    }
    return QUIRE_OK;
}
