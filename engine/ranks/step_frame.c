#include "engine/ranks/step_frame.h"

#include <string.h>

#define N_SIZES 4u
#define ROW_WORDS 4u
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
        .n_logits = plan->max_logit_rows,
        .n_entries = n_entries < UINT32_MAX ? (uint32_t)n_entries : UINT32_MAX,
        .vocab_size = desc->config->vocab_size,
        .n_positions = plan->max_model_len,
    };
    for (uint32_t g = 0; g < plan->n_kv_groups; g++) {
        out.n_blocks[g] = plan->groups[g].n_blocks;
        out.n_host_blocks[g] = plan->groups[g].n_host_blocks;
        out.windows[g] = plan->groups[g].window;
    }
    return out;
}

static size_t bytes_of(const struct step_limits *l, const struct step_sizes *s)
{
    const uint64_t groups = l->n_groups;
    return sizeof(uint32_t) * (N_SIZES + (2 + groups) * s->n_tokens + (uint64_t)ROW_WORDS * s->n_rows +
                               groups * s->n_entries + s->n_logits);
}

size_t step_frame_max_bytes(const struct step_limits *l)
{
    const struct step_sizes largest = {l->n_tokens, l->n_rows, l->n_logits, l->n_entries};
    return bytes_of(l, &largest);
}

static uint8_t *put(uint8_t *to, const void *from, size_t n_bytes)
{
    memcpy(to, from, n_bytes);
    return to + n_bytes;
}

size_t step_frame_write(const struct step_limits *l, const struct forward_batch *b, void *to)
{
    const struct step_sizes sizes = {b->n_tokens, b->n_rows, b->n_logits, b->n_entries};
    const size_t tokens = b->n_tokens * sizeof(uint32_t);
    uint8_t *at = put(to, &sizes, sizeof sizes);
    at = put(at, b->ids, tokens);
    at = put(at, b->positions, tokens);
    for (uint32_t g = 0; g < l->n_groups; g++)
        at = put(at, b->slots[g], tokens);
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct k_attn_row *r = &b->rows[i];
        at = put(at, (const uint32_t[ROW_WORDS]){r->token, r->n_tokens, r->position, r->table},
                 ROW_WORDS * sizeof(uint32_t));
    }
    for (uint32_t g = 0; g < l->n_groups; g++)
        at = put(at, b->tables[g], b->n_entries * sizeof(uint32_t));
    at = put(at, b->logit_tokens, b->n_logits * sizeof(uint32_t));
    return (size_t)(at - (uint8_t *)to);
}

int step_frame_sizes(const struct step_limits *l, const void *from, size_t n_bytes, struct step_sizes *out,
                     struct quire_error *err)
{
    if (n_bytes < sizeof *out)
        return quire_fail(err, QUIRE_INVALID, "step frame: %zu bytes, but its sizes alone take %zu", n_bytes,
                          sizeof *out);
    memcpy(out, from, sizeof *out);
    if (out->n_tokens > l->n_tokens || out->n_rows > l->n_rows || out->n_logits > l->n_logits ||
        out->n_entries > l->n_entries || out->n_logits > out->n_tokens || out->n_rows > out->n_tokens)
        return quire_fail(
            err, QUIRE_INVALID,
            "step frame: %u tokens, %u rows, %u logits and %u table entries, but this rank was opened for "
            "%u, %u, %u and %u",
            out->n_tokens, out->n_rows, out->n_logits, out->n_entries, l->n_tokens, l->n_rows, l->n_logits,
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

/* A block behind a window has no valid index and is not read. */
static bool is_behind(const struct step_limits *l, uint32_t group, const struct k_attn_row *r, uint32_t entry)
{
    const uint64_t end = ((uint64_t)entry + 1) * l->block_tokens;
    return l->windows[group] > 0 && end + l->windows[group] <= (uint64_t)r->position + 1;
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

static int check_logits(const struct forward_batch *b, struct quire_error *err)
{
    for (uint32_t i = 1; i < b->n_logits; i++)
        if (b->logit_tokens[i] <= b->logit_tokens[i - 1])
            return quire_fail(err, QUIRE_INVALID, "step frame: logit %u has token %u, after token %u", i,
                              b->logit_tokens[i], b->logit_tokens[i - 1]);
    return check_below("the token of logit", b->logit_tokens, b->n_logits, b->n_tokens, err);
}

int step_frame_read(const struct step_limits *l, const void *from, struct forward_batch *b, struct quire_error *err)
{
    const size_t tokens = b->n_tokens * sizeof(uint32_t);
    const uint8_t *at = (const uint8_t *)from + sizeof(struct step_sizes);
    at = take(b->ids, at, tokens);
    at = take(b->positions, at, tokens);
    for (uint32_t g = 0; g < l->n_groups; g++)
        at = take(b->slots[g], at, tokens);
    for (uint32_t i = 0; i < b->n_rows; i++) {
        uint32_t r[ROW_WORDS];
        at = take(r, at, sizeof r);
        b->rows[i] = (struct k_attn_row){.token = r[0], .n_tokens = r[1], .position = r[2], .table = r[3]};
    }
    for (uint32_t g = 0; g < l->n_groups; g++)
        at = take(b->tables[g], at, b->n_entries * sizeof(uint32_t));
    take(b->logit_tokens, at, b->n_logits * sizeof(uint32_t));

    int status = check_below("token", b->ids, b->n_tokens, l->vocab_size, err);
    if (status == QUIRE_OK)
        status = check_below("position", b->positions, b->n_tokens, l->n_positions, err);
    if (status == QUIRE_OK)
        status = check_rows(l, b, err);
    for (uint32_t g = 0; g < l->n_groups && status == QUIRE_OK; g++)
        status = check_below("slot", b->slots[g], b->n_tokens, (uint64_t)l->n_blocks[g] * l->block_tokens, err);
    if (status == QUIRE_OK)
        status = check_tables(l, b, err);
    return status == QUIRE_OK ? check_logits(b, err) : status;
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
