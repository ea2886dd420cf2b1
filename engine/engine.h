/* engine/: runs a model from a checkpoint. This module handles tokens and tensors, but no HTTP and no text.
 *
 * engine_open() maps the weights, plans memory, allocates every arena and starts the engine thread. Requests enter
 * through engine_submit() from any thread. Events leave through one sink, which is called on the engine thread.
 * Nothing is allocated on the device after engine_open() returns.
 *
 * A request gets the same tokens and logprob bits regardless of the other requests (numerics.md), unless the option
 * `invariance` gives that up. An error in a request ends that request only.
 *
 * Code that uses an open engine includes this header, info.h and stats.h. Code that opens an engine also includes
 * options.h. These headers expose no lower module (kernels, scheduler). */
#ifndef QUIRE_ENGINE_ENGINE_H
#define QUIRE_ENGINE_ENGINE_H

#include "base/status.h"
#include "engine/event.h"
#include "request/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct engine_options;          /* engine/options.h */

#define ENGINE_MAX_CLASSES 8u /* of service */
#define ENGINE_MAX_TENANTS 1024u

/* sink_context is passed to every call of the sink. */
int engine_open(const struct engine_options *options, engine_sink sink, void *sink_context, struct engine **out,
                struct quire_error *err);
/* Cancels all requests, joins the thread and frees everything. */
void engine_close(struct engine *e);

/* An engine of several ranks (options->tensor_parallel_size) consists of this process, which is rank 0, and further
 * processes of the same program, which engine_open() starts. main() must call this function first. If it returns
 * true, main() calls engine_work(), which returns when rank 0 closes the engine (QUIRE_OK) or a rank fails. */
bool engine_is_rank(void);
/* own: NULL, or the options of a rank that engine_rank() found. They are compared with rank 0's options, which are
 * used, except for the model's path and the number of threads. met: NULL, or called once when all ranks are
 * connected. over: NULL, or called by any thread when the group of ranks started from outside ends early, because
 * this rank's own thread may hang and not return. */
int engine_work(const struct engine_options *own, void (*met)(void), void (*over)(void), struct quire_error *err);

/* Ranks can also be started from outside, on one host or several, all with the same options. The launcher's
 * environment (mpirun and others) or an option then sets each process's rank. *rank receives this process's rank.
 * Rank 0 calls engine_open(); every other rank calls engine_work(). */
int engine_rank(const struct engine_options *options, uint32_t *rank, struct quire_error *err);

/* Any thread; the request arrives now. engine_id: the caller's, unique among live requests. The engine takes over
 * the content of spec, also on failure, and leaves it as request_spec_default() would. Returns QUIRE_EXHAUSTED if
 * the queue is full; *retry_after_ms then holds the delay before a retry. Returns QUIRE_INVALID with the parameter's
 * name in err. Prefix hashes are computed here, off the engine thread. */
int engine_submit(struct engine *e, uint64_t engine_id, struct request_spec *spec, uint32_t *retry_after_ms,
                  struct quire_error *err);
/* Any thread. Its DONE events (CANCELLED) still come. Unknown ids are ignored. */
void engine_cancel(struct engine *e, uint64_t request);
void engine_cancel_choice(struct engine *e, uint64_t request, uint32_t choice);
/* Any thread. Sets the expected answer of a request that was submitted without one. From the next step boundary on
 * it acts like the request's `prediction`. Only the first call for a request counts, and only the tokens that fit
 * into the model's context. tokens: allocated with malloc(); the engine takes ownership, also on failure. An id that
 * is not live is ignored. Returns QUIRE_INVALID if a value is not a token id. */
int engine_predict(struct engine *e, uint64_t request, uint32_t *tokens, uint32_t n, struct quire_error *err);

/* From here on new requests are rejected (QUIRE_EXHAUSTED). Running requests finish, and incomplete static batches
 * start. */
void engine_drain(struct engine *e);
/* With several ranks: returns QUIRE_UNAVAILABLE and the reason once the process group is over, even if the engine's
 * own thread hangs or computes and cannot notice. Any thread, until engine_close(). */
int engine_check(const struct engine *e, struct quire_error *err);

/* Any thread. Declares that no request follows for now, so that incomplete static batches start. */
void engine_no_more(struct engine *e);

/* Options of a new policy; 0 selects the policy's default. struct sched_policy_options defines them. */
struct engine_policy_options {
    uint64_t ageing_us;
    uint32_t class_weights[ENGINE_MAX_CLASSES];
    uint64_t class_ttft_us[ENGINE_MAX_CLASSES];
    uint32_t prompt_price, output_price, prefill_share;
};
/* Any thread; returns at once. A hit report: how often the client has served answers that it caches (keep_us of a
 * request) so far, which ranks their blocks from the next step boundary on. served: n_served triples of the low and high
 * half of a keep_name, and the count; copied. A name of zero drops the blocks of all cached answers. Of reports within
 * one step, the engine takes ENGINE_MAX_SERVED triples since the last zero name, and ignores the rest. */
#define ENGINE_MAX_SERVED 1024u
void engine_report_hits(struct engine *e, const uint32_t *served, uint32_t n_served);
/* Any thread; returns at once. Changes the scheduling policy at the next step boundary. Running requests continue,
 * and engine_stats() names the new policy once it is in effect. options: NULL keeps the options that the engine was
 * opened with. Tenants and their weights stay. Returns QUIRE_INVALID if the policy does not exist or rejects the
 * options. */
int engine_set_policy(struct engine *e, const char *name, const struct engine_policy_options *options, uint64_t *order,
                      struct quire_error *err);
/* Any thread; returns at once. Drops the pins of a tenant (UINT32_MAX: of all tenants) at the next step boundary. A
 * tenant that does not exist has no pins. */
uint64_t engine_unpin(struct engine *e, uint32_t tenant);
/* *order and the return value of engine_unpin() are the order's number, higher than all before it. An
 * ENGINE_EVENT_ORDER reports when the order is carried out, at the latest when the engine shuts down after a fatal
 * error, unless engine_close() comes first. One event may acknowledge several orders. 0 means that nothing is left
 * to do. */

#endif
