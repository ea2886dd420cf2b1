/* What serve, engine and generate share: the identity of a model directory, text loaded in a thread of its own,
 * and the two signals that end a server. */
#ifndef QUIRE_TOOLS_SERVING_H
#define QUIRE_TOOLS_SERVING_H

#include "base/hash.h"
#include "base/status.h"
#include "engine/watch.h"
#include "text/quire_text.h"
#include "tools/cli/cli.h"

#include <event2/event.h>
#include <stdbool.h>

/* What a front end and an engine compare in HELLO: quire_text_identity(), and the SHA-256 of config.json and of
 * generation_config.json (of nothing where there is none). */
struct serving_identity {
    struct key256 text, config, generation;
    char law[24]; /* "law=2\n": K_LAW_VERSION, as an engine's arithmetic begins */
};
int serving_identity_read(const char *model_dir, struct serving_identity *out, struct quire_error *err);

/* Opens the tokenizer in a thread of its own, beside the weights. Every begun load is ended by one join. */
struct serving_text_load;
int serving_text_begin(const char *model_dir, struct serving_text_load **out, struct quire_error *err);
int serving_text_join(struct serving_text_load *load, struct quire_text **out, struct quire_error *err);

/* A tcp: address among these without a key file is refused with what to do. */
int serving_check_listen(const char *const *addresses, size_t n, const char *key_file, struct quire_error *err);

/* The first SIGTERM or SIGINT calls drain(context) on the loop; timeout_s later give_up(context) is called, and a second after that the loop is left, whatever still runs; a second signal ends the process at once with status 130. */
struct serving_signals;
struct serving_drain {
    void (*drain)(void *context), (*give_up)(void *context);
    void *context;
    uint32_t timeout_s;
};
int serving_signals_begin(struct event_base *base, const struct serving_drain *drain, struct serving_signals **out,
                          struct quire_error *err);
#define SERVING_SHUTDOWN_TIMEOUT_S 30
/* --shutdown-timeout */
struct cli_option serving_shutdown_option(uint32_t *timeout_s);
void serving_signals_end(struct serving_signals *signals);

/* Raises the limit of open descriptors to n and some, as far as the system lets. */
void serving_allow_descriptors(uint32_t n);

/* An engine whose backend broke can serve nobody: died(context, why) is called on the loop (NULL: nobody asks), a second after
 * it said so to everybody the loop is left, and serving_death_was() is true. Give the engine serving_death_watch(). */
struct serving_death;
int serving_death_begin(struct event_base *base, void (*died)(void *context, const char *why), void *context,
                        struct serving_death **out, struct quire_error *err);
const struct engine_watch *serving_death_watch(struct serving_death *death);
/* Once it is open. Where the group of its ranks is over for half a second and the engine's thread says nothing, this does: who waits is
 * told soon also where that thread hangs. QUIRE_INTERNAL. */
int serving_death_mind(struct serving_death *death, const struct engine *engine, struct quire_error *err);
/* NULL: it does not, as far as is known. Else why the group is over; it lives as long as death. Also of NULL. */
const char *serving_death_hangs(const struct serving_death *death);
/* After the loop, before engine_close(): where the engine's thread hangs nobody waits for it, and the process ends here, with status 1. */
void serving_death_leave(const struct serving_death *death);
bool serving_death_was(const struct serving_death *death); /* also of NULL: false */
void serving_death_end(struct serving_death *death); /* after engine_close(); NULL is fine */

/* A cli_option's parse for --log-format text|json: of the process, from there on. target is not used. */
int serving_parse_log_format(const char *text, void *target, struct quire_error *err);
#define SERVING_LOG_FORMAT_OPTION \
    {.names = "log-format", \
     .kind = CLI_PARSED, \
     .parse = serving_parse_log_format, \
     .value = "text|json", \
     .help = "How lines of the log on standard error look. json: one object a line (docs/operating.md)."}

#endif
