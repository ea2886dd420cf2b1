/* A cached response as bytes: every token, logprob and number that a completion source reported for one prompt, so
 * that it can be served again bit for bit. It is kept in memory, in a file or by another process. Data that is read
 * back is untrusted until answer_check() has passed it: the bytes carry a version, the key they answer, their length
 * and a checksum.
 *
 * The effects of drafts, predictions and queues are left out, because they describe how the answer was computed, not
 * the answer.
 *
 * Any thread, but a writer or reader is used by one thread at a time.
 */
#ifndef QUIRE_CACHE_ANSWER_H
#define QUIRE_CACHE_ANSWER_H

#include "base/buffer.h"
#include "base/hash.h"
#include "base/status.h"
#include "server/wire/records.h"

#define ANSWER_VERSION 2u
#define ANSWER_MAX_BYTES \
    ((size_t)512 << 10) /* hashing it takes 2 ms of the loop; 47,000 tokens, 2,900 with 20 logprobs */

/* ---- writing ---- */
struct answer_writer { /* ended by answer_end() or answer_drop() */
    struct buffer bytes;
    uint64_t begun_us, last_us; /* monotonic: pauses between events are kept, for replays at the pace it had */
    struct key256 key;
    uint32_t n_choices, n_done, n_prompt, n_cached, n_question;
    uint64_t n_generated;
};
/* question: the question's text, compared with later questions; copied up to ANSWER_MAX_QUESTION bytes. NULL stores
 * no question. */
#define ANSWER_MAX_QUESTION ((size_t)16 << 10)
struct answer_question {
    const char *text;
    size_t n;
};
void answer_begin(struct answer_writer *w, struct key256 key, uint32_t n_choices, struct answer_question question,
                  uint64_t now_us);
void answer_token(struct answer_writer *w, const struct wire_token *token, uint64_t now_us);
void answer_prompt_logprob(struct answer_writer *w, const struct wire_token *token, uint64_t now_us);
/* Ends a choice that stopped, reached its length or was cut by the client. Nothing else can be written for it. */
void answer_done(struct answer_writer *w, const struct wire_done *done, uint64_t now_us);
/* Every choice is over: the bytes are whole, and the caller's (buffer_free()). False: there was no memory, or they are
 * more than ANSWER_MAX_BYTES. */
struct answer;
bool answer_end(struct answer_writer *w, int64_t created_s, bool unseeded, struct buffer *out, struct answer *answer);
void answer_drop(struct answer_writer *w);
/* The events written so far, for answer_next(). The pointer is invalid after the next call above. */
struct answer_events {
    const uint8_t *bytes;
    size_t n;
};
struct answer_events answer_so_far(const struct answer_writer *w);

/* ---- reading ---- */
struct answer { /* borrows the bytes */
    struct key256 key;
    int64_t created_s;
    uint64_t took_us; /* from its submission to its end, when it was computed */
    uint32_t n_choices, n_prompt, n_cached; /* n_cached: of the prompt, by the prefix cache */
    uint64_t n_generated; /* by all choices */
    bool unseeded; /* drawn without a seed: another draw was as likely */
    struct answer_question question; /* text is NULL if no question was stored */
    struct answer_events events;
};
/* Returns QUIRE_INVALID with the fault: version, key, length, checksum, or an event out of order or range. n_vocab:
 * ids are below it. An answer that passes is complete: each choice ends once, and nothing follows its end. */
int answer_check(const void *bytes, size_t n, const struct key256 *key, uint32_t n_vocab, struct answer *out,
                 struct quire_error *err);

/* Its bytes lie elsewhere now. */
void answer_moved(struct answer *a, const void *from, const void *to);
/* The longest time to live. Also the largest difference between clocks of servers that share answers, or of one
 * clock before and after it was set. */
#define ANSWER_MAX_TTL_S 2592000
#define ANSWER_CLOCKS_DIFFER_S 60
/* Whether the answer may be served by this clock: before its end, not created in the future, and not valid for
 * longer than the limit. The latter two mean that a clock was wrong when the answer was created, or is wrong now. */
static inline bool answer_is_timely(int64_t created_s, int64_t expires_s, int64_t now_s)
{
    return expires_s > now_s && expires_s - now_s <= ANSWER_MAX_TTL_S + ANSWER_CLOCKS_DIFFER_S &&
           created_s <= now_s + ANSWER_CLOCKS_DIFFER_S;
}

/* The key that bytes say they have. False: they are too few. */
bool answer_key(const void *bytes, size_t n, struct key256 *out);

enum answer_kind { ANSWER_TOKEN, ANSWER_PROMPT_LOGPROB, ANSWER_DONE };
struct answer_ending { /* of a choice; members as in struct wire_done */
    uint32_t choice, finish;
    bool last, has_stop_token;
    uint32_t stop_token;
    uint32_t n_prompt, n_cached, n_generated, n_created;
};
struct answer_event {
    enum answer_kind kind;
    uint32_t pause_us; /* since the event before */
    struct wire_token token;
    struct answer_ending done;
};
/* *cursor starts at 0. Returns false if no event follows (yet), or if unchecked bytes hold no valid one. */
bool answer_next(struct answer_events events, size_t *cursor, struct answer_event *out);
/* A choice's tokens, the first so many; how many that are. */
uint32_t answer_tokens(const struct answer *a, uint32_t choice, uint32_t *out, uint32_t most);
/* A choice ended at its max_tokens. */
bool answer_was_cut(const struct answer *a);
/* Whether two answers are equal, except for pauses and prefix cache hits. */
bool answer_same(struct answer_events a, struct answer_events b);
#endif
