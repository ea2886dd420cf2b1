/* Shared by serve, engine and generate: the identity of a model directory, loading the text part in a separate thread,
 * and the two signals that end a server. Main thread unless noted. */
#ifndef QUIRE_APP_SERVING_SERVING_H
#define QUIRE_APP_SERVING_SERVING_H

#include "base/hash.h"
#include "base/status.h"
#include "engine/watch.h"
#include "text/quire_text.h"
#include "app/command/cli.h"

#include <event2/event.h>
#include <stdbool.h>

/* Compared in HELLO between a front end and an engine: quire_text_identity(), and the SHA-256 of config.json and of
 * generation_config.json (of nothing if the file does not exist). */
struct serving_identity {
    struct key256 text, config, generation;
    char law[24]; /* "law=2\n": K_LAW_VERSION, the beginning of an engine's arithmetic identity */
};
int serving_identity_read(const char *model_dir, struct serving_identity *out, struct quire_error *err);

/* Opens the tokenizer in a separate thread, in parallel with the weights. Each serving_text_begin() needs one
 * serving_text_join(). */
struct serving_text_load;
int serving_text_begin(const char *model_dir, struct serving_text_load **out, struct quire_error *err);
int serving_text_join(struct serving_text_load *load, struct quire_text **out, struct quire_error *err);

/* Rejects a tcp: address without a key file, with what to do. */
int serving_check_listen(const char *const *addresses, size_t n, const char *key_file, struct quire_error *err);

/* The first SIGTERM or SIGINT calls drain(context) on the loop. timeout_s later, give_up(context) is called, and one
 * second after that the loop ends, whatever still runs. A second signal ends the process at once with status 130. */
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

/* Raises the limit of open descriptors to n plus a reserve, as far as the system allows. */
void serving_allow_descriptors(uint32_t n);

/* An engine with a failed backend cannot serve. died(context, why) is called on the loop (may be NULL). One second
 * after the error was sent to all pending requests the loop ends, and serving_death_was() is true. Register
 * serving_death_watch() with the engine. */
struct serving_death;
int serving_death_begin(struct event_base *base, void (*died)(void *context, const char *why), void *context,
                        struct serving_death **out, struct quire_error *err);
const struct engine_watch *serving_death_watch(struct serving_death *death);
/* Call it after the engine is open. If the group of its ranks has been over for half a second and the engine's thread
 * does not report it, this module does, so that pending requests get the error even if that thread hangs.
 * QUIRE_INTERNAL. */
int serving_death_mind(struct serving_death *death, const struct engine *engine, struct quire_error *err);
/* Returns the reason of the group's end if the engine hangs, otherwise NULL. It lives as long as death. NULL is
 * allowed. */
const char *serving_death_hangs(const struct serving_death *death);
/* Call it after the loop, before engine_close(): if the engine's thread hangs, the process ends here with status 1,
 * because joining it would block. */
void serving_death_leave(const struct serving_death *death);
bool serving_death_was(const struct serving_death *death); /* false for NULL */
void serving_death_end(struct serving_death *death); /* after engine_close(); NULL is allowed */

/* Parser of the option --log-format text|json. Sets the format of the process; target is not used. */
int serving_parse_log_format(const char *text, void *target, struct quire_error *err);
#define SERVING_LOG_FORMAT_OPTION \
    {.names = "log-format", \
     .kind = CLI_PARSED, \
     .parse = serving_parse_log_format, \
     .value = "text|json", \
     .help = \
         "Format of the log on standard error. json: one object per line (docs/guides/operating.md). Default text."}

#endif
