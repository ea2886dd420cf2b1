/* A request to a hub: its address, which hosts may get the token, when it is retried, and the error message for people.
 * The token is sent only to the hub's own origin (scheme, host and port), and over plain http only to loopback; no
 * redirect sends it elsewhere. It appears in no message.
 *
 * One thread. Strings in options are copied.
 */
#ifndef QUIRE_TOOLS_HUB_HTTP_H
#define QUIRE_TOOLS_HUB_HTTP_H

#include "base/status.h"
#include "app/models/cache.h"
#include "tools/hub/list.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#define HUB_MAX_FAILURES 6u /* consecutive, for one file */

struct hub;
struct hub_options {
    const char *endpoint; /* "https://huggingface.co" */
    const char *token; /* or NULL */
    uint32_t stall_s; /* a connection without data for this long is closed */
};
int hub_open(const struct hub_options *options, struct hub **out, struct quire_error *err);
void hub_close(struct hub *hub);

/* The user's token: from --token-file (or NULL), HF_TOKEN or the file that `hf auth login` writes, in this order. ""
 * without one. QUIRE_INVALID: the value is not a valid token. */
#define HUB_TOKEN_BYTES 513
int hub_token_read(const char *token_file, char out[HUB_TOKEN_BYTES], struct quire_error *err);

/* ENDPOINT/NAME/resolve/COMMIT/FILE, escaped. The caller frees it with free(). NULL: out of memory. */
char *hub_file_url(const struct hub *hub, const char *name, const char *commit, const char *file);
/* Returns whether this address belongs to the hub's own origin and may get the token. */
bool hub_is_own(const struct hub *hub, const char *url);

/* Resets easy for a request of url. Redirects are not followed. */
int hub_prepare(const struct hub *hub, CURL *easy, const char *url, struct quire_error *err);

/* The result of a failed request. what: "config.json". */
struct hub_failure {
    CURLcode result;
    char curl_text[CURL_ERROR_SIZE];
    const char *what;
    const struct hub_name *name;
};
/* Returns whether to retry after the n-th consecutive failure, and the delay in seconds. */
bool hub_may_retry(CURL *easy, CURLcode result, unsigned n_failures, double *wait_s);
/* Shows the user a message. note may be NULL. */
typedef void hub_note(void *context, const char *text);
void hub_tell(hub_note *note, void *context, const struct quire_error *why, double wait_s);
/* The error for people. */
int hub_fail(const struct hub *hub, CURL *easy, const struct hub_failure *failure, struct quire_error *err);

/* Gets the files of the revision. Retries by itself. */
int hub_get_list(const struct hub *hub, const struct hub_name *name, hub_note *note, void *context,
                 struct hub_list *out, struct quire_error *err);

#endif
