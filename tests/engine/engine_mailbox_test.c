/* Admission by counters, and the time to come back. */
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/run/mail/mailbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const struct model_config config = {.vocab_size = 100};
static const struct model_desc desc = {.config = &config};
static const struct key256 secret;
static const uint32_t prompt[50];
static uint64_t next_id = 1;

static struct request *make(uint32_t n_prompt, uint32_t n)
{
    const struct request_limits limits = {
        .desc = &desc, .max_model_len = 1000, .block_tokens = 16, .n_tenants = 1, .chain_secret = &secret};
    struct request_spec r, owned;
    struct request *out = NULL;
    request_spec_default(&r);
    r.prompt = prompt;
    r.n_prompt = n_prompt;
    r.max_tokens = 5;
    r.n = n;
    assert_int_equal(request_spec_copy(&owned, &r, NULL), QUIRE_OK);
    assert_int_equal(request_create(next_id++, &owned, &limits, 0, &out, NULL), QUIRE_OK);
    return out;
}

static int submit(struct mailbox *m, uint32_t n_prompt, uint32_t n, uint32_t *retry)
{
    struct request *r = make(n_prompt, n);
    struct quire_error err;
    int status = mailbox_submit(m, r, retry, &err);
    if (status != QUIRE_OK)
        request_free(r);
    return status;
}

static void free_mail(struct mailbox *m, struct mailbox_mail *mail)
{
    for (struct request *r = mail->submitted, *next; r; r = next) {
        next = r->next;
        mailbox_forget(m, r);
        request_free(r);
    }
}

/* Waiting requests are counted from submission on: as new, as drained, then as the scheduler reports them. */
static void waiting_is_never_lost_from_sight(void **state)
{
    (void)state;
    struct mailbox *m;
    struct mailbox_mail mail;
    struct mailbox_report report = {0};
    struct engine_stats stats;
    uint32_t retry = 0;
    assert_int_equal(mailbox_create(4, 0, 1, &m, NULL), QUIRE_OK);
    assert_int_equal(submit(m, 10, 3, &retry), QUIRE_OK);
    assert_int_equal(submit(m, 10, 1, &retry), QUIRE_OK);
    assert_int_equal(submit(m, 10, 1, &retry), QUIRE_EXHAUSTED);
    mailbox_drain(m, MAILBOX_FOREVER, &mail);
    assert_int_equal(submit(m, 10, 1, &retry), QUIRE_EXHAUSTED);
    mailbox_stats(m, &stats);
    assert_int_equal(stats.n_waiting, 4);
    assert_int_equal(stats.n_waiting_tokens, 20);
    report.stats.n_waiting = 3;
    mailbox_publish(m, &report);
    assert_int_equal(submit(m, 10, 2, &retry), QUIRE_EXHAUSTED);
    assert_int_equal(submit(m, 10, 1, &retry), QUIRE_OK);
    free_mail(m, &mail);
    mailbox_destroy(m);
}

static void time_to_come_back(void **state)
{
    (void)state;
    struct mailbox *m;
    uint32_t retry = 0;
    assert_int_equal(mailbox_create(4, 100, 1, &m, NULL), QUIRE_OK);
    struct mailbox_report report = {.stats = {.n_waiting = 4, .n_waiting_tokens = 100}};
    mailbox_publish(m, &report);
    assert_int_equal(submit(m, 50, 8, &retry), QUIRE_EXHAUSTED);
    assert_int_equal(retry, 1000); /* nothing is known yet */
    report.busy_us = 2000000;
    report.n_finished = 4; /* 2 choices and 10 tokens a second */
    report.n_tokens = 20;
    mailbox_publish(m, &report);
    assert_int_equal(submit(m, 50, 8, &retry), QUIRE_EXHAUSTED);
    assert_int_equal(retry, 4000); /* 8 too many */
    assert_int_equal(submit(m, 1, 1, &retry), QUIRE_EXHAUSTED);
    assert_int_equal(retry, 500);
    assert_int_equal(submit(m, 1, 128, &retry), QUIRE_EXHAUSTED);
    assert_int_equal(retry, 60000);
    report.busy_us = report.n_finished = report.n_tokens = 0;
    report.stats.n_waiting = 1;
    mailbox_publish(m, &report);
    assert_int_equal(submit(m, 50, 1, &retry), QUIRE_EXHAUSTED);
    assert_int_equal(retry, 5000); /* 50 tokens too many */
    mailbox_destroy(m);
}

/* A cancel that comes while the engine works on the list of an earlier one is not lost. */
static void cancels_during_cancels(void **state)
{
    (void)state;
    struct mailbox *m;
    struct mailbox_mail first, second;
    assert_int_equal(mailbox_create(10, 0, 1, &m, NULL), QUIRE_OK);
    struct request *a = make(5, 2), *b = make(5, 1);
    uint64_t id_a = a->engine_id, id_b = b->engine_id;
    assert_int_equal(mailbox_submit(m, a, NULL, NULL), QUIRE_OK);
    assert_int_equal(mailbox_submit(m, b, NULL, NULL), QUIRE_OK);
    mailbox_cancel(m, id_a, 1);
    mailbox_cancel(m, id_b, 0);
    mailbox_cancel(m, id_b, 7);   /* no such choice */
    mailbox_cancel(m, 999999, 0); /* no such request */
    mailbox_drain(m, MAILBOX_FOREVER, &first);
    assert_true(a->choices[1].cancel_now && !a->choices[0].cancel_now && b->choices[0].cancel_now);
    mailbox_cancel(m, id_a, MAILBOX_ALL_CHOICES);
    uint32_t n = 0;
    for (struct request *r = first.cancels; r; r = r->next_to_end)
        n++;
    assert_int_equal(n, 2);
    mailbox_cancel(m, id_b, 0);
    mailbox_forget(m, b); /* over: its cancel goes with it */
    mailbox_drain(m, MAILBOX_FOREVER, &second);
    assert_ptr_equal(second.cancels, a);
    assert_null(a->next_to_end);
    assert_true(a->choices[0].cancel_now);
    mailbox_forget(m, a);
    request_free(a);
    request_free(b);
    mailbox_destroy(m);
}

