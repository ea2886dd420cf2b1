/* What one request to a hub is: where it goes, who may see the token, when it is tried again, and what its failure means
 * to a person. The token goes to the hub's own origin (scheme, host and port) only, and over plain http only to loopback;
 * no redirect takes it elsewhere. It appears in no message.
 *
 * One thread. Strings in options are copied.
 */
#ifndef QUIRE_TOOLS_HUB_HTTP_H
#define QUIRE_TOOLS_HUB_HTTP_H

#include "base/status.h"
#include "tools/hub/cache.h"
#include "tools/hub/list.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#define HUB_MAX_FAILURES 6u /* in a row, of one file */

struct hub;
struct hub_options {
    const char *endpoint; /* "https://huggingface.co" */
    const char *token; /* or NULL */
    uint32_t stall_s; /* a connection that brings nothing for so long is cut */
};
int hub_open(const struct hub_options *options, struct hub **out, struct quire_error *err);
void hub_close(struct hub *hub);

/* The user's token, of --token-file (or NULL), HF_TOKEN or the file that `hf auth login` writes, in this order. "" without
 * any. QUIRE_INVALID: what is there cannot be one. */
#define HUB_TOKEN_BYTES 513
int hub_token_read(const char *token_file, char out[HUB_TOKEN_BYTES], struct quire_error *err);

/* ENDPOINT/NAME/resolve/COMMIT/FILE, escaped. The caller frees it with free(). NULL without memory. */
char *hub_file_url(const struct hub *hub, const char *name, const char *commit, const char *file);
/* Does this address belong to the hub itself, so that it may have the token? */
bool hub_is_own(const struct hub *hub, const char *url);

/* Resets easy for a request of url. Redirects are not followed. */
int hub_prepare(const struct hub *hub, CURL *easy, const char *url, struct quire_error *err);

/* What a request that did not bring what it should came to. what: "config.json". */
struct hub_failure {
    CURLcode result;
    char curl_text[CURL_ERROR_SIZE];
    const char *what;
    const struct hub_name *name;
};
/* May it be tried again, after its n-th failure in a row, and in how many seconds? */
bool hub_may_retry(CURL *easy, CURLcode result, unsigned n_failures, double *wait_s);
/* Tells the user so. note may be NULL. */
typedef void hub_note(void *context, const char *text);
void hub_tell(hub_note *note, void *context, const struct quire_error *why, double wait_s);
/* The error for a person. */
int hub_fail(const struct hub *hub, CURL *easy, const struct hub_failure *failure, struct quire_error *err);

/* What the revision holds. Tries again by itself. */
int hub_get_list(const struct hub *hub, const struct hub_name *name, hub_note *note, void *context,
                 struct hub_list *out, struct quire_error *err);

#endif
