#include "tests/daemon/rig.h"

#include "base/clock.h"
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { WANT_NOTHING, WANT_DRAIN, WANT_COUNT, WANT_END };

int64_t rig_now_ms(void)
{
    return (int64_t)quire_now_ms();
}

static void on_idle(void *context)
{
    struct rig *rig = context;
    atomic_fetch_add(&rig->idle_calls, 1);
}

void rig_default_options(struct daemon_options *options, struct fake_engine_options *fake)
{
    *options = (struct daemon_options){.model = "fake", .hello_timeout_ms = RIG_PATIENCE_MS};
    memset(options->identity_text.bytes, 0x11, 32);
    memset(options->identity_config.bytes, 0x22, 32);
    memset(options->identity_generation.bytes, 0x33, 32);
    fake_engine_options_default(fake);
}

void rig_open(struct rig *rig, const struct daemon_options *options, const struct fake_engine_options *fake)
{
    struct daemon_options own;
    struct fake_engine_options own_fake;
    struct quire_error err;
    memset(rig, 0, sizeof *rig);
    rig_default_options(&own, &own_fake);
    if (options)
        own = *options;
    own.on_idle = on_idle;
    own.context = rig;
    snprintf(rig->directory, sizeof rig->directory, "/tmp/quire-daemon-XXXXXX");
    assert_non_null(mkdtemp(rig->directory));
    rig->base = event_base_new();
    assert_non_null(rig->base);
    assert_int_equal(daemon_create(rig->base, &own, &rig->d, &err), QUIRE_OK);
    assert_int_equal(fake_engine_open(fake ? fake : &own_fake, daemon_sink, rig->d, &rig->engine, &err), QUIRE_OK);
    daemon_set_engine(rig->d, rig->engine);
}

void rig_close(struct rig *rig)
{
    if (rig->has_thread) {
        uint64_t one = 1;
        atomic_store(&rig->wanted, WANT_END);
        assert_int_equal(write(rig->command_fd, &one, sizeof one), sizeof one);
        pthread_join(rig->thread, NULL);
        event_free(rig->command);
        close(rig->command_fd);
    }
    engine_close(rig->engine);
    daemon_close(rig->d);
    event_base_free(rig->base);
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", rig->directory);
    assert_int_equal(system(command), 0);
}

bool rig_run_until(struct rig *rig, bool (*done)(void *context), void *context)
{
    int64_t until = rig_now_ms() + RIG_PATIENCE_MS;
    while (!done(context)) {
        struct timeval slice = {.tv_usec = 20000};
        if (rig_now_ms() > until)
            return false;
        event_base_loopexit(rig->base, &slice);
        event_base_loop(rig->base, EVLOOP_ONCE);
    }
    return true;
}

void rig_run_for(struct rig *rig, int ms)
{
    struct timeval time = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_base_loopexit(rig->base, &time);
    event_base_dispatch(rig->base);
}

/* ---- the loop in a thread ---- */

static void on_command(evutil_socket_t fd, short what, void *context)
{
    struct rig *rig = context;
    uint64_t count;
    (void)what;
    assert_int_equal(read(fd, &count, sizeof count), sizeof count);
    switch (atomic_load(&rig->wanted)) {
    case WANT_DRAIN: daemon_drain(rig->d); break;
    case WANT_COUNT: atomic_store(&rig->n_connections, daemon_n_connections(rig->d)); break;
    case WANT_END: event_base_loopbreak(rig->base); break;
    default: break;
    }
    atomic_store(&rig->wanted, WANT_NOTHING);
}

static void *run(void *context)
{
    struct rig *rig = context;
    event_base_dispatch(rig->base);
    return NULL;
}

void rig_start_thread(struct rig *rig)
{
    rig->command_fd = eventfd(0, EFD_CLOEXEC);
    assert_true(rig->command_fd >= 0);
    rig->command = event_new(rig->base, rig->command_fd, EV_READ | EV_PERSIST, on_command, rig);
    event_add(rig->command, NULL);
    rig->has_thread = true;
    assert_int_equal(pthread_create(&rig->thread, NULL, run, rig), 0);
}

static void doze(void)
{
    struct timespec t = {.tv_nsec = 1000000};
    nanosleep(&t, NULL);
}

static void order(struct rig *rig, int wanted)
{
    uint64_t one = 1;
    int64_t until = rig_now_ms() + RIG_PATIENCE_MS;
    atomic_store(&rig->wanted, wanted);
    assert_int_equal(write(rig->command_fd, &one, sizeof one), sizeof one);
    while (atomic_load(&rig->wanted) != WANT_NOTHING) {
        assert_true(rig_now_ms() < until);
        doze();
    }
}

void rig_drain(struct rig *rig)
{
    order(rig, WANT_DRAIN);
}

uint32_t rig_count_connections(struct rig *rig)
{
    order(rig, WANT_COUNT);
    return atomic_load(&rig->n_connections);
}

bool rig_wait_connections(struct rig *rig, uint32_t n)
{
    int64_t until = rig_now_ms() + RIG_PATIENCE_MS;
    while (rig_count_connections(rig) != n) {
        if (rig_now_ms() > until)
            return false;
        doze();
    }
    return true;
}

bool rig_wait_live(struct rig *rig, uint32_t n)
{
    int64_t until = rig_now_ms() + RIG_PATIENCE_MS;
    while (fake_engine_n_live(rig->engine) != n) {
        if (rig_now_ms() > until)
            return false;
        doze();
    }
    return true;
}

bool rig_wait_all_over(struct rig *rig, uint64_t n_tokens)
{
    int64_t until = rig_now_ms() + RIG_PATIENCE_MS;
    struct engine_stats stats;
    for (;;) {
        engine_stats(rig->engine, &stats);
        if (stats.n_generation_tokens >= n_tokens && stats.n_running == 0)
            return true;
        if (rig_now_ms() > until)
            return false;
        doze();
    }
}

bool rig_wait_idle(struct rig *rig)
{
    int64_t until = rig_now_ms() + RIG_PATIENCE_MS;
    while (atomic_load(&rig->idle_calls) == 0) {
        if (rig_now_ms() > until)
            return false;
        doze();
    }
    return true;
}

/* ---- files ---- */

void rig_path(const struct rig *rig, const char *name, char *out, size_t n)
{
    snprintf(out, n, "%s/%s", rig->directory, name);
}

void rig_write_key(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, 0600), 0);
}
