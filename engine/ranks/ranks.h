/* The ranks of an engine. Rank 0 schedules, samples and answers; the others are processes of the same program
 * that compute their share of each step and decide nothing: what a step is comes to them as one frame, checked and numbered,
 * so that a rank that missed or garbled one ends the group instead of computing something else.
 *
 * A group's life: setup (options), agreement (all have loaded the same model), steps and moves, stop. Every failure is the
 * group's end: QUIRE_UNAVAILABLE names the rank. Engine thread only, but for ranks_check().
 */
#ifndef QUIRE_ENGINE_RANKS_H
#define QUIRE_ENGINE_RANKS_H

#include "base/hash.h"
#include "engine/ranks/step_frame.h"
#include "parallel/collective.h"
#include "parallel/hosts/hosts.h"

#include <stdbool.h>

/* ---- rank 0 ---- */

struct ranks;

/* Starts ranks 1 .. n_ranks - 1. */
int ranks_start(uint32_t n_ranks, struct ranks **out, struct quire_error *err);
/* Waits for those that others have started. */
int ranks_meet(const struct hosts_options *options, struct ranks **out, struct quire_error *err);
/* Ends the other ranks and reaps their processes. NULL has no effect. */
void ranks_stop(struct ranks *r);

struct collective *ranks_collective(struct ranks *r);

/* Sends the setup before this rank loads anything large, so that all ranks load at the same time. `given` holds rank
 * 0's options, and `own` the same options with decisions in place of defaults. */
int ranks_setup(struct ranks *r, const struct engine_options *given, const struct engine_options *own,
                struct quire_error *err);

/* From then on steps within the limits can be sent. */
int ranks_ready(struct ranks *r, const struct step_limits *limits, struct quire_error *err);

/* Before forward_run() and forward_move() of the same. */
int ranks_step(struct ranks *r, const struct forward_batch *batch, struct quire_error *err);
int ranks_move(struct ranks *r, const struct kv_move *moves, uint32_t n_moves, struct quire_error *err);

/* How long each rank has waited for each other rank within steps since loading ended: [rank][other rank], ns. */
struct rank_waits {
    uint64_t ns[COLLECTIVE_MAX_RANKS][COLLECTIVE_MAX_RANKS];
};
/* Queries all ranks about once a second, between steps when no rank is behind. is_idle: no step runs. *out stays
 * unchanged if the second has not passed. */
int ranks_look(struct ranks *r, bool is_idle, struct rank_waits *out, struct quire_error *err);

/* Is the group over, and why? Any thread. */
int ranks_check(struct ranks *r, struct quire_error *err);

/* ---- the others ---- */

enum rank_frame { RANK_SETUP = 1, RANK_STEP, RANK_MOVES, RANK_STOP, RANK_WAITS, RANK_GIVEN };

/* Its own row, after RANK_WAITS. */
int ranks_tell_waits(struct collective *c, const uint64_t ns[COLLECTIVE_MAX_RANKS], struct quire_error *err);

/* ---- all ---- */

/* How far a rank came, and with what: of all ranks the same but for the status and its text. */
struct rank_report {
    int32_t status;
    uint32_t numerics;
    char text[QUIRE_ERROR_BYTES];
    struct key256 weights; /* checkpoint_digest() */
    struct key256 model; /* model_identity() */
    struct step_limits limits;
    char version[64]; /* the program's */
    char form[32]; /* its GEMM form; hosts may have different CPUs */
};

/* Before anything large is loaded: from here on ranks may be far apart, until they agree. */
void ranks_load_begins(struct collective *c);

/* Waits until every rank has come here, for as long as they live and do something. An error where one of them failed, or loaded something
 * else than this one: the message names the rank, and both where they differ. */
int ranks_agree(struct collective *c, const struct rank_report *own, struct quire_error *err);

#endif
