/* Fills a server's prefix cache from a file of prompts, the most valuable first, at lower priority than live traffic.
 * One thread. */
#ifndef QUIRE_APP_WARM_WARM_H
#define QUIRE_APP_WARM_WARM_H

#include "app/warm/client.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct warm_report {
    size_t n_prompts;   /* finished prompts */
    uint64_t n_tokens, n_cached; /* their tokens; n_cached: already cached */
};

/* progress(context, tokens done, all tokens); may be NULL. *report has the work done before an error. QUIRE_EXHAUSTED:
 * the client was stopped. */
int warm_run(struct cache_client *client, const char *path,
             void (*progress)(void *context, uint64_t done, uint64_t total), void *context, struct warm_report *report,
             struct quire_error *err);

/* The same for this process's own server, in a separate thread, which logs the result. Copies its strings. Call begin
 * on the main thread, before the process has other threads that use libcurl. */
struct warming;
int warming_begin(const char *url, const char *api_key, const char *path, struct warming **out,
                  struct quire_error *err);
/* It ends soon. NULL is allowed, here and below. */
void warming_stop(struct warming *w);
/* Waits for the end. */
void warming_end(struct warming *w);

#endif
