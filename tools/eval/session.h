/* A model that an evaluation asks: its tokenizer and an engine in this process, one request at a time.
 *
 * One thread calls. What the engine's own thread reports is collected inside. */
#ifndef QUIRE_TOOLS_EVAL_SESSION_H
#define QUIRE_TOOLS_EVAL_SESSION_H

#include "base/status.h"
#include "engine/info.h"
#include "text/quire_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eval_session;

/* How models are opened. Zeroed: the defaults. */
struct eval_how {
    const char *device; /* NULL: the CPU */
    uint32_t n_threads;
    uint32_t max_tokens; /* of a request, the answer included */
};

/* A row of logits of a prompt's token: token stands at `position`, and row [n_vocab] predicts it. Engine's thread. */
typedef void eval_row(void *context, uint32_t position, uint32_t token, const float *row, uint32_t n_vocab);

/* given: MODEL, or MODEL,OPTION=VALUE,... with the options quantization, kv-cache-dtype, dtype and activation-dtype of
 * `quire serve`. on_row: NULL, or called with all rows of eval_score(). */
int eval_open(const char *given, const struct eval_how *how, eval_row *on_row, void *context, struct eval_session **out,
              struct quire_error *err);
void eval_close(struct eval_session *s); /* NULL is fine */
const char *eval_name(const struct eval_session *s); /* as it was given */
const char *eval_dir(const struct eval_session *s);
const struct quire_text *eval_text(const struct eval_session *s);
const struct engine_info *eval_info(const struct eval_session *s);

/* Natural logarithms of the probabilities of ids[1..n), each after all before it; logprobs[0] is 0. */
int eval_score(struct eval_session *s, const uint32_t *ids, uint32_t n, float *logprobs, struct quire_error *err);

struct eval_answer {
    uint32_t n; /* tokens */
    double prefill_s, decode_s; /* until the first token; from there to the last */
};
/* Greedy, through ends of text: most tokens, ids[most]. */
int eval_generate(struct eval_session *s, const uint32_t *prompt, uint32_t n_prompt, uint32_t most, uint32_t *ids,
                  struct eval_answer *out, struct quire_error *err);

#endif
