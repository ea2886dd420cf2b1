/* Clients as a server meets them in the wild, for tests/stress: what they ask, and when and how they leave. */
#ifndef QUIRE_TESTS_STRESS_CLIENT_H
#define QUIRE_TESTS_STRESS_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is asked. Requests of PLAIN and CHAT have a seed and logprobs, so that equal ones must get equal bits. */
enum ask {
    ASK_PLAIN,
    ASK_CHAT,
    ASK_STREAM,
    ASK_LONG,
    ASK_LONG_STREAM,
    ASK_LONG_PROMPT,
    ASK_TOKENIZE,
    ASK_PIN,
    ASK_HEALTH,
    ASK_WRONG,
    ASK_GARBAGE,
    N_ASKS
};
/* When its client leaves. */
enum moment {
    MOMENT_NEVER,     /* it takes its reply */
    MOMENT_UNSENT,    /* some of the request was sent */
    MOMENT_SENT,      /* all of it, just now: it is not read yet, or with the text threads */
    MOMENT_LATER,     /* up to 50 ms later: it waits, or is in prefill, or runs */
    MOMENT_REPLYING,  /* some of the reply was read */
    N_MOMENTS
};
/* How. */
enum manner { MANNER_CLOSE, MANNER_RESET, MANNER_HALF_CLOSE, N_MANNERS };

extern const char *const ask_names[N_ASKS];
extern const char *const moment_names[N_MOMENTS];
extern const char *const manner_names[N_MANNERS];

/* How often each is drawn, of the sum. */
struct mix {
    const char *name;
    unsigned asks[N_ASKS], moments[N_MOMENTS], manners[N_MANNERS];
    unsigned keep_alive_percent; /* of connections with a whole reply, those that ask again */
};
extern const struct mix mixes[];
extern const size_t n_mixes;

uint64_t draw(uint64_t *state);                         /* splitmix64 */
unsigned draw_below(uint64_t *state, unsigned n);
unsigned draw_weighted(uint64_t *state, const unsigned *weights, unsigned n);

/* Writes a request, and returns its bytes. *variant: equal requests of ASK_PLAIN, and of ASK_CHAT, have equal ones; of
 * ASK_GARBAGE it says whether a reply can be expected. */
#define REQUEST_BYTES 8192
#define VARIANT_NO_HTTP 1u
size_t request_make(enum ask ask, uint64_t *state, char out[REQUEST_BYTES], unsigned *variant);

#endif
