/* Single rules of shares, of prompts without blocks, of pins, of accounts and of batches. */
#include "tests/scheduler/sched_harness.h"

static struct sched_config fair_config(void)
{
    struct sched_config c = small_config();
    c.policy = sched_policy_find("fair");
    c.policy_options.n_tenants = 3;
    c.max_queued_requests = 16;
    c.max_num_batched_tokens = 40;
    return c;
}

static struct sched_request of_tenant(uint64_t id, uint32_t tenant, uint32_t n_prompt, uint32_t max_tokens)
{
    struct sched_request r = request_of(id, (uint32_t)id * 1000, n_prompt, max_tokens);
    r.tenant = tenant;
    return r;
}

static uint32_t given_to(const struct sched_plan *p, uint32_t seq)
{
    for (uint32_t i = 0; i < p->n_rows; i++)
        if (p->rows[i].seq == seq)
            return p->rows[i].count;
    return 0;
}

static void end_all(struct sched *s)
{
    while (!sched_idle(s))
        step(s);
    close_sched(s);
}

/* Long prompts take turns: each step computes one of them, that of the tenant with the least service. */
static void test_prompts_take_turns(void **state)
{
    (void)state;
    struct sched_config c = fair_config();
    c.kv.groups[0].n_blocks = 128;
    struct sched *s = open_sched(&c);
    uint32_t a = submit(s, of_tenant(1, 0, 180, 1)), b = submit(s, of_tenant(2, 1, 110, 1));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(given_to(step(s), a), 40);
        assert_int_equal(given_to(step(s), b), 40);
    }
    assert_int_equal(given_to(step(s), a), 40);
    const struct sched_plan *p = step(s); /* b's last thirty */
    assert_int_equal(given_to(p, b), 30);
    assert_int_equal(given_to(p, a), 10);
    assert_int_equal(given_to(step(s), a), 40);
    end_all(s);
}

/* Prompts have a quarter of the step target, or as configured, although decodes alone take longer. */
static void test_prompts_keep_a_share(void **state)
{
    (void)state;
    static const struct sched_cost cost = {.n_points = 2, .points = {{1, 1000}, {1001, 11000}}, .logit_us = 500};
    for (uint32_t share = 0; share <= 50; share += 50) {
        struct sched_config c = fair_config();
        c.cost = &cost;
        c.step_target_us = 2000;
        c.policy_options.prefill_share = share;
        c.max_num_seqs = c.max_logit_rows = 5;
        c.max_num_batched_tokens = 400;
        c.kv.groups[0].n_blocks = 400;
        c.max_model_len = 400;
        struct sched *s = open_sched(&c);
        for (uint32_t i = 0; i < 4; i++)
            submit(s, of_tenant(1 + i, 0, 4, 30));
        while (sched_stats(s).n_running < 4)
            step(s);
        uint32_t prompt = submit(s, of_tenant(9, 0, 300, 1));
        /* Four decodes take 3,030 us; a token of the prompt takes 10 us. */
        assert_int_equal(given_to(step(s), prompt), share ? 100 : 50);
        end_all(s);
    }
}

/* One tenant reads long contexts: next to another one, it has as much of a step as that, and no more, also where the step
 * target leaves more. */
static void sit_out(bool one_organisation, uint64_t step_target_us)
{
    static const struct sched_cost cost = {.n_points = 2, .points = {{1, 1000}, {4000, 1000}}, .context_us = 1};
    const struct sched_tenant tenants[3] = {
        {.weight = 1, .group = 1, .group_weight = 1}, {.weight = 1, .group = 1, .group_weight = 1}, {.weight = 1}};
    struct sched_config c = fair_config();
    c.policy_options.tenants = one_organisation ? tenants : NULL;
    c.cost = &cost;
    c.step_target_us = step_target_us;
    c.max_num_batched_tokens = 2000;
    c.max_model_len = 1000;
    c.kv.groups[0].n_blocks = 1000;
    struct sched *s = open_sched(&c);
    for (uint32_t i = 0; i < 3; i++)
        submit(s, of_tenant(1 + i, 0, 600, 60));
    for (uint32_t i = 0; i < 10; i++)
        step(s); /* each takes more than 2 ms, a quantum is 8 */
    assert_int_equal(step(s)->n_rows, 3);
    uint32_t light = submit(s, of_tenant(4, 1, 10, 20));
    for (uint32_t i = 0; i < 20; i++) {
        const struct sched_plan *p = step(s);
        assert_true(given_to(p, light) > 0);
        assert_int_equal(p->n_rows, 2); /* two contexts of 600 would take longer than the rest, 1,010 us */
    }
    assert_int_equal(step(s)->n_rows, 3); /* alone again */
    end_all(s);
}

