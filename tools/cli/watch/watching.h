/* Who looks on while a server's engine schedules: --record, --trace-file, --shadow-policy. */
#ifndef QUIRE_TOOLS_WATCH_WATCHING_H
#define QUIRE_TOOLS_WATCH_WATCHING_H

#include "engine/record/recorder.h"
#include "engine/options.h"
#include "engine/record/shadow.h"
#include "tools/cli/cli.h"
#include "tools/cli/watch/timeline.h"

#define WATCHING_FLAGS_MAX 4

struct watching {
    const char *record, *timeline_path, *shadow_policy; /* from the command line */
    struct recorder *recorder;
    struct timeline *timeline;
    struct shadow *shadow;
    const struct engine_watch *list[ENGINE_MAX_WATCHES];
};

/* Writes the option rows to out[0..return value). */
size_t watching_flags(struct watching *w, struct cli_option out[WATCHING_FLAGS_MAX]);
/* One more that looks on, after those that are there. */
int watching_add(struct watching *w, struct engine_options *options, const struct engine_watch *watch,
                 struct quire_error *err);
/* Opens what was asked for and adds it to the options' watches, after those that are there. w outlives the engine. */
int watching_begin(struct watching *w, const struct recorder_about *about, struct engine_options *options,
                   struct quire_error *err);
/* After engine_close(); also when watching_begin() failed or was never called. */
void watching_end(struct watching *w);

#endif
