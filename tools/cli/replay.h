/* Computes a recording's answers again and compares every token and every logprob bit.
 *
 * A request's answer does not depend on when it runs or beside what, so requests are submitted as fast as the engine
 * takes them, under fcfs, whatever the recording's policy and pressure were. What was cut (cancelled, or the recording
 * ends) is compared up to there. What was refused, or cut before its first token, has no answer to compare.
 *
 * Nor does it depend on what was guessed of it: without speculation here, what was recorded with it is compared with what
 * was computed a token at a time; with it, the other way round.
 */
#ifndef QUIRE_TOOLS_REPLAY_H
#define QUIRE_TOOLS_REPLAY_H

#include "engine/record/recording.h"

#define REPLAY_MAX_SHOWN 16

enum replay_what { REPLAY_TOKEN, REPLAY_LOGPROB, REPLAY_LENGTH, REPLAY_FINISH };

struct replay_difference {
    uint64_t request; /* public id */
    uint32_t choice;
    enum replay_what what;
    uint32_t position;           /* TOKEN, LENGTH: of the token in prompt and answer, from 0 */
    uint32_t recorded, replayed; /* TOKEN: ids. LENGTH: tokens. FINISH: enum engine_finish */
};

struct replay_report {
    uint64_t n_requests;      /* in the recording */
    uint64_t n_compared, n_cut /* of those compared */, n_without_answer;
    uint64_t n_choices, n_tokens; /* compared */
    uint64_t n_different;         /* choices */
    uint64_t n_draft_tokens, n_accepted_tokens; /* of the replay: verified, and right */
    bool other_identity; /* identity_arithmetic is not that of the recorded engine: no wonder if some differ */
    uint32_t n_shown;
    struct replay_difference shown[REPLAY_MAX_SHOWN]; /* the first ones */
};

struct replay;

/* Reads the recording to its end; r stays open until replay_close(). */
int replay_open(struct recording *r, struct replay **out, struct quire_error *err);
uint64_t replay_n_tokens(const struct replay *p); /* that will be compared */
/* speculative: whose drafts every request has here, its own prediction's too; NULL: no request has any.
 * progress(context, tokens compared so far) is called now and then on this thread; may be NULL. */
int replay_run(struct replay *p, const char *model_dir, const struct speculative_config *speculative,
               void (*progress)(void *context, uint64_t n_tokens), void *context, struct replay_report *out,
               struct quire_error *err);
void replay_close(struct replay *p); /* NULL is fine */

#endif