static void test_long_contexts_sit_out(void **state)
{
    (void)state;
    for (uint32_t target_us = 0; target_us <= 20000; target_us += 20000) {
        sit_out(false, target_us);
        sit_out(true, target_us);
    }
}

/* A target that not even one token meets: sixteen are computed. */
static void test_the_least_chunk(void **state)
{
    (void)state;
    static const struct sched_cost cost = {.n_points = 1, .points = {{1, 1000}}};
    struct sched_config c = fair_config();
    c.cost = &cost;
    c.step_target_us = 1;
    struct sched *s = open_sched(&c);
    uint32_t prompt = submit(s, of_tenant(1, 0, 60, 1));
    for (uint32_t left = 60; left > 0; left -= left < 16 ? left : 16)
        assert_int_equal(given_to(step(s), prompt), left < 16 ? left : 16);
    end_all(s);
}

/* All seats are taken by one tenant. Another one's request takes one as soon as the first is some quanta of 1,024 tokens
 * ahead, and its sequence has held the seat for eight steps. */
static void check_a_seat_is_taken_back(const char *policy, uint32_t quanta)
{
    struct sched_config c = fair_config();
    uint32_t hogs[2], n_steps = 0;
    c.policy = sched_policy_find(policy);
    c.max_num_seqs = 2;
    c.max_model_len = 2000;
    c.kv.groups[0].n_blocks = 1200;
    struct sched *s = open_sched(&c);
    for (uint32_t i = 0; i < 2; i++)
        hogs[i] = submit(s, of_tenant(1 + i, 0, 20, 1900));
    step(s);
    uint32_t light = submit(s, of_tenant(3, 1, 8, 20));
    while (given_to(step(s), light) == 0 && n_steps < 1200)
        n_steps++;
    /* 40 tokens of prompts, and two tokens of price 2 in each step */
    assert_true(n_steps >= (quanta * 1024 - 40) / 4 && n_steps <= (quanta * 1024 - 40) / 4 + 9);
    assert_int_equal(sched_account(s, hogs[0]).n_preemptions, 0);
    assert_int_equal(sched_account(s, hogs[1]).n_preemptions, 1); /* the last one */
    for (uint32_t i = 0; i < 20; i++)
        step(s);
    assert_int_equal(sched_account(s, hogs[1]).n_preemptions, 1); /* it has its seat again, and keeps it */
    assert_int_equal(sched_stats(s).n_running, 2);
    sched_cancel(s, 1);
    sched_cancel(s, 2);
    collect(s);
    close_sched(s);
}

static void test_a_seat_is_taken_back(void **state)
{
    (void)state;
    check_a_seat_is_taken_back("fair", 1);
    check_a_seat_is_taken_back("sjf", 4);
}

/* A request of a higher priority class does not wait for the end of a lower one's answer, one of the same does. */
static void test_a_higher_priority_takes_a_seat(void **state)
{
    (void)state;
    struct sched_config c = fair_config();
    c.policy = sched_policy_find("priority");
    c.max_num_seqs = 2;
    c.max_model_len = 2000;
    c.kv.groups[0].n_blocks = 1200;
    struct sched *s = open_sched(&c);
    uint32_t low = submit(s, of_tenant(1, 0, 10, 900)), n_steps = 0;
    struct sched_request request = of_tenant(2, 0, 10, 900);
    request.priority = 3;
    uint32_t lowest = submit(s, request);
    step(s);
    uint32_t same = submit(s, of_tenant(3, 0, 8, 4));
    for (uint32_t i = 2; i < 9; i++) /* it ranks before the lowest, which keeps its seat for eight steps */
        assert_int_equal(given_to(step(s), same), 0);
    for (uint32_t i = 9; i < 25; i++)
        assert_int_equal(given_to(step(s), same), i == 9 ? 8 : i < 13);
    request = of_tenant(4, 0, 8, 2);
    request.priority = -1;
    uint32_t high = submit(s, request);
    while (given_to(step(s), high) == 0)
        n_steps++;
    assert_true(n_steps <= 8);
    assert_int_equal(sched_account(s, low).n_preemptions, 0);
    assert_int_equal(sched_account(s, lowest).n_preemptions, 2);
    sched_cancel(s, 1);
    sched_cancel(s, 2);
    end_all(s);
}

