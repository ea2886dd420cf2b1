#include "engine/ranks/ranks.h"

#include "base/clock.h"
#include "engine/ranks/setup.h"
#include "parallel/group.h"
#include "parallel/plan_frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Loading: the ranks are as far apart as a slow disk puts them; one that dies, is stopped or does nothing is noticed long before. */
#define LOAD_TIMEOUT_MS (30u * 60 * 1000)

#define LOOK_EVERY_US 1000000u

struct ranks {
    struct group *group; /* NULL: others have started them */
    struct collective *collective;
    uint32_t n_ranks;
    uint64_t n_sent; /* frames */
    struct step_limits limits;
    void *payload; /* buffer for the largest frame; NULL before ranks_ready() */
    bool is_ahead; /* about the other ranks: the last step returned nothing from them */
    bool has_stepped; /* a step was sent since the last query of wait times */
    uint64_t look_us; /* when to ask again */
    uint64_t waited_before[COLLECTIVE_MAX_RANKS]; /* while they loaded */
};

int ranks_start(uint32_t n_ranks, struct ranks **out, struct quire_error *err)
{
    static char name[] = "quire", command[] = "rank";
    static char *const argv[] = {name, command, NULL};
    const struct group_options options = {.n_ranks = n_ranks, .argv = argv};
    struct ranks *r = calloc(1, sizeof *r);
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "ranks: out of memory");
    r->n_ranks = n_ranks;
    int status = group_start(&options, &r->group, err);
    if (status != QUIRE_OK) {
        free(r);
        return status;
    }
    r->collective = group_collective(r->group);
    *out = r;
    return QUIRE_OK;
}

int ranks_meet(const struct hosts_options *options, struct ranks **out, struct quire_error *err)
{
    struct ranks *r = calloc(1, sizeof *r);
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "ranks: out of memory");
    r->n_ranks = options->position->size;
    int status = hosts_join(options, &r->collective, err);
    if (status != QUIRE_OK) {
        free(r);
        return status;
    }
    *out = r;
    return QUIRE_OK;
}

struct collective *ranks_collective(struct ranks *r)
{
    return r->collective;
}

int ranks_check(struct ranks *r, struct quire_error *err)
{
    return r->group ? group_check(r->group, err) : collective_check(r->collective, err);
}

/* The group knows better than the call that failed why it did. */
static int explain(struct ranks *r, int status, struct quire_error *err)
{
    struct quire_error why;
    if (status != QUIRE_OK && ranks_check(r, &why) != QUIRE_OK)
        *err = why;
    return status;
}

static int send(struct ranks *r, enum rank_frame kind, const void *payload, size_t n_bytes, struct quire_error *err)
{
    const struct plan_frame frame = {.step = r->n_sent++, .kind = kind, .n_bytes = n_bytes};
    return explain(r, plan_frame_send(r->collective, &frame, payload, err), err);
}

void ranks_stop(struct ranks *r)
{
    struct quire_error err;
    if (!r)
        return;
    if (ranks_check(r, &err) == QUIRE_OK && send(r, RANK_STOP, "", 0, &err) != QUIRE_OK)
        collective_abort(r->collective, err.text);
    if (r->group)
        group_stop(r->group);
    else
        collective_leave(r->collective);
    free(r->payload);
    free(r);
}

int ranks_setup(struct ranks *r, const struct engine_options *given, const struct engine_options *own,
                struct quire_error *err)
{
    char *payload = malloc(SETUP_MAX_BYTES);
    size_t n_bytes;
    if (!payload)
        return quire_fail(err, QUIRE_NO_MEMORY, "ranks: out of memory");
    int status = setup_write(given, payload, &n_bytes, err);
    if (status == QUIRE_OK)
        status = send(r, RANK_GIVEN, payload, n_bytes, err);
    if (status == QUIRE_OK)
        status = setup_write(own, payload, &n_bytes, err);
    if (status == QUIRE_OK)
        status = send(r, RANK_SETUP, payload, n_bytes, err);
    ranks_load_begins(r->collective);
    free(payload);
    return status;
}

void ranks_load_begins(struct collective *c)
{
    collective_set_timeout(c, LOAD_TIMEOUT_MS);
}

int ranks_ready(struct ranks *r, const struct step_limits *limits, struct quire_error *err)
{
    struct collective_stats stats;
    collective_get_stats(r->collective, &stats);
    memcpy(r->waited_before, stats.waited_ns, sizeof r->waited_before);
    r->limits = *limits;
    r->payload = malloc(step_frame_max_bytes(limits));
    return r->payload ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "ranks: out of memory");
}

int ranks_step(struct ranks *r, const struct forward_batch *batch, struct quire_error *err)
{
    if (batch->n_sources > 0)
        return quire_fail(err, QUIRE_INTERNAL, "ranks: rank 0 does not know the step's tokens yet");
    r->is_ahead = batch->n_outputs == 0;
    r->has_stepped = true;
    return send(r, RANK_STEP, r->payload, step_frame_write(&r->limits, batch, r->payload), err);
}

