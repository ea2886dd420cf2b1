/* The log's bytes, compared with the same plans packed and hashed by Python's struct and hashlib. */
#include "scheduler/decision_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_log(const struct decision_log *log, const char *expected)
{
    char hex[65];
    struct key256 k = decision_log_now(log);
    quire_key256_hex(&k, hex);
    assert_string_equal(hex, expected);
}

static void every_field_is_in_it(void **state)
{
    (void)state;
    const struct sched_row rows[] = {
        {.seq = 3, .first = 10, .count = 20, .first_logit = 29, .outputs.tokens = true},
        {.seq = 4, .first = 0, .count = 5, .first_logit = 5, .adapter = 9},
    };
    const uint32_t preempted[] = {5, 6}, admitted[] = {4};
    const struct sched_refusal refused[] = {{.seq = 8, .retry_us = 2500000}};
    const struct kv_move moves[] = {
        {.group = 0, .device_block = 1, .host_block = 2, .to_host = true},
        {.group = 1, .device_block = 3, .host_block = 4},
    };
    const struct sched_plan plan = {
        .step = 7,
        .token_budget = 512,
        .n_rows = 2,
        .rows = rows,
        .n_preempted = 2,
        .preempted = preempted,
        .n_admitted = 1,
        .admitted = admitted,
        .n_refused = 1,
        .refused = refused,
        .n_moves = 2,
        .moves = moves,
    };
    const struct sched_plan empty = {0};
    struct decision_log log;
    decision_log_begin(&log);
    decision_log_add(&log, 0x0102030405060708u, &plan);
    assert_log(&log, "30cb432414751d43820e180dd2ccf94b7a5f3c280be2ed69a756f8ce5841e78d");
    decision_log_add(&log, 9, &empty);
    assert_log(&log, "4cbedb5242d75e5a2aa73acb30e51bd664887c49e8450813c29f679e2c1fd39b");
}

static void a_plan_of_many_rows(void **state)
{
    (void)state;
    struct sched_row rows[300];
    for (uint32_t i = 0; i < 300; i++)
        rows[i] = (struct sched_row){.seq = i, .first = i, .count = 1, .first_logit = i, .outputs.tokens = true};
    const struct sched_plan plan = {.step = 1, .token_budget = 300, .n_rows = 300, .rows = rows};
    struct decision_log log;
    decision_log_begin(&log);
    decision_log_add(&log, 1, &plan);
    assert_log(&log, "b349335737b21e8dfff605b59fc60491e86c982765aa04c122afa76a244c0a55");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_is_in_it),
        cmocka_unit_test(a_plan_of_many_rows),
    };
    if (quire_hash_init() != QUIRE_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