static const struct sched_plan *step_at(struct sched *s, uint64_t now_us)
{
    const struct sched_plan *p;
    assert_int_equal(sched_plan(s, now_us, &p, NULL), QUIRE_OK);
    if (p->n_rows > 0)
        commit(s, p, 7);
    collect(s);
    return p;
}

/* Answers that generate have all seats, or all blocks; steps take 10 ms. Requests whose first token is due within 200 ms
 * get in after half of that, one after the other, and what had to wait returns. */
static void deadlines_get_in(struct sched_config c, uint32_t n_hogs, uint32_t n_prompt)
{
    struct sched *s = open_sched(&c);
    uint64_t now_us = 1000000, submitted_us[4];
    uint32_t urgent[4], n_preempted = 0, n_first = 0;
    bool in[4] = {false};
    for (uint32_t i = 0; i < n_hogs; i++) {
        struct sched_request r = of_tenant(1 + i, 0, n_prompt, 160 - n_prompt);
        r.arrival_us = now_us;
        submit(s, r);
    }
    for (uint32_t i = 0; i < 20; i++)
        step_at(s, now_us += 10000);
    for (uint32_t i = 0; i < 4; i++) {
        struct sched_request r = of_tenant(20 + i, 1, 32, 12);
        r.arrival_us = submitted_us[i] = now_us;
        r.deadline_us = now_us + 200000;
        urgent[i] = submit(s, r);
        step_at(s, now_us += 10000);
    }
    while (!sched_idle(s)) {
        const struct sched_plan *p = step_at(s, now_us += 10000);
        n_preempted += p->n_preempted;
        for (uint32_t i = 0; i < p->n_admitted; i++)
            for (uint32_t k = 0; k < 4; k++)
                if (p->admitted[i] == urgent[k] && !in[k]) {
                    assert_true((k > 0 || now_us >= submitted_us[k] + 100000) && now_us < submitted_us[k] + 200000);
                    in[k] = true;
                    n_first++;
                }
    }
    assert_int_equal(n_first, 4);
    assert_true(n_preempted >= 1 && n_preempted <= 6);
    close_sched(s);
}

static void test_deadlines_take_seats_and_blocks(void **state)
{
    (void)state;
    struct sched_config c = fair_config();
    c.policy = sched_policy_find("edf");
    c.max_model_len = 200;
    c.kv.groups[0].n_blocks = 400;
    c.max_num_seqs = 3;
    deadlines_get_in(c, 3, 20);
    c.max_num_seqs = 8;
    c.kv.groups[0].n_blocks = 46; /* two answers of 20 blocks, when the urgent requests of eight blocks come */
    deadlines_get_in(c, 2, 60);
}

/* Three decodes take as long as eleven tokens of a prompt, so a lead soon pays for computing blocks again. */
static const struct sched_cost prompts_are_cheap = {.n_points = 3, .points = {{1, 1000}, {3, 3000}, {41, 12000}}};

/* A tenant's long answers fill the KV cache, not the seats. Another one's prompt gets its blocks once the first leads by a
 * quantum and by four times what computing its blocks again takes; without reason to believe that they suffice, none are taken. */
static void test_blocks_are_taken_back(void **state)
{
    (void)state;
    for (uint32_t variant = 0; variant < 3; variant++) {
        struct sched_config c = fair_config();
        uint32_t n_steps = 0;
        c.cost = &prompts_are_cheap;
        c.max_num_seqs = 8;
        c.max_model_len = 400;
        c.kv.groups[0].n_blocks = 100;
        c.preemption = variant == 1 ? SCHED_PREEMPT_NEVER : SCHED_PREEMPT_AUTO;
        struct sched *s = open_sched(&c);
        for (uint32_t i = 0; i < 3; i++)
            submit(s, of_tenant(1 + i, 0, 40, 80)); /* at most 30 blocks each */
        for (uint32_t i = 0; i < 50; i++)
            step(s);
        /* 22 blocks each by now: their tenant leads by some 150 ms, and 88 tokens take some 26 ms. */
        uint32_t light = submit(s, of_tenant(9, variant == 2 ? 0 : 1, 180, 2)); /* 46 blocks */
        while (given_to(step(s), light) == 0)
            n_steps++;
        uint64_t n_preempted = sched_stats(s).n_preemptions;
        assert_true(variant == 0 ? n_steps <= 4 && n_preempted == 1 : n_steps >= 20 && n_preempted == 0);
        end_all(s);
    }
}

