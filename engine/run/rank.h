/* The operations of an engine that shares a model with other ranks. work.c (engine_work()) runs the other ranks. */
#ifndef QUIRE_ENGINE_RUN_RANK_H
#define QUIRE_ENGINE_RUN_RANK_H

#include "engine/run/state.h"
#include "engine/ranks/parts.h"
#include "kernels/open.h"

/* This rank's part of a group, of an engine that may never have one. NULL: out of memory. close: before the group is
 * left; free() it at last. */
struct rank_shared *rank_shared_new(struct quire_error *err);
void rank_shared_close(struct rank_shared *shared); /* NULL is fine */
/* The engine is a rank of this group with so many stages: e->collective. */
int rank_join(struct engine *e, struct collective *c, uint32_t n_stages, struct quire_error *err);

/* The group's collectives, of an engine with e->ranks or, of another rank, e->collective. */
struct forward_group rank_group(struct engine *e);

/* Finds this process's rank and the number of ranks and hosts. Settings of this host go into the options. */
int rank_find_position(struct engine_options *options, struct position *out, struct quire_error *err);
/* The options for the connection between ranks, from the engine's options and the place. */
int rank_hosts_options(const struct engine_options *options, const struct position *position, struct hosts_options *out,
                       struct quire_error *err);

/* Starts the other ranks of a prepared engine and sends them the setup: e->ranks. */
int rank_begin(struct engine *e, const struct engine_options *options, struct quire_error *err);

/* Called if an engine cannot be prepared: sends the reason to mpirun's other ranks, which wait for this one in
 * MPI_Init() and which MPICH does not end. */
void rank_give_up(const struct engine *e, const struct engine_options *options, const struct quire_error *why);

/* Chooses this rank's GPU (struct k_gpu_choice). Rank 0 takes the first, and reports it to the others in
 * rank_begin(). */
int rank_choose_gpu(void *engine, const struct k_gpu_id *seen, uint32_t n, uint32_t *out, struct quire_error *err);
/* For ranks on GPUs according to `device`: sends the message of rank_choose_gpu() if a rank failed before it. engine
 * may be NULL. */
void rank_has_no_gpu(struct collective *c, const struct engine *e, const char *device);

/* How far this rank came; of an engine that may be NULL where the status is no QUIRE_OK. */
void rank_report_make(const struct engine *e, int status, const char *text, struct rank_report *out);

/* Rank 0, between steps: reads how long ranks wait for each other, for engine_stats(). */
int rank_look(struct engine *e, bool is_idle, struct quire_error *err);

/* Once this rank has loaded: waits for the others, which must have loaded the same. */
int rank_agree(struct engine *e, struct quire_error *err);

#endif
