/* An idle engine checks its scheduler. A fault ends the engine with a message, before it computes a wrong answer. The
 * linker redirects sched_check() (--wrap), so that the test can plant a fault on the engine's thread. */
#include "tests/engine/fixtures/client.h"
#include "engine/engine.h"
#include "tests/engine/fixtures/tiny_model.h"
#include "tests/engine/fixtures/step_options.h"

#include "scheduler/scheduler.h"
#include "scheduler/state/scheduler_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define N_PROMPT 24u
#define MOST_WAIT_MS 60000

static struct tiny_model model;
static uint32_t prompt[N_PROMPT];
static atomic_int n_checks;
static atomic_bool plant;

int __real_sched_check(const struct sched *s, struct quire_error *err);
int __wrap_sched_check(const struct sched *s, struct quire_error *err);
int __wrap_sched_check(const struct sched *s, struct quire_error *err)
{
    atomic_fetch_add(&n_checks, 1);
    if (atomic_load(&plant))
        ((struct sched *)s)->n_touched++;
    return __real_sched_check(s, err);
}

static int set_up(void **state)
{
    (void)state;
    tiny_model_write(&(struct tiny_spec){.seed = 2, .prefix = "model."}, &model);
    client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, 9);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tiny_model_remove(&model);
    return 0;
}

static void a_fault_ends_the_idle_engine(void **state)
{
    (void)state;
    const struct engine_options o = client_options(64);
    struct engine_stats stats;
    struct quire_error err = {.text = ""};
    int status, ms = 0;
    struct client *c = client_open(model.dir, &o);
    const struct request_spec request = client_request(prompt, N_PROMPT, 4);
    const struct answer *a = client_submit(c, &request);
    client_wait(c, a);
    for (int before = atomic_load(&n_checks); atomic_load(&n_checks) == before && ms < MOST_WAIT_MS; ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(ms < MOST_WAIT_MS);
    client_wait(c, client_submit(c, &request)); /* the state is sound, so the engine continues */
    atomic_store(&plant, true);
    for (engine_stats(client_engine(c), &stats); !stats.dead && ms < MOST_WAIT_MS; ms++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        engine_stats(client_engine(c), &stats);
    }
    assert_true(stats.dead);
    assert_null(client_try(c, &request, &status, NULL, &err));
    assert_int_equal(status, QUIRE_UNAVAILABLE);
    assert_non_null(strstr(err.text, "a check of the idle engine found an internal error"));
    assert_non_null(strstr(err.text, "sched 1: counts by state are wrong"));
    client_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_fault_ends_the_idle_engine)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
