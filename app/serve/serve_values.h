/* Parsers of quire serve's option values that no option kind covers. QUIRE_INVALID comes with a message for people.
 * Pure, except for the environment; main thread. */
#ifndef QUIRE_APP_SERVE_SERVE_VALUES_H
#define QUIRE_APP_SERVE_SERVE_VALUES_H

#include "text/quire_chat.h"
#include "app/command/cli.h"
#include "server/front/front.h"

#define SERVE_HOST_BYTES 256

/* --metrics-listen: "HOST:PORT", "[IPv6]:PORT" or ":PORT". out points into host. */
int serve_metrics_listen(const char *text, char host[SERVE_HOST_BYTES], struct front_listen *out,
                         struct quire_error *err);
/* Reads QUIRE_API_KEY, one key or several separated by commas, if there are no keys yet. The keys point into *memory,
 * which the caller frees, also after an error. QUIRE_NO_MEMORY. */
int serve_keys_of_environment(struct cli_list *keys, char **memory, struct quire_error *err);
/* --special-tokens-in-messages; target: enum quire_specials *. */
int serve_parse_specials(const char *text, void *target, struct quire_error *err);

/* --structured-outputs-config, with vLLM's members; target: bool *, true if JSON answers may have white space. */
int serve_parse_structured_outputs(const char *text, void *target, struct quire_error *err);

/* --restart no|on-failure|on-failure:N; *tries: 0 without it. */
struct cli_option serve_restart_option(uint32_t *tries);

#endif
