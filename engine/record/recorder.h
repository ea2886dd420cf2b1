/* Writes down what an engine is asked, decides and answers, as a watch: --record FILE.
 *
 * What is in the file is enough to let a scheduler decide everything again (engine/record/drive.h) and
 * to let an engine compute everything again (quire replay). It holds prompts and answers; never the
 * secret of the prefix hashes, and no API key. recording.md is the format.
 *
 * Records are gathered in memory and leave by write(2) once a step, or when 64 KiB are there; there
 * is no fsync. After kill -9 the file is whole up to its last complete record. A write that fails
 * ends the recording with one log line, and nothing else.
 *
 * The watch's functions run on the engine's thread. No memory is taken in a step.
 */
#ifndef QUIRE_ENGINE_RECORDER_H
#define QUIRE_ENGINE_RECORDER_H

#include "engine/watch.h"

struct recorder;

struct recorder_about {
    const char *model;           /* its name, for people */
    struct key256 config_sha256; /* of config.json */
};

/* Makes the file, readable by its owner only. One that is there already is not touched:
 * QUIRE_INVALID. */
int recorder_open(const char *path, const struct recorder_about *about, struct recorder **out, struct quire_error *err);
/* Valid until recorder_close(). For one engine. */
const struct engine_watch *recorder_watch(struct recorder *r);
/* After engine_close(): writes the end and closes the file. NULL is fine. */
void recorder_close(struct recorder *r);

#endif
