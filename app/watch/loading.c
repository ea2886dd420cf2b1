#include "app/watch/loading.h"

#include "app/command/progress.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"

#define LOG_AFTER_S 2.0

struct loading {
    struct bench_progress bar;
    bool is_logged;
};

static void on_loading(void *context, uint64_t done, uint64_t total)
{
    struct loading *l = context;
    if (done == 0)
        bench_progress_begin(&l->bar, "loading weights, MiB", total >> 20);
    bench_progress_set(&l->bar, done >> 20);
    if (done == total)
        bench_progress_end(&l->bar);
    const double past = quire_now_s() - l->bar.began;
    if (l->bar.is_tty || l->is_logged || past < LOG_AFTER_S || done == total)
        return;
    l->is_logged = true;
    quire_log(QUIRE_LOG_INFO, "engine", "loading weights: %.0f %% after %.1f s", 100.0 * (double)done / (double)total,
              past);
}

int loading_engine_open(const struct engine_options *options, engine_sink sink, void *sink_context, struct engine **out,
                        struct quire_error *err)
{
    struct loading l = {.is_logged = false};
    struct engine_options o = *options;
    struct engine_observers observers = {.n_watches = 0};
    if (options->observers)
        observers = *options->observers;
    observers.loading = on_loading;
    observers.loading_context = &l;
    o.observers = &observers;
    int status = engine_open(&o, sink, sink_context, out, err);
    bench_progress_end(&l.bar); /* for an engine that did not open */
    return status;
}
