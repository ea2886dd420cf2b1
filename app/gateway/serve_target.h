/* A model's engine and front end within a gateway: quire serve --models. The parts of quire serve without listener, keys
 * and signals. Main thread, on the loop. */
#ifndef QUIRE_APP_GATEWAY_SERVE_TARGET_H
#define QUIRE_APP_GATEWAY_SERVE_TARGET_H

#include "base/status.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>

struct engine_info; /* engine/info.h */
struct serve_target;
struct tenants;

/* All borrowed until serve_target_close(). */
struct serve_target_options {
    const char *name; /* for logs: "small/local" */
    const char *model; /* the name that requests have; NULL: as quire serve names it */
    const char *dir; /* a checkpoint, or with an address its tokenizer's directory */
    const char *address; /* of an engine in another process; NULL: in this one */
    const char *key_file;
    const char *const *options; /* [n_options]: options of quire serve */
    size_t n_options;
    struct tenants *tenants;
    bool is_quiet; /* without the log of the device, the sizes and the statistics */
};

/* Checks the names and values of the options alone. Other members may be NULL, and nothing is opened. QUIRE_INVALID names
 * the option that is wrong. */
int serve_target_check(const struct serve_target_options *options, struct quire_error *err);
/* Loads the model: takes as long as quire serve. QUIRE_INVALID names an option that is wrong. */
int serve_target_open(struct event_base *base, const struct serve_target_options *options, struct serve_target **out,
                      struct quire_error *err);
/* The name of the abstract Unix socket at which its front end serves this process, and no other. */
const char *serve_target_socket(const struct serve_target *t);
/* NULL: its engine is in another process. */
const struct engine_info *serve_target_info(const struct serve_target *t);
bool serve_target_has_chat(const struct serve_target *t); /* whether the checkpoint has a chat template */
/* When the loop has ended: whether the engine in this process failed. The process may end here, as
 * serving_death_leave() says. */
bool serve_target_died(const struct serve_target *t);
/* Ends its running requests with an error. */
void serve_target_cancel(struct serve_target *t);
void serve_target_close(struct serve_target *t); /* NULL is allowed */

#endif