/* Orders wake whoever waits, arrive once, and do not lose each other. */
static void orders(void **state)
{
    (void)state;
    struct mailbox *m;
    struct mailbox_mail mail;
    const struct sched_policy_options options = {.ageing_us = 5};
    const struct sched_policy *fcfs = sched_policy_at(0), *second = sched_policy_at(1);
    assert_int_equal(mailbox_create(4, 0, 100, &m, NULL), QUIRE_OK);
    mailbox_set_policy(m, fcfs, &(struct sched_policy_options){0});
    assert_int_equal(mailbox_set_policy(m, second, &options), 2); /* the later counts */
    mailbox_unpin(m, 70);
    assert_int_equal(mailbox_unpin(m, 3), 4);
    mailbox_drain(m, MAILBOX_FOREVER, &mail);
    assert_int_equal(mail.orders.number, 4);
    assert_ptr_equal(mail.orders.policy, second);
    assert_int_equal(mail.orders.options.ageing_us, 5);
    assert_true(mail.orders.unpin);
    assert_false(mail.orders.unpin_all);
    assert_int_equal(mail.orders.unpin_tenants[0], 1 << 3);
    assert_int_equal(mail.orders.unpin_tenants[1], 1 << 6);
    assert_false(mail.orders.no_more);
    mailbox_no_more(m);
    mailbox_drain(m, MAILBOX_FOREVER, &mail);
    assert_int_equal(mail.orders.number, 0);
    mailbox_no_more(m);
    assert_int_equal(mailbox_unpin(m, MAILBOX_ALL_TENANTS), 5);
    mailbox_drain(m, MAILBOX_FOREVER, &mail);
    assert_null(mail.orders.policy);
    assert_true(mail.orders.no_more);
    assert_true(mail.orders.unpin_all);
    assert_int_equal(mail.orders.unpin_tenants[0], 0);
    mailbox_refuse_new(m);
    mailbox_drain(m, MAILBOX_FOREVER, &mail);
    assert_true(mail.orders.no_more);
    mailbox_drain(m, 0, &mail);
    assert_false(mail.orders.no_more);
    assert_false(mail.orders.unpin);
    mailbox_destroy(m);
}

/* What waits for a step is bounded, and a zero name is never lost. */
static void hit_reports(void **state)
{
    (void)state;
    static uint32_t many[3 * ENGINE_MAX_SERVED];
    struct mailbox *m;
    struct mailbox_mail mail;
    assert_int_equal(mailbox_create(4, 0, 1, &m, NULL), QUIRE_OK);
    for (uint32_t i = 0; i < 3 * ENGINE_MAX_SERVED; i++)
        many[i] = 1 + i;
    mailbox_report_hits(m, many, 0);
    mailbox_drain(m, 0, &mail);
    assert_int_equal(mail.n_served, 0);
    mailbox_report_hits(m, (const uint32_t[]){7, 8, 9}, 1);
    for (uint32_t i = 0; i < 3; i++)
        mailbox_report_hits(m, many, ENGINE_MAX_SERVED);
    mailbox_drain(m, MAILBOX_FOREVER, &mail);
    assert_int_equal(mail.n_served, ENGINE_MAX_SERVED);
    assert_true(mail.served[0] == 7 && mail.served[2] == 9);
    assert_memory_equal(mail.served + 3, many, 3 * (ENGINE_MAX_SERVED - 1) * sizeof many[0]);
    mailbox_report_hits(m, many, ENGINE_MAX_SERVED);
    mailbox_report_hits(m, (const uint32_t[]){1, 2, 3, 0, 0, 0, 4, 5, 6}, 3);
    mailbox_drain(m, MAILBOX_FOREVER, &mail);
    assert_int_equal(mail.n_served, 2);
    assert_memory_equal(mail.served, ((const uint32_t[]){0, 0, 0, 4, 5, 6}), 24);
    mailbox_drain(m, 0, &mail);
    assert_int_equal(mail.n_served, 0);
    mailbox_destroy(m);
}

static void a_wait_ends_in_time(void **state)
{
    (void)state;
    struct mailbox *m;
    struct mailbox_mail mail;
    uint32_t retry;
    assert_int_equal(mailbox_create(4, 0, 1, &m, NULL), QUIRE_OK);
    uint64_t until = quire_now_us() + 50000;
    mailbox_drain(m, until, &mail);
    assert_true(quire_now_us() >= until);
    assert_null(mail.submitted);
    mailbox_drain(m, 1, &mail); /* long past */
    assert_int_equal(submit(m, 10, 1, &retry), QUIRE_OK);
    until = quire_now_us() + 60000000;
    mailbox_drain(m, until, &mail);
    assert_non_null(mail.submitted);
    assert_true(quire_now_us() < until);
    free_mail(m, &mail);
    mailbox_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders),
        cmocka_unit_test(hit_reports),
        cmocka_unit_test(a_wait_ends_in_time),
        cmocka_unit_test(waiting_is_never_lost_from_sight),
        cmocka_unit_test(time_to_come_back),
        cmocka_unit_test(cancels_during_cancels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
