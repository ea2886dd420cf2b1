/* The observers of a server's engine: --record, --trace-file, --shadow-policy. Main thread. */
#ifndef QUIRE_APP_WATCH_WATCHING_H
#define QUIRE_APP_WATCH_WATCHING_H

#include "app/command/cli.h"
#include "app/watch/timeline.h"
#include "engine/options.h"
#include "engine/record/recorder.h"
#include "engine/record/shadow.h"

#define WATCHING_FLAGS_MAX 4

struct watching {
    const char *record, *timeline_path, *shadow_policy; /* from the command line */
    bool fails; /* set by the owner: the command failed before it served anything, so no recording remains */
    struct recorder *recorder;
    struct timeline *timeline;
    struct shadow *shadow;
    const struct engine_watch *list[ENGINE_MAX_WATCHES];
    struct engine_observers observers; /* of the list; the options refer to them */
};

/* Writes the option rows to out[0..return value). */
size_t watching_flags(struct watching *w, struct cli_option out[WATCHING_FLAGS_MAX]);
/* Adds an observer after the existing ones. */
int watching_add(struct watching *w, struct engine_options *options, const struct engine_watch *watch,
                 struct quire_error *err);
/* Opens the requested observers and adds them to the options' watches. w must outlive the engine. */
int watching_begin(struct watching *w, const struct recorder_about *about, struct engine_options *options,
                   struct quire_error *err);
/* After engine_close(); also if watching_begin() failed or was never called. */
void watching_end(struct watching *w);

#endif
