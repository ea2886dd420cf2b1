#include "tests/bench/bench_server.h"

#include "engine/engine.h"
#include "server/front/front_model.h"
#include "tests/bench/host_bench.h"

#include <stdio.h>
#include <unistd.h>

double bench_anonymous_mib(void)
{
    unsigned long size, resident, shared;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu %lu %lu", &size, &resident, &shared) != 3)
        bench_die("/proc/self/statm cannot be read");
    fclose(f);
    return (double)(resident - shared) * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

void bench_server_open(struct bench_server *s, const struct engine_options *options, engine_sink sink,
                       void (*on_ready)(void *context, bool is_first), void *context)
{
    static const char *const names[] = {"bench"};
    struct quire_error err;
    struct wire_stream *ends[2];
    const struct daemon_options daemon_options = {.model = "bench"};
    const struct upstream_identity identity = {.model = "bench"};
    struct front_options front_options = {.host = "127.0.0.1", .version = "bench"};
    const struct upstream_owner owner = {.ready = on_ready, .context = context};
    struct served_model_options model = {.names = names, .n_names = 1, .root = "bench"};
    struct served_model *served;
    s->tokenizer_mib = -bench_anonymous_mib();
    if (quire_text_open(options->model_dir, &s->text, &err))
        bench_die("server: %s", err.text);
    s->tokenizer_mib += bench_anonymous_mib();
    if (daemon_create(s->base, &daemon_options, &s->daemon, &err) ||
        engine_open(options, sink, context, &s->engine, &err))
        bench_die("server: %s", err.text);
    if (tenants_from_keys(NULL, 0, 0, &s->tenants, &err))
        bench_die("tenants: %s", err.text);
    model.text = s->text;
    front_options.tenants = s->tenants;
    daemon_set_engine(s->daemon, s->engine);
    if (wire_stream_pair(s->base, ends, &err))
        bench_die("server: %s", err.text);
    if (front_create(s->base, &front_options, &s->front, &err) || front_add_model(s->front, &model, &served, &err) ||
        daemon_add_connection(s->daemon, ends[0], &err))
        bench_die("server: %s", err.text);
    upstream_set_identity(served_model_upstream(served), &identity, &owner);
    if (upstream_attach(served_model_upstream(served), ends[1], &err))
        bench_die("server: %s", err.text);
}

void bench_server_close(struct bench_server *s)
{
    front_destroy(s->front);
    tenants_free(s->tenants);
    engine_close(s->engine);
    daemon_close(s->daemon);
    quire_text_close(s->text);
}