/* The lead must pay for computing the lost blocks again, not only exceed a quantum. */
static void test_blocks_taken_are_paid_for(void **state)
{
    (void)state;
    struct sched_config c = fair_config();
    uint32_t n_steps = 0;
    c.cost = &prompts_are_cheap;
    c.max_num_seqs = 8;
    c.max_model_len = 400;
    c.kv.groups[0].n_blocks = 100;
    struct sched *s = open_sched(&c);
    for (uint32_t i = 0; i < 3; i++)
        submit(s, of_tenant(1 + i, 0, 40, 80));
    submit(s, of_tenant(8, 1, 200, 4)); /* so that the lead is small when the prompt comes */
    for (uint32_t i = 0; i < 45; i++)
        step(s);
    uint32_t light = submit(s, of_tenant(9, 1, 180, 2));
    while (given_to(step(s), light) == 0)
        n_steps++;
    assert_true(n_steps >= 10); /* the lead is some seven quanta, and grows by 3 ms in each */
    end_all(s);
}

/* If the blocks that may be taken are not enough for the prompt, none are. */
static void test_too_few_blocks_are_not_taken(void **state)
{
    (void)state;
    static const struct sched_cost cost = {.n_points = 3, .points = {{1, 1000}, {3, 3000}, {41, 3500}}};
    const struct sched_tenant tenants[] = {{.weight = 1}, {.weight = 1000}, {.weight = 1}};
    struct sched_config c = fair_config();
    c.policy_options.tenants = tenants;
    c.cost = &cost;
    c.max_num_seqs = 8;
    c.max_model_len = 400;
    c.kv.groups[0].n_blocks = 100;
    struct sched *s = open_sched(&c);
    submit(s, of_tenant(1, 0, 40, 60));
    submit(s, of_tenant(4, 0, 100, 1)); /* so that the lead pays */
    for (uint32_t i = 0; i < 10; i++)
        step(s);
    for (uint32_t i = 0; i < 2; i++)
        submit(s, of_tenant(2 + i, 1, 80, 60));
    for (uint32_t i = 0; i < 30; i++)
        step(s);
    uint32_t light = submit(s, of_tenant(9, 1, 240, 2)); /* 61 blocks; those of tenant 0 are some 20, 25 are free */
    for (uint32_t i = 0; i < 20; i++) {
        const struct sched_plan *p = step(s);
        assert_int_equal(p->n_preempted, 0);
        assert_int_equal(given_to(p, light), 0);
    }
    end_all(s);
}

/* Two sequences must lose their blocks for the prompt. Meanwhile no other tenant gets what the first one lost. */
static void test_no_other_gets_the_blocks(void **state)
{
    (void)state;
    struct sched_config c = fair_config();
    bool waits = true;
    c.cost = &prompts_are_cheap;
    c.max_num_seqs = 8;
    c.max_model_len = 400;
    c.kv.groups[0].n_blocks = 100;
    struct sched *s = open_sched(&c);
    for (uint32_t i = 0; i < 3; i++)
        submit(s, of_tenant(1 + i, 0, 40, 80));
    for (uint32_t i = 0; i < 50; i++)
        step(s);
    uint32_t light = submit(s, of_tenant(8, 1, 260, 2)); /* 66 blocks */
    step(s);
    uint32_t other = submit(s, of_tenant(9, 2, 20, 2));
    for (uint32_t i = 0; i < 8 && waits; i++) {
        const struct sched_plan *p = step(s);
        waits = given_to(p, light) == 0;
        assert_true(!waits || given_to(p, other) == 0);
    }
    assert_false(waits);
    assert_int_equal(sched_stats(s).n_preemptions, 2);
    end_all(s);
}

