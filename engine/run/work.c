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

/* A rank from joining its group to leaving it. */
struct rank {
    struct collective *collective;
    struct engine *engine;
    bool has_options; /* of its own: others started it */
    bool graphs;
    struct step_limits limits;
    uint64_t n_received; /* frames */
    uint64_t idle_ns; /* that it waited for them: rank 0 had nothing to say */
    uint64_t waited_before[COLLECTIVE_MAX_RANKS]; /* while all loaded */
    size_t max_bytes;
    unsigned char *payload; /* [max_bytes], once it has loaded */
    struct kv_move *moves;  /* of the largest frame */
};

/* Storage of a setup while the rank loads. */
struct setup_space {
    char texts[SETUP_MAX_BYTES]; /* of the options */
    unsigned char frame[SETUP_MAX_BYTES];
};

/* The options of rank 0 that a frame of the kind has. */
static int hear_options(struct rank *r, enum rank_frame kind, struct setup_space *space, struct engine_options *out,
                        struct quire_error *err)
{
    struct plan_frame frame;
    int status = plan_frame_receive(r->collective, r->n_received++, sizeof space->frame, &frame, space->frame, err);
    if (status == QUIRE_OK && frame.kind != kind)
        status = quire_fail(err, QUIRE_INVALID, "ranks: a frame of kind %u instead of the options", frame.kind);
    engine_options_default(out);
    return status == QUIRE_OK ? setup_read(space->frame, frame.n_bytes, space->texts, out, err) : status;
}

/* Receives rank 0's setup and checks it against this rank's own options. */
static int hear_setup(struct rank *r, const struct engine_options *own, struct setup_space *space,
                      struct engine_options *out, struct quire_error *err)
{
    struct quire_error other;
    int status = hear_options(r, RANK_GIVEN, space, out, err), differs = QUIRE_OK;
    if (status == QUIRE_OK && own)
        differs = setup_compare(out, own, collective_rank(r->collective), &other);
    if (status == QUIRE_OK)
        status = hear_options(r, RANK_SETUP, space, out, err);
    ranks_load_begins(r->collective);
    return status == QUIRE_OK && differs != QUIRE_OK ? quire_fail(err, differs, "%s", other.text) : status;
}

static int prepare(struct rank *r, const struct engine_options *o, struct quire_error *err)
{
    const uint32_t n_stages = o->pipeline_parallel_size > 1 ? o->pipeline_parallel_size : 1;
    const uint32_t n_places = o->tensor_parallel_size > 1 ? o->tensor_parallel_size : 1;
    if (n_stages > COLLECTIVE_MAX_RANKS || n_places != collective_size(r->collective) / n_stages ||
        n_places * n_stages != collective_size(r->collective))
        return quire_fail(err, QUIRE_INVALID, "ranks: %u stages of %u ranks, but the group has %u", n_stages, n_places,
                          collective_size(r->collective));
    r->engine = engine_new(err);
    if (!r->engine)
        return QUIRE_NO_MEMORY;
    r->engine->rank = collective_rank(r->collective);
    int status = rank_join(r->engine, r->collective, n_stages, err);
    return status == QUIRE_OK ? engine_prepare(r->engine, o, err) : status;
}

/* By rank 0's setup. own: this rank's own options, or NULL. */
static int load(struct rank *r, const struct engine_options *own, struct setup_space *space, struct quire_error *err)
{
    struct engine_options options;
    int status = hear_setup(r, own, space, &options, err);
    if (status == QUIRE_OK && own)
        setup_keep_own(&options, own);
    if (status == QUIRE_OK)
        status = prepare(r, &options, err);
    if (status != QUIRE_OK)
        rank_has_no_gpu(r->collective, r->engine, options.device);
    r->graphs = !options.enforce_eager;
    return status == QUIRE_OK ? engine_load(r->engine, &options, err) : status;
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
    r->limits = step_limits_of(&r->engine->model->desc, r->engine->plan);
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
    forward_begin(r->engine->forward, s.n_tokens, s.n_rows, s.n_outputs, s.n_entries, &batch);
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
    int status = forward_ready(r->engine->forward, r->graphs, err);
    if (status == QUIRE_OK && r->has_options)
        quire_log(QUIRE_LOG_INFO, "ranks", "rank %u computes on %s", r->engine->rank, r->engine->info->placement);
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
    struct setup_space *space = malloc(sizeof *space);
    if (!r || !space) {
        free(space);
        free(r);
        return quire_fail(err, QUIRE_NO_MEMORY, "ranks: out of memory");
    }
    r->has_options = given;
    if (given)
        own = *given;
    int status = given ? join(&own, over, &r->collective, err) : group_join(&r->collective, err);
    if (status != QUIRE_OK) {
        free(space);
        free(r);
        return status;
    }
    if (met)
        met();
    status = load(r, given ? &own : NULL, space, err);
    free(space);
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
