/* Fills a server's prefix cache from a file of prompts, most valuable first, below live traffic. */
#ifndef QUIRE_TOOLS_WARM_H
#define QUIRE_TOOLS_WARM_H

#include "base/status.h"
#include "tools/cache/client.h"

#include <stddef.h>
#include <stdint.h>

struct warm_report {
    size_t n_prompts;   /* that are done */
    uint64_t n_tokens, n_cached; /* of them; n_cached: were there before */
};

/* progress(context, tokens done, tokens in all), NULL: nobody looks on. What was done before a failure is in
 * *report. QUIRE_EXHAUSTED: the client was stopped. */
int warm_run(struct cache_client *client, const char *path,
             void (*progress)(void *context, uint64_t done, uint64_t total), void *context, struct warm_report *report,
             struct quire_error *err);

/* The same for the server that this process is, in a thread of its own, which logs how it went. Strings are copied.
 * begin: on the main thread, before the process has others that use libcurl. */
struct warming;
int warming_begin(const char *url, const char *api_key, const char *path, struct warming **out,
                  struct quire_error *err);
/* It ends soon. NULL is fine, here and below. */
void warming_stop(struct warming *w);
/* Waits for the end. */
void warming_end(struct warming *w);

#endif
