/* The engines of a gateway: those in this process, and those at addresses, each with a front end of its own. Main thread,
 * on the loop. */
#ifndef QUIRE_APP_GATEWAY_ENGINES_H
#define QUIRE_APP_GATEWAY_ENGINES_H

#include "base/status.h"
#include "server/gateway/file/models_file.h"

#include <event2/event.h>
#include <stdbool.h>

struct engines;
struct tenants;

/* tenants: outlives it. *out is set in any case and needs engines_close(). */
int engines_begin(struct event_base *base, struct tenants *tenants, struct engines **out, struct quire_error *err);
/* Checks the names and values of the engines' `options`, without opening one. "LINE:COLUMN: model NAME: target NAME: ...". */
int engines_check(const struct gateway_config *config, struct quire_error *err);
/* Opens those of a configuration that are not open yet, and holds it. is_running: the loop runs, so an engine in this
 * process, which takes minutes to load, is rejected. Nothing changes on an error. */
int engines_use(struct engines *e, const struct gateway_config *config, bool is_running, struct quire_error *err);
/* For struct gateway_private; context: the struct engines. */
const char *engines_socket(void *context, const struct gateway_model *model, const struct gateway_target *target);
bool engines_has_chat(void *context, const struct gateway_model *model, const struct gateway_target *target);
/* After the loop: whether one in this process has failed. */
bool engines_died(const struct engines *e);
void engines_cancel(struct engines *e);
void engines_close(struct engines *e); /* NULL is allowed */

#endif
