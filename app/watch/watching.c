#include "app/watch/watching.h"

#include <string.h>

size_t watching_flags(struct watching *w, struct cli_option out[WATCHING_FLAGS_MAX])
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Observation:", .kind = CLI_GROUP},
        {.names = "record", .kind = CLI_STRING, .target = &w->record, .value = "FILE",
         .help = "Record every request, decision and answer, for quire replay and quire sim "
                 "(docs/guides/recording.md). The file contains prompts and is readable by you only. An existing "
                 "file is not overwritten."},
        {.names = "trace-file", .kind = CLI_STRING, .target = &w->timeline_path, .value = "FILE",
         .help = "Write a timeline of steps and requests for ui.perfetto.dev and chrome://tracing. It contains no "
                 "text. An existing file is overwritten, but one that its process did not close is closed and kept as "
                 "FILE.unfinished."},
        {.names = "shadow-policy", .kind = CLI_STRING, .target = &w->shadow_policy, .value = "NAME",
         .help = "Plan the same traffic with a second scheduling policy, without computing tokens, and export its "
                 "TTFT and waiting times. Without --cost-model, it begins when the engine knows its step times."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof rows[0] <= WATCHING_FLAGS_MAX, "raise WATCHING_FLAGS_MAX");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

int watching_add(struct watching *w, struct engine_options *o, const struct engine_watch *watch,
                 struct quire_error *err)
{
    if (w->observers.n_watches == ENGINE_MAX_WATCHES)
        return quire_fail(err, QUIRE_INVALID, "more than %u observers", ENGINE_MAX_WATCHES);
    w->list[w->observers.n_watches++] = watch;
    w->observers.watches = w->list;
    o->observers = &w->observers;
    return QUIRE_OK;
}

static int add_shadow(struct watching *w, struct engine_options *o, struct quire_error *err)
{
    const struct sched_policy *policy = sched_policy_find(w->shadow_policy);
    if (!policy)
        return quire_fail(err, QUIRE_INVALID, "--shadow-policy: unknown policy \"%.64s\"; known policies: %s",
                          w->shadow_policy, sched_policy_names());
    int status = shadow_create(policy, &w->shadow, err);
    return status == QUIRE_OK ? watching_add(w, o, shadow_watch(w->shadow), err) : status;
}

int watching_begin(struct watching *w, const struct recorder_about *about, struct engine_options *options,
                   struct quire_error *err)
{
    int status = QUIRE_OK;
    if (w->record) {
        status = recorder_open(w->record, about, &w->recorder, err);
        if (status == QUIRE_OK)
            status = watching_add(w, options, recorder_watch(w->recorder), err);
    }
    if (status == QUIRE_OK && w->timeline_path) {
        status = timeline_open(w->timeline_path, &w->timeline, err);
        if (status == QUIRE_OK)
            status = watching_add(w, options, timeline_watch(w->timeline), err);
    }
    if (status == QUIRE_OK && w->shadow_policy)
        status = add_shadow(w, options, err);
    return status;
}

void watching_end(struct watching *w)
{
    if (w->fails)
        recorder_discard(w->recorder);
    else
        recorder_close(w->recorder);
    timeline_close(w->timeline);
    shadow_destroy(w->shadow);
}