/* Tenants at their limits wait, and others pass them, whatever the policy. */
static void test_limits_of_a_tenant(void **state)
{
    (void)state;
    static const char *const policies[] = {"fcfs", "priority", "sjf", "edf", "fair", "lpm"};
    const struct sched_tenant tenants[] = {
        {.weight = 1, .max_seats = 2}, {.weight = 1, .max_kv_blocks = 12}, {.weight = 1}};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        struct sched_config c = fair_config();
        c.policy = sched_policy_find(policies[i]);
        c.policy_options.tenants = tenants;
        c.max_num_batched_tokens = 64;
        c.max_num_seqs = 8;
        struct sched *s = open_sched(&c);
        for (uint32_t k = 0; k < 4; k++)
            submit(s, of_tenant(1 + k, 0, 4, 30));
        for (uint32_t k = 0; k < 4; k++)
            submit(s, of_tenant(11 + k, 1, 5, 4)); /* each needs two blocks, or all the same with 25 tokens */
        struct sched_request big = of_tenant(20, 1, 24, 25), bigger = of_tenant(21, 1, 24, 26);
        uint32_t seq, last = submit(s, big), other = submit(s, of_tenant(30, 2, 8, 4));
        assert_int_equal(sched_submit(s, &bigger, &seq, NULL, NULL), QUIRE_INVALID); /* it would wait for ever */
        const struct sched_plan *p = step(s);
        assert_int_equal(sched_tenant_stats(s, 0).n_running, 2);
        assert_true(given_to(p, other) > 0);
        bool ran = false;
        while (sched_tenant_stats(s, 1).n_running + sched_tenant_stats(s, 1).n_waiting > 0) {
            p = step(s);
            if (given_to(p, last) > 0)
                ran = true;
            assert_true(sched_tenant_stats(s, 0).n_running <= 2);
            assert_true(given_to(p, last) == 0 || sched_tenant_stats(s, 1).n_running <= 1);
        }
        assert_true(ran);
        end_all(s);
    }
}

/* Reservation promises that nothing is preempted. */
static void test_a_reserved_seat_is_kept(void **state)
{
    (void)state;
    struct sched_config c = fair_config();
    c.max_num_seqs = 1;
    c.max_model_len = 2000;
    c.kv.groups[0].n_blocks = 1200;
    c.preemption = SCHED_PREEMPT_NEVER;
    struct sched *s = open_sched(&c);
    submit(s, of_tenant(1, 0, 20, 1900));
    step(s);
    submit(s, of_tenant(2, 1, 8, 20));
    for (uint32_t i = 0; i < 1800; i++)
        assert_int_equal(step(s)->n_preempted, 0);
    end_all(s);
}

/* A prompt without blocks is passed by other tenants until they are ahead by its price. */
static void test_a_prompt_without_blocks_lets_others_by(void **state)
{
    (void)state;
    struct sched_config c = fair_config();
    c.kv.groups[0].n_blocks = 52;
    c.max_num_seqs = 3;
    struct sched *s = open_sched(&c);
    submit(s, of_tenant(1, 2, 8, 150)); /* runs all the time */
    step(s);
    uint32_t big = submit(s, of_tenant(2, 0, 196, 1)); /* 49 blocks, which do not fit next to a */
    uint32_t n_passed = 0;
    for (uint64_t id = 3; sched_account(s, big).admitted_us == 0 && id < 200; id++) {
        if (sched_tenant_stats(s, 1).n_waiting == 0)
            submit(s, of_tenant(id, 1, 16, 8));
        const struct sched_plan *p = step(s);
        for (uint32_t i = 0; i < p->n_admitted; i++) {
            n_passed += p->admitted[i] != big;
            if (p->admitted[i] == big)
                id = 200;
        }
    }
    /* 196 and a head start of at most 1,024, by 32 per request, plus requests in progress. */
    assert_true(n_passed >= 4 && n_passed <= (196 + 1024) / 32 + 3);
    end_all(s);
}

