/* Runs a rank other than 0: it loads according to rank 0's setup and computes its share of each step. */
#include "base/log.h"
#include "engine/engine.h"
#include "engine/ranks/setup.h"
#include "engine/run/open.h"
#include "engine/run/rank.h"
#include "parallel/group.h"
#include "parallel/plan_frame.h"

#include <stdlib.h>
#include <string.h>

/* The setup that a rank received; the texts of `options` lie in `texts`. */
struct rank {
    struct collective *collective;
    struct engine *engine;
    struct engine_options options;
    struct step_limits limits;
    uint64_t n_received; /* frames */
    uint64_t idle_ns; /* that it waited for them: rank 0 had nothing to say */
    uint64_t waited_before[COLLECTIVE_MAX_RANKS]; /* while all loaded */
    const struct engine_options *own; /* NULL: it has no options of its own */
    char texts[SETUP_MAX_BYTES];
    unsigned char setup[SETUP_MAX_BYTES];
    size_t max_bytes;
    unsigned char *payload; /* [max_bytes], once it has loaded */
    struct kv_move *moves;  /* of the largest frame */
};

/* The options of rank 0 that a frame of the kind has. */
static int hear_options(struct rank *r, enum rank_frame kind, struct quire_error *err)
{
    struct plan_frame frame;
    int status = plan_frame_receive(r->collective, r->n_received++, sizeof r->setup, &frame, r->setup, err);
    if (status == QUIRE_OK && frame.kind != kind)
        status = quire_fail(err, QUIRE_INVALID, "ranks: a frame of kind %u instead of the options", frame.kind);
    engine_options_default(&r->options);
    return status == QUIRE_OK ? setup_read(r->setup, frame.n_bytes, r->texts, &r->options, err) : status;
}

/* The rank's own options override rank 0's for the model's path and the resources of its host. */
static void keep_own(struct rank *r)
{
    r->options.model_dir = r->own->model_dir;
    r->options.repack_cache = r->own->repack_cache;
    r->options.cpu_bind = r->own->cpu_bind;
    r->options.n_threads = r->own->n_threads;
    r->options.gpu_memory_utilization = r->own->gpu_memory_utilization;
    r->options.local_ranks = r->own->local_ranks;
    r->options.message_bytes = r->own->message_bytes;
}

/* Receives rank 0's setup and checks it against this rank's own options. */
static int hear_setup(struct rank *r, struct quire_error *err)
{
    struct quire_error other;
    int status = hear_options(r, RANK_GIVEN, err), differs = QUIRE_OK;
    if (status == QUIRE_OK && r->own)
        differs = setup_compare(&r->options, r->own, collective_rank(r->collective), &other);
    if (status == QUIRE_OK)
        status = hear_options(r, RANK_SETUP, err);
    ranks_load_begins(r->collective);
    return status == QUIRE_OK && differs != QUIRE_OK ? quire_fail(err, differs, "%s", other.text) : status;
}

static int prepare(struct rank *r, struct quire_error *err)
{
    if (r->own)
        keep_own(r);
    const uint32_t n_stages = r->options.pipeline_parallel_size > 1 ? r->options.pipeline_parallel_size : 1;
    const uint32_t n_places = r->options.tensor_parallel_size > 1 ? r->options.tensor_parallel_size : 1;
    if (n_stages > COLLECTIVE_MAX_RANKS || n_places != collective_size(r->collective) / n_stages ||
        n_places * n_stages != collective_size(r->collective))
        return quire_fail(err, QUIRE_INVALID, "ranks: %u stages of %u ranks, but the group has %u", n_stages, n_places,
                          collective_size(r->collective));
    r->engine = engine_new(err);
    if (!r->engine)
        return QUIRE_NO_MEMORY;
    r->engine->rank = collective_rank(r->collective);
    r->engine->collective = r->collective;
    int status = parts_open(r->collective, n_stages, &r->engine->parts, err);
    return status == QUIRE_OK ? engine_prepare(r->engine, &r->options, err) : status;
}

static int load(struct rank *r, struct quire_error *err)
{
    int status = hear_setup(r, err);
    if (status == QUIRE_OK)
        status = prepare(r, err);
    if (status != QUIRE_OK)
        rank_has_no_gpu(r->collective, r->engine, r->options.device);
    return status == QUIRE_OK ? engine_load(r->engine, &r->options, err) : status;
}

/* Reports to rank 0 why this rank cannot take part. */
static int agree(struct rank *r, int status, struct quire_error *err)
{
    struct rank_report own;
    struct quire_error other;
    if (status == QUIRE_OK)
        return rank_agree(r->engine, err);
    rank_report_make(r->engine, status, err->text, &own);
    ranks_agree(r->collective, &own, &other);
    return status;
}

