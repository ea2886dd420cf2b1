/* Records the inputs, decisions and outputs of an engine as a watch: --record FILE.
 *
 * The file is sufficient for a scheduler to repeat every decision (engine/record/drive.h) and for an engine to
 * repeat every computation (quire replay). It holds prompts and answers. It never holds the secret of the prefix
 * hashes or an API key. recording.md describes the format.
 *
 * Records collect in memory. write(2) stores them once a step, or when there are 64 KiB; there is no fsync. After
 * kill -9 the file is valid up to its last complete record. A failed write ends the recording with one log line and
 * has no other effect.
 *
 * The watch's functions run on the engine's thread. A step allocates no memory. */
#ifndef QUIRE_ENGINE_RECORDER_H
#define QUIRE_ENGINE_RECORDER_H

#include "engine/watch.h"

struct recorder;

struct recorder_about {
    const char *model;           /* name, for people */
    struct key256 config_sha256; /* SHA-256 of config.json */
};

/* Creates the file, readable only by its owner. An existing file is not touched: QUIRE_INVALID. */
int recorder_open(const char *path, const struct recorder_about *about, struct recorder **out, struct quire_error *err);
/* Valid until recorder_close(). For one engine. */
const struct engine_watch *recorder_watch(struct recorder *r);
/* Call after engine_close(). Writes the end and closes the file. NULL is allowed. */
void recorder_close(struct recorder *r);
/* The same, and removes the file: the program ends before it serves anything. */
void recorder_discard(struct recorder *r);

#endif