/* A pin that blocks the only sequence that could run is dropped. */
static void test_a_pin_gives_way(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.kv.groups[0].n_blocks = 6;
    struct sched *s = open_sched(&c);
    struct sched_request pinned = request_of(1, 0, 4, 0);
    pinned.pin_us = 1000000000;
    submit(s, pinned);
    step(s);
    assert_int_equal(sched_stats(s).n_pins, 1);
    submit(s, request_of(2, 500, 8, 3));
    step(s);
    submit(s, request_of(3, 700, 22, 2)); /* all six blocks */
    for (uint32_t i = 0; i < 3; i++) {
        bool admitted = step(s)->n_admitted > 0;
        assert_int_equal(sched_stats(s).n_pins, admitted ? 0 : 1);
        if (admitted)
            break;
    }
    assert_int_equal(sched_stats(s).n_pins, 0);
    end_all(s);
}

/* Two compute a prompt at the same time and one of them pins it: the pinned blocks are those that are found. */
static void test_a_pin_holds_the_blocks_with_the_names(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.kv.groups[0].n_blocks = 12;
    c.max_num_batched_tokens = 32;
    struct sched *s = open_sched(&c);
    submit(s, request_of(1, 0, 9, 1));
    struct sched_request pinned = request_of(2, 0, 9, 0);
    pinned.pin_us = 1000000000;
    pinned.no_prefix_hits = true; /* or it would wait for the first */
    submit(s, pinned);
    assert_int_equal(step(s)->n_rows, 2);
    assert_int_equal(sched_stats(s).n_pins, 1);
    submit(s, request_of(3, 300, 38, 1)); /* takes every free block */
    while (sched_stats(s).n_waiting + sched_stats(s).n_running > 0)
        step(s);
    assert_int_equal(sched_stats(s).n_pins, 1);
    uint32_t again = submit(s, request_of(4, 0, 9, 1));
    assert_row(step(s), 0, again, 8, 1, true);
    sched_unpin(s, UINT32_MAX);
    close_sched(s);
}

static const struct sched_plan *plan_at(struct sched *s, uint64_t now_us)
{
    const struct sched_plan *p;
    assert_int_equal(sched_plan(s, now_us, &p, NULL), QUIRE_OK);
    return p;
}

/* Nothing is planned without sequences: a pin that has expired since then must not block a new one. */
static void test_a_pin_that_is_due_refuses_nobody(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.kv.groups[0].n_blocks = 6; /* three of them for pins */
    struct sched *s = open_sched(&c);
    for (uint32_t i = 0; i < 2; i++) {
        struct sched_request pinned = request_of(i, 100 * i, 9, 0);
        pinned.arrival_us = 1000 * i;
        pinned.pin_us = 500;
        submit(s, pinned);
        commit(s, plan_at(s, 1000 * i + 1), 7);
        collect(s);
        assert_int_equal(sched_stats(s).n_pins, 1);
    }
    struct sched_request early = request_of(2, 200, 9, 0);
    early.arrival_us = 1500; /* the second is due a microsecond later */
    early.pin_us = 500;
    uint32_t seq;
    assert_int_equal(sched_submit(s, &early, &seq, NULL, NULL), QUIRE_EXHAUSTED);
    sched_unpin(s, UINT32_MAX);
    close_sched(s);
}

/* The parts of a wait add up, whether it began before the first plan, before the last one or after it. */
static void test_waits_add_up(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.max_num_seqs = 1;
    struct sched *s = open_sched(&c);
    const uint64_t arrivals[] = {100, 350, 600};
    uint32_t seqs[3];
    for (uint32_t i = 0; i < 3; i++) {
        struct sched_request r = request_of(i, 100 * i, 4, 1);
        r.arrival_us = arrivals[i];
        seqs[i] = submit(s, r); /* the second is submitted late, the third before its time */
        const struct sched_plan *p = plan_at(s, 400 + 300 * i);
        struct sched_account a = sched_account(s, seqs[i]);
        uint64_t sum = 0;
        for (uint32_t j = 0; j < SCHED_N_SHORTAGES; j++)
            sum += a.queue_us[j];
        assert_int_equal(a.admitted_us, 400 + 300 * i);
        assert_int_equal(sum, a.admitted_us - arrivals[i]);
        commit(s, p, 7);
        collect(s);
    }
    close_sched(s);
}