static int make_space(struct rank *r, struct quire_error *err)
{
    r->limits = step_limits_of(&r->engine->desc, &r->engine->plan);
    r->max_bytes = step_frame_max_bytes(&r->limits);
    r->payload = malloc(r->max_bytes);
    r->moves = malloc((step_frame_max_moves(&r->limits) + 1) * sizeof *r->moves);
    return r->payload && r->moves ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "ranks: out of memory");
}

static int do_step(struct rank *r, size_t n_bytes, struct quire_error *err)
{
    struct forward_batch batch;
    struct step_sizes s;
    int status = step_frame_sizes(&r->limits, r->payload, n_bytes, &s, err);
    if (status != QUIRE_OK)
        return status;
    forward_begin(r->engine->forward, s.n_tokens, s.n_rows, s.n_logits, s.n_entries, &batch);
    status = step_frame_read(&r->limits, r->payload, &batch, err);
    return status == QUIRE_OK ? forward_follow(r->engine->forward, &batch, err) : status;
}

static int do_moves(struct rank *r, size_t n_bytes, struct quire_error *err)
{
    uint32_t n;
    int status = moves_frame_read(&r->limits, r->payload, n_bytes, r->moves, &n, err);
    return status == QUIRE_OK ? forward_move(r->engine->forward, r->moves, n, err) : status;
}

static int tell_waits(struct rank *r, struct quire_error *err)
{
    struct collective_stats stats;
    collective_get_stats(r->collective, &stats);
    for (uint32_t p = 0; p < COLLECTIVE_MAX_RANKS; p++)
        stats.waited_ns[p] -= r->waited_before[p];
    stats.waited_ns[0] -= r->idle_ns;
    return ranks_tell_waits(r->collective, stats.waited_ns, err);
}

static int receive(struct rank *r, struct plan_frame *frame, struct quire_error *err)
{
    struct collective_stats before, after;
    collective_get_stats(r->collective, &before);
    const int status = plan_frame_receive(r->collective, r->n_received++, r->max_bytes, frame, r->payload, err);
    collective_get_stats(r->collective, &after);
    r->idle_ns += after.waited_ns[0] - before.waited_ns[0];
    return status;
}

/* Until rank 0 says that it is over. */
static int follow(struct rank *r, struct quire_error *err)
{
    struct collective_stats stats;
    collective_get_stats(r->collective, &stats);
    memcpy(r->waited_before, stats.waited_ns, sizeof r->waited_before);
    for (;;) {
        struct plan_frame frame;
        int status = receive(r, &frame, err);
        if (status != QUIRE_OK)
            return status;
        switch (frame.kind) {
        case RANK_STEP: status = do_step(r, frame.n_bytes, err); break;
        case RANK_MOVES: status = do_moves(r, frame.n_bytes, err); break;
        case RANK_WAITS: status = tell_waits(r, err); break;
        case RANK_STOP: return QUIRE_OK;
        default: status = quire_fail(err, QUIRE_INVALID, "ranks: unexpected frame of kind %u", frame.kind); break;
        }
        if (status != QUIRE_OK)
            return status;
    }
}

/* Runs in a group that has agreed. If it ends with an error, it reports the reason to rank 0, unless the group was
 * over before. */
static int take_part(struct rank *r, struct quire_error *err)
{
    int status = forward_ready(r->engine->forward, !r->options.enforce_eager, err);
    if (status == QUIRE_OK && r->own)
        quire_log(QUIRE_LOG_INFO, "ranks", "rank %u computes on %s", r->engine->rank, r->engine->info.placement);
    if (status == QUIRE_OK)
        status = make_space(r, err);
    if (status == QUIRE_OK)
        status = follow(r, err);
    if (status != QUIRE_OK)
        collective_abort(r->collective, err->text);
    return status;
}

bool engine_is_rank(void)
{
    return group_is_worker();
}

/* A rank that was started from outside joins the group by address. Otherwise rank 0 passed the group's location. */
static int join(struct engine_options *own, void (*over)(void), struct collective **out, struct quire_error *err)
{
    struct hosts_options hosts;
    struct position position;
    int status = rank_find_position(own, &position, err);
    if (status == QUIRE_OK)
        status = rank_hosts_options(own, &position, &hosts, err);
    if (status != QUIRE_OK)
        return status;
    hosts.over = over;
    return hosts_join(&hosts, out, err);
}

int engine_work(const struct engine_options *given, void (*met)(void), void (*over)(void), struct quire_error *err)
{
    struct engine_options own;
    struct rank *r = calloc(1, sizeof *r);
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "ranks: out of memory");
    if (given) {
        own = *given;
        r->own = &own;
    }
    int status = given ? join(&own, over, &r->collective, err) : group_join(&r->collective, err);
    if (status != QUIRE_OK) {
        free(r);
        return status;
    }
    if (met)
        met();
    status = load(r, err);
    status = agree(r, status, err);
    if (status == QUIRE_OK)
        status = take_part(r, err);
    engine_close(r->engine);
    collective_leave(r->collective);
    free(r->payload);
    free(r->moves);
    free(r);
    return status;
}
