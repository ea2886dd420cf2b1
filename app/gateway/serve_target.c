#include "app/gateway/serve_target.h"

#include "app/companion/companion.h"
#include "app/gateway/target_values.h"
#include "app/serve/engine_argv.h"
#include "app/serve/serve.h"
#include "app/serve/serve_check.h"
#include "app/serve/serve_state.h"
#include "server/front/front.h"
#include "server/http/local_listener.h"
#include "text/quire_chat.h"

#include <stdlib.h>
#include <string.h>

/* A server of its own, and the values of its options. */
struct serve_target {
    struct target_values *values;
    struct hub_model *model;
    struct serving_identity *identity;
    struct serve *serve;
    struct local_listener *listener;
};

static void destroy(struct serve_target *t)
{
    target_values_destroy(t->values);
    free(t->model);
    free(t->identity);
    free(t->serve);
    free(t);
}

/* NULL: out of memory. */
static struct serve_target *create(const char *dir)
{
    struct serve_target *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->values = target_values_create(dir);
    t->model = calloc(1, sizeof *t->model);
    t->identity = calloc(1, sizeof *t->identity);
    t->serve = calloc(1, sizeof *t->serve);
    if (t->values && t->model && t->identity && t->serve)
        return t;
    destroy(t);
    return NULL;
}

static int check(struct serve_target *t, const struct serve_target_options *o, const struct cli_command *command,
                 char **argv, const struct target_rows *r, struct quire_error *err)
{
    struct target_values *v = t->values;
    v->says->remote = o->address;
    v->says->key_file = o->key_file;
    if (o->model)
        v->says->names.items[v->says->names.n++] = o->model;
    const int status = serve_check(&v->flags, cli_first_given(r->all + r->n_own, r->n - r->n_own), err);
    if (status != QUIRE_OK || !v->says->restarts)
        return status;
    return engine_argv_make(v->says, command, (int)o->n_options, argv, r->all + r->n_own, r->n - r->n_own,
                            &v->flags.engine_argv, err);
}

static struct cli_command command_of(const struct target_rows *r)
{
    return (struct cli_command){.name = "serve", .usage = "options: {NAME: VALUE, ...}", .options = r->all};
}

/* Names and values. */
static int read_options(struct target_values *v, const struct serve_target_options *o, struct target_rows *r,
                        struct quire_error *err)
{
    enum cli_help help = CLI_HELP_NONE;
    target_values_rows(v, r);
    const struct cli_command command = command_of(r);
    int status = cli_parse(&command, (int)o->n_options, (char **)(uintptr_t)o->options, &help, err);
    if (status == QUIRE_OK && help != CLI_HELP_NONE)
        status = quire_fail(err, QUIRE_INVALID, "help is not an option of a target");
    return status;
}

static int parse(struct serve_target *t, const struct serve_target_options *o, struct quire_error *err)
{
    struct target_rows *r = calloc(1, sizeof *r);
    char **argv = (char **)(uintptr_t)o->options;
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = read_options(t->values, o, r, err);
    const struct cli_command command = command_of(r);
    if (status == QUIRE_OK)
        status = check(t, o, &command, argv, r, err);
    free(r);
    return status;
}

static void on_client(void *context, int fd)
{
    const struct serve_target *t = context;
    front_accept(t->serve->front, fd);
}

int serve_target_check(const struct serve_target_options *o, struct quire_error *err)
{
    struct target_values *v = target_values_create(o->dir);
    struct target_rows *r = calloc(1, sizeof *r);
    const int status = v && r ? read_options(v, o, r, err) : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    free(r);
    target_values_destroy(v);
    return status;
}

int serve_target_open(struct event_base *base, const struct serve_target_options *o, struct serve_target **out,
                      struct quire_error *err)
{
    struct serve_target *t = *out = create(o->dir);
    if (!t)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    *t->serve = (struct serve){.within = o->name,
                               .flags = &t->values->flags,
                               .model = t->model,
                               .identity = t->identity,
                               .base = base,
                               .tenants = o->tenants};
    int status = parse(t, o, err);
    if (status == QUIRE_OK)
        status = hub_model_find(o->dir, o->address != NULL, t->model, err);
    t->values->options->model_dir = t->model->dir;
    if (status == QUIRE_OK)
        status = serve_open(t->serve, err);
    if (status == QUIRE_OK && t->serve->engine && !o->is_quiet)
        status = own_engine_log(t->serve->engine, !t->values->says->disable_log_stats, err);
    if (status == QUIRE_OK)
        status = local_listener_open(base, on_client, t, &t->listener, err);
    if (status == QUIRE_OK)
        return QUIRE_OK;
    t->values->watching->fails = true;
    serve_target_close(t);
    *out = NULL;
    return status;
}

const char *serve_target_socket(const struct serve_target *t)
{
    return local_listener_name(t->listener);
}

const struct engine_info *serve_target_info(const struct serve_target *t)
{
    return t->serve->engine ? own_engine_info(t->serve->engine) : NULL;
}

bool serve_target_has_chat(const struct serve_target *t)
{
    return quire_text_has_chat(t->serve->text);
}

bool serve_target_died(const struct serve_target *t)
{
    own_engine_leave(t->serve->engine);
    return own_engine_died(t->serve->engine) || companion_died(t->serve->companion);
}

void serve_target_cancel(struct serve_target *t)
{
    front_cancel(t->serve->front);
}

void serve_target_close(struct serve_target *t)
{
    if (!t)
        return;
    local_listener_close(t->listener);
    serve_close(t->serve);
    destroy(t);
}
