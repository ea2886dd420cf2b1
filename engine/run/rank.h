/* What an engine that shares a model with others needs of its group; the others' whole life is work.c (engine_work()). */
#ifndef QUIRE_ENGINE_RUN_RANK_H
#define QUIRE_ENGINE_RUN_RANK_H

#include "engine/run/state.h"

/* The group's collectives, of an engine with e->ranks or, of another rank, e->collective. */
struct forward_group rank_group(struct engine *e);

/* Which rank this process is, of how many on which hosts; what is so of this host goes into the options. */
int rank_find_place(struct engine_options *options, struct place *out, struct quire_error *err);
/* That which the options and the place say of how ranks meet. */
int rank_hosts_options(const struct engine_options *options, const struct place *place, struct hosts_options *out,
                       struct quire_error *err);

/* Starts the other ranks of a prepared engine and tells them what to load: e->ranks. */
int rank_begin(struct engine *e, const struct engine_options *options, struct quire_error *err);

/* Where an engine cannot be prepared: tells mpirun's other ranks why, which wait in MPI_Init() for this one and which MPICH's does not end. */
void rank_give_up(const struct engine *e, const struct engine_options *options, const struct quire_error *why);

/* Which GPU is this rank's (struct k_gpu_choice); rank 0's is the first, and it tells the others in rank_begin(). */
int rank_choose_gpu(void *engine, const struct k_gpu_id *seen, uint32_t n, uint32_t *out, struct quire_error *err);
/* Of ranks on GPUs that `device` says: what rank_choose_gpu() would have told, of one that did not come so far. engine may be NULL. */
void rank_has_no_gpu(struct collective *c, const struct engine *e, const char *device);

/* How far this rank came; of an engine that may be NULL where the status is no QUIRE_OK. */
void rank_report_make(const struct engine *e, int status, const char *text, struct rank_report *out);

/* Of rank 0, between steps: how long ranks wait for each other, for engine_stats(). */
int rank_look(struct engine *e, bool is_idle, struct quire_error *err);

/* Once this rank has loaded: waits for the others, which must have loaded the same. */
int rank_agree(struct engine *e, struct quire_error *err);

#endif
