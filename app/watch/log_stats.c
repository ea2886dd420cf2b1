#include "app/watch/log_stats.h"

#include "base/clock.h"
#include "base/log.h"
#include "engine/stats.h"
#include "speculation/figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct log_stats {
    const struct engine *engine;
    struct event *tick;
    struct engine_stats before;
    double before_s;
    bool was_busy;
};

static double rounded(double value, double steps)
{
    return round(value * steps) / steps;
}

/* A rank is slow if another waits this share of the time for it and it does not wait for others. A rank that is waited
 * for because it waits itself, such as a stage for the next one, is not slow. */
#define SLOW_SHARE 0.1

/* Finds the rank with the largest difference between the time others wait for it and its own waiting time. Returns
 * false if no rank is slow. */
static bool find_slow(const struct log_stats *l, const struct engine_stats *now, double seconds, uint32_t *rank,
                      double *share)
{
    *share = 0;
    for (uint32_t p = 0; p < now->n_ranks; p++) {
        int64_t most = 0, own = 0;
        for (uint32_t r = 0; r < now->n_ranks; r++) {
            const int64_t its = (int64_t)(now->rank_waited_us[r][p] - l->before.rank_waited_us[r][p]);
            most = its > most ? its : most;
            own += (int64_t)(now->rank_waited_us[p][r] - l->before.rank_waited_us[p][r]);
        }
        const double net = (double)(most - own) / 1e6 / seconds;
        if (net > *share) {
            *rank = p;
            *share = net;
        }
    }
    return *share >= SLOW_SHARE;
}

static void say(const struct log_stats *l, const struct engine_stats *now, double seconds)
{
    const struct engine_stats *b = &l->before;
    uint64_t asked = now->n_prefix_queries - b->n_prefix_queries, hit = now->n_prefix_hits - b->n_prefix_hits;
    /* No request since the last line: uses the values of all earlier ones. */
    if (asked == 0) {
        asked = now->n_prefix_queries;
        hit = now->n_prefix_hits;
    }
    double prompt = (double)(now->n_prompt_tokens - b->n_prompt_tokens) / seconds;
    double generation = (double)(now->n_generation_tokens - b->n_generation_tokens) / seconds;
    double hits = asked ? (double)hit / (double)asked : 0;
    uint64_t drafted = now->n_draft_tokens - b->n_draft_tokens, right = now->n_accepted_tokens - b->n_accepted_tokens;
    double acceptance = draft_acceptance(drafted, right);
    double a_step = draft_tokens_a_step(now->n_generation_tokens - b->n_generation_tokens, right);
    char drafts[80] = "", slow[80] = "";
    uint32_t slow_rank = 0;
    double slow_share;
    const bool is_slow = find_slow(l, now, seconds, &slow_rank, &slow_share);
    struct quire_log_field fields[10] = {
        {.key = "running", .number = now->n_running},
        {.key = "waiting", .number = now->n_waiting},
        {.key = "prompt_tokens_per_s", .number = rounded(prompt, 10)},
        {.key = "generation_tokens_per_s", .number = rounded(generation, 10)},
        {.key = "kv_cache_usage", .number = rounded(now->kv_usage, 1000)},
        {.key = "prefix_cache_hit_rate", .number = rounded(hits, 1000)},
    };
    size_t n_all = 6;
    /* Without drafts, the line does not mention them. */
    if (drafted > 0) {
        fields[n_all++] = (struct quire_log_field){.key = "draft_acceptance_rate", .number = rounded(acceptance, 1000)};
        fields[n_all++] = (struct quire_log_field){.key = "tokens_a_step", .number = rounded(a_step, 1000)};
        snprintf(drafts, sizeof drafts, "; drafts %.1f%% accepted, %.2f tokens per step", 100 * acceptance, a_step);
    }
    if (is_slow) {
        fields[n_all++] = (struct quire_log_field){.key = "slow_rank", .number = slow_rank};
        fields[n_all++] = (struct quire_log_field){.key = "slow_rank_wait", .number = rounded(slow_share, 1000)};
        snprintf(slow, sizeof slow, "; others wait %.1f%% of the time for rank %u", 100 * slow_share, slow_rank);
    }
    /* The text format has the values in the sentence. */
    size_t n_fields = quire_log_format() == QUIRE_LOG_AS_JSON ? n_all : 0;
    quire_log_fields(QUIRE_LOG_INFO, "engine", fields, n_fields,
                     "running %u, waiting %u; prompt %.1f tokens/s, generation %.1f tokens/s; KV cache %.1f%% used, "
                     "prefix cache hit rate %.1f%%%s%s",
                     now->n_running, now->n_waiting, prompt, generation, 100 * now->kv_usage, 100 * hits, drafts, slow);
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    struct log_stats *l = context;
    struct engine_stats now;
    double now_s = quire_now_s();
    (void)fd;
    (void)what;
    engine_stats(l->engine, &now);
    bool busy = now.n_running > 0 || now.n_waiting > 0 || now.n_prompt_tokens != l->before.n_prompt_tokens ||
                now.n_generation_tokens != l->before.n_generation_tokens || now.n_steps != l->before.n_steps;
    if (busy || l->was_busy)
        say(l, &now, now_s - l->before_s);
    l->was_busy = busy;
    l->before = now;
    l->before_s = now_s;
}

int log_stats_begin(struct event_base *base, const struct engine *engine, uint32_t every_ms, struct log_stats **out,
                    struct quire_error *err)
{
    const struct timeval every = {.tv_sec = every_ms / 1000, .tv_usec = every_ms % 1000 * 1000};
    struct log_stats *l = *out = calloc(1, sizeof *l);
    if (l)
        l->tick = event_new(base, -1, EV_PERSIST, on_tick, l);
    if (!l || !l->tick || event_add(l->tick, &every) != 0)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    l->engine = engine;
    l->before_s = quire_now_s();
    engine_stats(engine, &l->before);
    return QUIRE_OK;
}

/* The waiting time of each rank since the start. */
static void say_waits(const struct log_stats *l)
{
    struct engine_stats now;
    char text[200] = "";
    size_t n = 0;
    engine_stats(l->engine, &now);
    for (uint32_t p = 0; p < now.n_ranks; p++) {
        uint64_t us = 0;
        for (uint32_t r = 0; r < now.n_ranks; r++)
            us += now.rank_waited_us[r][p];
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.1f s for rank %u", p ? ", " : "", (double)us / 1e6, p);
    }
    if (now.n_steps > 0 && now.n_ranks > 0)
        quire_log(QUIRE_LOG_INFO, "engine", "in %llu steps, ranks waited %s", (unsigned long long)now.n_steps, text);
}

void log_stats_end(struct log_stats *l)
{
    if (!l)
        return;
    say_waits(l);
    if (l->tick)
        event_free(l->tick);
    free(l);
}

struct cli_option log_stats_option(bool *disabled)
{
    return (struct cli_option){
        .names = "disable-log-stats",
        .kind = CLI_FLAG,
        .target = disabled,
        .help = "Do not log the statistics line, which appears every ten seconds while requests exist: running and "
                "waiting requests, tokens/s, KV cache."};
}
