/* Shared by the tests of recordings: a tiny model, traffic of every kind, files in a private directory. */
#ifndef QUIRE_TESTS_RECORD_RIG_H
#define QUIRE_TESTS_RECORD_RIG_H

#include "tests/engine/fixtures/client.h"
#include "kernels/kv.h"
#include "tests/engine/fixtures/tiny_model.h"

#include "engine/record/recorder.h"
#include "engine/record/recording.h"

#include <stddef.h>

extern struct tiny_model rig_model, rig_other_model; /* rig_other_model: other weights */
int rig_set_up(void **state);
int rig_tear_down(void **state);

/* Returns a path that does not exist. Valid until the next call. */
const char *rig_new_path(void);

/* One thread and few blocks, so that sequences are preempted. */
struct engine_options rig_options(void);

/* Opens an engine that records to path; rig_close() closes both. */
struct rig {
    struct client *client;
    struct recorder *recorder;
    const struct engine_watch *watch;
};
void rig_open(struct rig *rig, const char *path, struct engine_options o);
void rig_open_model(struct rig *rig, const char *path, const char *model, struct engine_options o);
void rig_close(struct rig *rig);

/* Requests with n > 1, logprobs, priorities, classes, tenants, shared prefixes, pins and background work; some are
 * cancelled. The same number makes the same requests. The first ones meet, however slowly they come, and have more tokens
 * than the cache has blocks for: unless preemptions are off, one is preempted. */
#define RIG_N_REQUESTS 24u
struct rig_traffic {
    struct answer *answers[RIG_N_REQUESTS];
};
void rig_submit(struct rig *rig, uint64_t number, struct rig_traffic *out);
void rig_wait(struct rig *rig, const struct rig_traffic *traffic);

/* Returns the whole file; the caller frees it. */
unsigned char *rig_read(const char *path, size_t *n);
void rig_write(const char *path, const unsigned char *bytes, size_t n);

#endif