int ranks_move(struct ranks *r, const struct kv_move *moves, uint32_t n_moves, struct quire_error *err)
{
    const uint32_t max = step_frame_max_moves(&r->limits);
    int status = QUIRE_OK;
    for (uint32_t at = 0, n; at < n_moves && status == QUIRE_OK; at += n) {
        n = n_moves - at < max ? n_moves - at : max;
        status = send(r, RANK_MOVES, r->payload, moves_frame_write(moves + at, n, r->payload), err);
    }
    return status;
}

/* ---- wait times ---- */

int ranks_tell_waits(struct collective *c, const uint64_t ns[COLLECTIVE_MAX_RANKS], struct quire_error *err)
{
    return collective_gather(c, ns, COLLECTIVE_MAX_RANKS * sizeof *ns, 0, NULL, err);
}

int ranks_look(struct ranks *r, bool is_idle, struct rank_waits *out, struct quire_error *err)
{
    const uint64_t now_us = quire_now_us();
    struct collective *c = r->collective;
    struct collective_stats stats;
    if (!r->has_stepped || now_us < r->look_us || (r->is_ahead && !is_idle))
        return QUIRE_OK;
    r->look_us = now_us + LOOK_EVERY_US;
    r->has_stepped = false;
    collective_get_stats(c, &stats);
    for (uint32_t p = 0; p < COLLECTIVE_MAX_RANKS; p++)
        stats.waited_ns[p] -= r->waited_before[p];
    int status = send(r, RANK_WAITS, "", 0, err);
    if (status == QUIRE_OK)
        status = explain(r, collective_gather(c, stats.waited_ns, sizeof stats.waited_ns, 0, out->ns, err), err);
    return status;
}

/* ---- agreement ---- */

static int compare_digests(const char *what, uint32_t rank, const struct key256 *own, uint32_t other_rank,
                           const struct key256 *other, struct quire_error *err)
{
    char a[65], b[65];
    if (memcmp(own, other, sizeof *own) == 0)
        return QUIRE_OK;
    quire_key256_hex(own, a);
    quire_key256_hex(other, b);
    return quire_fail(err, QUIRE_INVALID, "the %s of rank %u have the digest %.16s, but those of rank %u have %.16s",
                      what, rank, a, other_rank, b);
}

static int compare(const struct rank_report *own, uint32_t rank, const struct rank_report *other, uint32_t other_rank,
                   struct quire_error *err)
{
    if (other->status != QUIRE_OK)
        return quire_fail(err, other->status, "rank %u: %.*s", other_rank, (int)sizeof other->text - 1, other->text);
    if (strncmp(own->version, other->version, sizeof own->version) != 0)
        return quire_fail(err, QUIRE_INVALID, "rank %u runs quire %.40s, but rank %u runs %.40s: install one version",
                          rank, own->version, other_rank, other->version);
    if (own->numerics != other->numerics)
        return quire_fail(err, QUIRE_INVALID,
                          "rank %u has numerics version %u, but rank %u has %u: install one version", rank,
                          own->numerics, other_rank, other->numerics);
    if (strncmp(own->form, other->form, sizeof own->form) != 0)
        return quire_fail(
            err, QUIRE_INVALID,
            "rank %u computes GEMMs in the form %.32s, but rank %u in %.32s: select a form that both have with --gemm-form",
            rank, own->form, other_rank, other->form);
    int status = compare_digests("weights", rank, &own->weights, other_rank, &other->weights, err);
    if (status == QUIRE_OK)
        status = compare_digests("settings in config.json and generation_config.json", rank, &own->model, other_rank,
                                 &other->model, err);
    if (status != QUIRE_OK)
        return status;
    if (memcmp(&own->limits, &other->limits, sizeof own->limits) != 0)
        return quire_fail(err, QUIRE_INTERNAL,
                          "rank %u was opened for %u tokens, %u rows and %u blocks a step, rank %u for %u, %u and %u",
                          rank, own->limits.n_tokens, own->limits.n_rows, own->limits.n_blocks[0], other_rank,
                          other->limits.n_tokens, other->limits.n_rows, other->limits.n_blocks[0]);
    return QUIRE_OK;
}

int ranks_agree(struct collective *c, const struct rank_report *own, struct quire_error *err)
{
    const uint32_t n = collective_size(c), rank = collective_rank(c);
    struct rank_report *all = calloc(n, sizeof *all);
    if (!all)
        return quire_fail(err, QUIRE_NO_MEMORY, "ranks: out of memory");
    ranks_load_begins(c);
    int status = collective_all_gather(c, own, sizeof *own, all, err);
    collective_set_timeout(c, COLLECTIVE_TIMEOUT_MS);
    for (uint32_t r = 0; r < n && status == QUIRE_OK; r++)
        status = compare(own, rank, &all[r], r, err);
    free(all);
    return status;
}
