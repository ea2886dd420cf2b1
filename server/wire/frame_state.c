/* DONE and the answering STATS. */
#include "server/wire/fields.h"

#define DONE(member, tag, kind, flags, max)                                                        \
    FIELD_SCALAR(struct wire_done, member, tag, kind, flags, max)
static const struct wire_field done_rules[] = {
    DONE(choice, 1, FIELD_32, FIELD_REQUIRED | FIELD_MUST, 0),
    DONE(finish, 2, FIELD_32, FIELD_REQUIRED | FIELD_MUST, WIRE_FINISH_ERROR),
    DONE(last, 3, FIELD_BOOL, FIELD_REQUIRED | FIELD_MUST, 0),
    FIELD_OPTIONAL(struct wire_done, stop_token, 4, FIELD_32, 0),
    DONE(n_prompt, 5, FIELD_32, 0, 0),
    DONE(n_cached, 6, FIELD_32, 0, 0),
    DONE(n_generated, 7, FIELD_32, 0, 0),
    FIELD_SPAN(struct wire_done, message, 8, FIELD_TEXT, 0, WIRE_MAX_TEXT),
};
static const struct wire_done done_defaults;
static const struct wire_body done_body = {"DONE", done_rules, FIELD_COUNT(done_rules),
                                           &done_defaults, sizeof done_defaults};

int wire_put_done(struct wire_buffer *b, uint64_t request, const struct wire_done *done)
{
    return wire_put_body(b, WIRE_DONE, request, &done_body, done);
}

int wire_get_done(const uint8_t *body, size_t n, struct wire_done *out, struct quire_error *err)
{
    return wire_get_body(&done_body, body, n, out, err);
}

#define STATS(member, tag, kind) FIELD_SCALAR(struct wire_stats, member, tag, kind, 0, 0)
static const struct wire_field stats_rules[] = {
    STATS(n_running, 1, FIELD_32),
    STATS(n_waiting, 2, FIELD_32),
    STATS(n_waiting_tokens, 3, FIELD_64),
    STATS(kv_usage, 4, FIELD_64),
    STATS(n_preemptions, 5, FIELD_64),
    STATS(n_prefix_queries, 6, FIELD_64),
    STATS(n_prefix_hits, 7, FIELD_64),
    STATS(n_prompt_tokens, 8, FIELD_64),
    STATS(n_generation_tokens, 9, FIELD_64),
    STATS(n_steps, 10, FIELD_64),
    STATS(n_blocks_leaked, 11, FIELD_64),
    STATS(n_blocks, 12, FIELD_32),
    STATS(n_block_tokens, 13, FIELD_32),
    STATS(draining, 14, FIELD_BOOL),
    STATS(dead, 15, FIELD_BOOL),
};
static const struct wire_stats stats_defaults;
static const struct wire_body stats_body = {"STATS", stats_rules, FIELD_COUNT(stats_rules),
                                            &stats_defaults, sizeof stats_defaults};

int wire_put_stats(struct wire_buffer *b, const struct wire_stats *stats)
{
    return wire_put_body(b, WIRE_STATS, 0, &stats_body, stats);
}

int wire_get_stats(const uint8_t *body, size_t n, struct wire_stats *out, struct quire_error *err)
{
    return wire_get_body(&stats_body, body, n, out, err);
}