/* Plans and commits until the sequence is admitted; returns its account then. */
static struct sched_account account_when_admitted(struct sched *s, uint32_t seq)
{
    for (uint64_t now_us = 1; now_us < 100; now_us++) {
        const struct sched_plan *p = plan_at(s, now_us);
        for (uint32_t i = 0; i < p->n_admitted; i++)
            if (p->admitted[i] == seq) {
                struct sched_account a = sched_account(s, seq);
                commit(s, p, 7);
                return a;
            }
        commit(s, p, 7);
        collect(s);
    }
    fail_msg("sequence %u is not admitted", seq);
    return (struct sched_account){0};
}

/* Preempted sequences were admitted before, and a request's own choices do not count: neither hides nor adds an
 * overtaking. */
static void test_who_was_overtaken(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.policy = sched_policy_find("priority");
    c.kv.groups[0].n_blocks = 4;
    c.max_num_seqs = 2;
    struct sched *s = open_sched(&c);
    submit(s, request_of(1, 0, 4, 12));
    submit(s, request_of(2, 100, 4, 8));
    while (sched_stats(s).n_preemptions == 0)
        step(s);
    assert_int_equal(sched_stats(s).n_waiting, 1);
    struct sched_request late = request_of(3, 200, 4, 1);
    late.priority = 5;
    late.n = 2;
    uint32_t seqs[2];
    assert_int_equal(sched_submit(s, &late, seqs, NULL, NULL), QUIRE_OK);
    submit(s, request_of(4, 300, 4, 1));
    assert_int_equal(account_when_admitted(s, seqs[0]).n_overtaken, 1);
    assert_int_equal(account_when_admitted(s, seqs[1]).n_overtaken, 1);
    end_all(s);
}

/* An incomplete batch starts when its first request has waited long enough, before or after another one's end. */
static void test_a_batch_waits_for_its_first(void **state)
{
    (void)state;
    struct sched_config c = small_config();
    c.batching = SCHED_DYNAMIC;
    c.max_batch_size = 2;
    c.max_wait_us = 100;
    struct sched *s = open_sched(&c);
    const uint64_t arrivals[] = {10, 60, 150, 155, 160};
    for (uint32_t i = 0; i < 5; i++) {
        struct sched_request r = request_of(i, 100 * i, 4, 1);
        r.arrival_us = arrivals[i];
        submit(s, r);
        if (i == 0) {
            assert_int_equal(plan_at(s, 20)->n_rows, 0);
            assert_int_equal(plan_at(s, 20)->wake_us, 110);
        }
    }
    const struct sched_plan *p = plan_at(s, 200); /* the first two; the next two; the last */
    assert_int_equal(p->n_admitted, 2);
    commit(s, p, 7);
    p = plan_at(s, 240);
    assert_int_equal(p->n_admitted, 2);
    commit(s, p, 7);
    p = plan_at(s, 250);
    assert_int_equal(p->n_admitted, 0);
    assert_int_equal(p->wake_us, 260);
    p = plan_at(s, 260);
    assert_int_equal(p->n_admitted, 1);
    commit(s, p, 7);
    collect(s);
    close_sched(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts_take_turns),
        cmocka_unit_test(test_prompts_keep_a_share),
        cmocka_unit_test(test_long_contexts_sit_out),
        cmocka_unit_test(test_a_seat_is_taken_back),
        cmocka_unit_test(test_a_higher_priority_takes_a_seat),
        cmocka_unit_test(test_the_least_chunk),
        cmocka_unit_test(test_deadlines_take_seats_and_blocks),
        cmocka_unit_test(test_blocks_are_taken_back),
        cmocka_unit_test(test_blocks_taken_are_paid_for),
        cmocka_unit_test(test_too_few_blocks_are_not_taken),
        cmocka_unit_test(test_no_other_gets_the_blocks),
        cmocka_unit_test(test_limits_of_a_tenant),
        cmocka_unit_test(test_a_reserved_seat_is_kept),
        cmocka_unit_test(test_a_prompt_without_blocks_lets_others_by),
        cmocka_unit_test(test_a_pin_gives_way),
        cmocka_unit_test(test_a_pin_holds_the_blocks_with_the_names),
        cmocka_unit_test(test_a_pin_that_is_due_refuses_nobody),
        cmocka_unit_test(test_waits_add_up),
        cmocka_unit_test(test_who_was_overtaken),
        cmocka_unit_test(test_a_batch_waits_for_its_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
