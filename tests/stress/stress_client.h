/* Clients like those in the wild, for tests/stress: their requests, and when and how they leave. One thread. */
#ifndef QUIRE_TESTS_STRESS_CLIENT_H
#define QUIRE_TESTS_STRESS_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of requests. PLAIN and CHAT have a seed and logprobs, so that equal requests must get equal bits. */
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
/* The moment at which the client leaves. */
enum moment {
    MOMENT_NEVER,     /* it takes its reply */
    MOMENT_UNSENT,    /* a part of the request was sent */
    MOMENT_SENT,      /* all of it was just sent: it is unread, or in the text threads */
    MOMENT_LATER,     /* up to 50 ms later: it waits, or is in prefill, or runs */
    MOMENT_REPLYING,  /* a part of the reply was read */
    N_MOMENTS
};
/* The way in which it leaves. */
enum manner { MANNER_CLOSE, MANNER_RESET, MANNER_HALF_CLOSE, N_MANNERS };

extern const char *const ask_names[N_ASKS];
extern const char *const moment_names[N_MOMENTS];
extern const char *const manner_names[N_MANNERS];

/* Weights of the random choices. */
struct mix {
    const char *name;
    unsigned asks[N_ASKS], moments[N_MOMENTS], manners[N_MANNERS];
    unsigned keep_alive_percent; /* share of connections with a whole reply that send another request */
};
extern const struct mix mixes[];
extern const size_t n_mixes;

uint64_t draw(uint64_t *state);                         /* splitmix64 */
unsigned draw_below(uint64_t *state, unsigned n);
unsigned draw_weighted(uint64_t *state, const unsigned *weights, unsigned n);

/* Writes a request and returns its length. *variant: equal requests of ASK_PLAIN, and of ASK_CHAT, have equal
 * variants; for ASK_GARBAGE it says whether a reply can be expected. */
#define REQUEST_BYTES 8192
#define VARIANT_NO_HTTP 1u
size_t request_make(enum ask ask, uint64_t *state, char out[REQUEST_BYTES], unsigned *variant);

#endif
