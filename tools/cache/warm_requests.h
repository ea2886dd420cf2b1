/* Sends earlier requests to a server again, the most valuable first, in the background and only while there are no
 * other requests. Each is a normal request and therefore fills every cache. One thread. */
#ifndef QUIRE_TOOLS_WARM_REQUESTS_H
#define QUIRE_TOOLS_WARM_REQUESTS_H

#include "app/warm/client.h"
#include "tools/cache/requests_file.h"

struct warm_budget { /* 0: no bound */
    uint64_t tokens; /* computed tokens of prompts and answers */
    double seconds;
};

struct warm_forecast {
    size_t n; /* requests within the budget */
    uint64_t n_asked; /* how often they were requested */
    uint64_t n_tokens; /* to compute */
    uint64_t n_saved; /* saved if all are requested as often again */
};

enum warm_end { WARM_DONE, WARM_TOKENS, WARM_SECONDS };

struct warm_outcome {
    enum warm_end end;
    size_t n_sent, n_cached, n_refused; /* n_cached: already cached. n_refused: rejected by the server */
    uint64_t n_prompt, n_generated; /* computed tokens */
    uint64_t n_saved; /* tokens saved if the cached requests are sent as often again */
    double seconds, paused_s; /* paused_s: part of it, while others sent requests */
    struct quire_error why; /* of the first rejected request */
};

/* all: settled. */
struct warm_forecast warm_forecast(const struct asked_requests *all, const struct warm_budget *budget);
/* progress(context, finished requests, all requests); may be NULL. *out has the work done before an error. */
int warm_requests(struct cache_client *client, const struct asked_requests *all, const struct warm_budget *budget,
                  void (*progress)(void *context, uint64_t done, uint64_t total), void *context,
                  struct warm_outcome *out, struct quire_error *err);
const char *warm_end_name(enum warm_end end);

#endif
