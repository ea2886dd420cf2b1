/* Recomputes a recording's answers and compares every token and every logprob bit.
 *
 * An answer does not depend on when its request runs or on other requests. The requests are therefore submitted as fast
 * as the engine accepts them, under fcfs, whatever the recording's policy and load were. A request that was cut
 * (cancelled, or by the recording's end) is compared up to the cut. A request that was rejected, or cut before its
 * first token, has no answer to compare.
 *
 * Answers do not depend on drafts either. Without speculation here, answers recorded with it are compared with answers
 * computed token by token; with speculation, the reverse.
 */
#ifndef QUIRE_APP_REPLAY_REPLAY_H
#define QUIRE_APP_REPLAY_REPLAY_H

#include "engine/grammars.h"
#include "engine/record/recording.h"

#define REPLAY_MAX_SHOWN 16

enum replay_what { REPLAY_TOKEN, REPLAY_LOGPROB, REPLAY_LENGTH, REPLAY_FINISH };

struct replay_difference {
    uint64_t request; /* public id */
    uint32_t choice;
    enum replay_what what;
    uint32_t position;           /* TOKEN, LENGTH: position of the token in prompt and answer, from 0 */
    uint32_t recorded, replayed; /* TOKEN: ids. LENGTH: tokens. FINISH: enum engine_finish */
};

struct replay_report {
    uint64_t n_requests;      /* in the recording */
    uint64_t n_compared, n_cut /* of those compared */, n_without_answer;
    uint64_t n_choices, n_tokens; /* compared */
    uint64_t n_different;         /* choices */
    uint64_t n_draft_tokens, n_accepted_tokens; /* verified and accepted draft tokens of the replay */
    bool other_identity; /* identity_arithmetic differs from the recorded engine's, so differences are expected */
    uint32_t n_shown;
    struct replay_difference shown[REPLAY_MAX_SHOWN]; /* the first ones */
};

struct replay;

/* Reads the recording to its end; r must stay open until replay_close(). */
int replay_open(struct recording *r, struct replay **out, struct quire_error *err);
uint64_t replay_n_tokens(const struct replay *p); /* tokens to compare */
/* The functions for requests with a grammar; without them such a request ends with an error. Borrowed until
 * replay_close(). */
void replay_use_grammars(struct replay *p, const struct engine_grammars *grammars);
/* speculative: the drafting method of every request, including its own prediction; NULL: no drafts. progress(context,
 * tokens compared so far) is called at intervals on this thread; may be NULL. */
int replay_run(struct replay *p, const char *model_dir, const struct speculative_config *speculative,
               void (*progress)(void *context, uint64_t n_tokens), void *context, struct replay_report *out,
               struct quire_error *err);
void replay_close(struct replay *p); /* NULL is allowed */

#endif
