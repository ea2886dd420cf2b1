/* A daemon over the fake engine for tests: the test or a separate thread runs its loop. */
#ifndef QUIRE_TESTS_DAEMON_RIG_H
#define QUIRE_TESTS_DAEMON_RIG_H

#include "server/daemon/daemon.h"
#include "tests/daemon/fake_engine.h"

#include <pthread.h>
#include <stdatomic.h>

#define RIG_PATIENCE_MS 60000 /* the time after which a test has failed */

struct rig {
    struct event_base *base;
    struct daemon *d;
    struct engine *engine;
    char directory[64]; /* private: sockets and key files */

    pthread_t thread;
    bool has_thread;
    int command_fd;
    struct event *command;
    atomic_int wanted;      /* the next command for the loop's thread */
    atomic_uint idle_calls; /* number of calls of on_idle */
    atomic_uint n_connections; /* as the loop last saw it */
};

void rig_default_options(struct daemon_options *options, struct fake_engine_options *fake);
/* NULL: defaults. */
void rig_open(struct rig *rig, const struct daemon_options *options, const struct fake_engine_options *fake);
void rig_close(struct rig *rig);

/* The test's thread is the loop's: runs the loop until done(context), or returns false after RIG_PATIENCE_MS. */
bool rig_run_until(struct rig *rig, bool (*done)(void *context), void *context);
/* Runs the loop for ms. */
void rig_run_for(struct rig *rig, int ms);

/* The loop runs in its own thread until rig_close(). */
void rig_start_thread(struct rig *rig);
void rig_drain(struct rig *rig); /* daemon_drain() in the loop's thread */
uint32_t rig_count_connections(struct rig *rig); /* daemon_n_connections() in the loop's thread */
/* Waits until the count is n, the engine has n live requests, on_idle was called. */
bool rig_wait_connections(struct rig *rig, uint32_t n);
bool rig_wait_live(struct rig *rig, uint32_t n);
/* ... until it has sent n tokens since the start and nothing is live. */
bool rig_wait_all_over(struct rig *rig, uint64_t n_tokens);
bool rig_wait_idle(struct rig *rig);

/* Path of a file in the directory. rig_write_key() writes a key file with that text and mode 0600. */
void rig_path(const struct rig *rig, const char *name, char *out, size_t n);
void rig_write_key(const char *path, const char *text);

int64_t rig_now_ms(void);

#endif
