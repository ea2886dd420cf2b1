/* Asks a server again what it was asked, the most valuable first, in the background and while nobody else asks: each is a
 * request like any other, and so fills every layer that a request fills. One thread. */
#ifndef QUIRE_TOOLS_WARM_REQUESTS_H
#define QUIRE_TOOLS_WARM_REQUESTS_H

#include "tools/cache/client.h"
#include "tools/cache/requests_file.h"

struct warm_budget { /* 0: no bound */
    uint64_t tokens; /* computed: of prompts and of answers */
    double seconds;
};

struct warm_forecast {
    size_t n; /* requests within the budget */
    uint64_t n_asked; /* how often these were asked */
    uint64_t n_tokens; /* to compute */
    uint64_t n_saved; /* spared when all is asked as often again */
};

enum warm_end { WARM_DONE, WARM_TOKENS, WARM_SECONDS };

struct warm_outcome {
    enum warm_end end;
    size_t n_sent, n_kept, n_refused; /* n_kept: were there before. n_refused: the server would not have them */
    uint64_t n_prompt, n_generated; /* tokens that were computed */
    uint64_t n_saved; /* tokens spared when what is kept now is asked as often again */
    double seconds, paused_s; /* paused_s: of them, others asked */
    struct quire_error why; /* of the first that was refused */
};

/* all: settled. */
struct warm_forecast warm_forecast(const struct asked_requests *all, const struct warm_budget *budget);
/* progress(context, requests that are over, requests in all), NULL: nobody looks on. What was done before a failure is in *out. */
int warm_requests(struct cache_client *client, const struct asked_requests *all, const struct warm_budget *budget,
                  void (*progress)(void *context, uint64_t done, uint64_t total), void *context,
                  struct warm_outcome *out, struct quire_error *err);
const char *warm_end_name(enum warm_end end);

#endif
