/* What values of quire serve's options mean, where no kind of option says it. QUIRE_INVALID: the message is for people. Pure, but for
 * the environment; main thread. */
#ifndef QUIRE_TOOLS_SERVE_VALUES_H
#define QUIRE_TOOLS_SERVE_VALUES_H

#include "server/front/front.h"
#include "tools/cli/cli.h"

#define SERVE_HOST_BYTES 256

/* --metrics-listen: "HOST:PORT", "[IPv6]:PORT" or ":PORT". out points into host. */
int serve_metrics_listen(const char *text, char host[SERVE_HOST_BYTES], struct front_listen *out,
                         struct quire_error *err);
/* QUIRE_API_KEY, one key or several with commas between, where there are no keys yet. They point into *memory, which is the
 * caller's to free, also after an error. QUIRE_NO_MEMORY. */
int serve_keys_of_environment(struct cli_list *keys, char **memory, struct quire_error *err);
/* --special-tokens-in-messages; target: enum quire_specials *. */
int serve_parse_specials(const char *text, void *target, struct quire_error *err);

/* --restart no|on-failure|on-failure:N; *tries: 0 without. */
struct cli_option serve_restart_option(uint32_t *tries);

#endif
