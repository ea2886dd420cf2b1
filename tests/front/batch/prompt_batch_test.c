/* The life of a batch of prompts over a source that the test plays: turns, errors within submit(), refusals,
 * cancellations and the end. */
#include "server/front/batch/prompt_batch.h"
#include "server/front/front_internal.h"
#include "tests/front/front_unit_test.h"

#include <string.h>

#define MOST 8

/* What the source does within submit(). */
enum within { NOTHING, ACCEPTS, ANSWERS, LOSES, REFUSES, FAILS };

struct submitted {
    const struct completion_events *events;
    struct batch_prompt *prompt;
    bool cancelled;
};

struct one_prompt {
    struct batch_prompt batch; /* first */
    uint32_t n_sent, n_accepted, n_tokens, n_vectors, n_done;
};

/* The front end around a batch, its source and its owner. */
struct fixture {
    struct event_base *base;
    struct front front;
    struct served_model model;
    struct prompt_batch batch;
    struct one_prompt prompts[MOST];
    /* The source. */
    enum within within[MOST]; /* of its submissions, in order */
    struct submitted submitted[MOST];
    uint32_t n_submitted;
    bool in_submit;
    /* The owner. */
    bool must_not_wait;
    uint32_t n_taken, n_complete, n_failed;
    struct api_error error;
};

/* ---- the source ---- */

static void give_accept(struct fixture *f, uint32_t i)
{
    f->submitted[i].events->on_accepted(f->submitted[i].prompt, 100 + i);
}

static void give_token(struct fixture *f, uint32_t i)
{
    const struct wire_token token = {.token = 7};
    f->submitted[i].events->on_token(f->submitted[i].prompt, &token);
}

static void give_end(struct fixture *f, uint32_t i, enum wire_finish finish)
{
    const struct wire_done done = {.finish = finish, .last = true};
    f->submitted[i].events->on_done(f->submitted[i].prompt, &done);
}

static void give_refuse(struct fixture *f, uint32_t i, int status)
{
    static const char why[] = "the queue is full";
    const struct wire_refuse refused = {.status = status, .message = why, .n_message = sizeof why - 1};
    f->submitted[i].events->on_refused(f->submitted[i].prompt, &refused);
}

static int source_submit(void *self, const struct request_spec *spec, const struct completion_terms *terms,
                         const struct completion_events *events, void *context, uint64_t *id, struct quire_error *err)
{
    struct fixture *f = self;
    const uint32_t i = f->n_submitted;
    (void)spec;
    (void)terms;
    assert_true(i < MOST);
    if (f->within[i] == FAILS) {
        f->within[i] = NOTHING;
        return quire_fail(err, QUIRE_EXHAUSTED, "the connection is full");
    }
    f->submitted[f->n_submitted++] = (struct submitted){.events = events, .prompt = context};
    *id = i;
    f->in_submit = true;
    switch (f->within[i]) {
    case ACCEPTS: give_accept(f, i); break;
    case ANSWERS:
        give_accept(f, i);
        give_token(f, i);
        give_end(f, i, WIRE_FINISH_STOP);
        break;
    case LOSES:
        events->on_lost(context, "the connection broke");
        assert_true(f->submitted[0].cancelled); /* at once: no more of its events may come */
        break;
    case REFUSES: give_refuse(f, i, QUIRE_EXHAUSTED); break;
    default: break;
    }
    f->in_submit = false;
    return QUIRE_OK;
}

static void source_cancel(void *self, uint64_t id, int64_t choice)
{
    struct fixture *f = self;
    if (choice < 0)
        f->submitted[id].cancelled = true;
}

/* ---- the owner ---- */

static int owner_submit(struct batch_prompt *p, struct quire_error *err)
{
    static const uint32_t ids[4] = {1, 2, 3, 4};
    struct request_spec s;
    request_spec_default(&s);
    s.prompt = ids;
    s.n_prompt = p->n_tokens;
    ((struct one_prompt *)p)->n_sent++;
    return prompt_batch_send(p, &s, NULL, err);
}

static bool may_wait(const void *owner)
{
    return !((const struct fixture *)owner)->must_not_wait;
}

static void on_accepted(struct batch_prompt *p, uint64_t engine_id)
{
    assert_true(engine_id >= 100);
    ((struct one_prompt *)p)->n_accepted++;
}

static void on_taken(void *owner)
{
    ((struct fixture *)owner)->n_taken++;
}

static void on_token(struct batch_prompt *p, const struct wire_token *token)
{
    assert_int_equal(token->token, 7);
    ((struct one_prompt *)p)->n_tokens++;
}

static void on_vector(struct batch_prompt *p, const struct wire_vector *vector)
{
    (void)vector;
    ((struct one_prompt *)p)->n_vectors++;
}

static bool on_done(struct batch_prompt *p, const struct wire_done *done)
{
    ((struct one_prompt *)p)->n_done++;
    return prompt_batch_ended_well(p, done);
}

static void on_complete(void *owner)
{
    struct fixture *f = owner;
    assert_false(f->in_submit); /* the owner frees its batch here, which submit() still uses */
    f->n_complete++;
    prompt_batch_end(&f->batch);
}

static void on_fail(void *owner, const struct api_error *e)
{
    struct fixture *f = owner;
    assert_false(f->in_submit);
    f->n_failed++;
    f->error = *e;
    prompt_batch_end(&f->batch);
}

static const struct prompt_batch_calls calls = {
    .prompt_bytes = sizeof(struct one_prompt),
    .submit = owner_submit,
    .may_wait = may_wait,
    .on_accepted = on_accepted,
    .on_taken = on_taken,
    .on_token = on_token,
    .on_done = on_done,
    .complete = on_complete,
    .fail = on_fail,
};

/* ---- the fixture ---- */

static void open_batch(struct fixture *f, const struct prompt_batch_calls *owner, uint32_t n_prompts,
                       uint32_t n_choices)
{
    static const struct upstream_user user;
    *f = (struct fixture){.base = event_base_new()};
    f->model.front = &f->front;
    f->model.source = (struct completion_source){.self = f, .submit = source_submit, .cancel = source_cancel};
    assert_int_equal(turns_open(f->base, &f->model.turns, NULL), QUIRE_OK);
    assert_int_equal(upstream_open(f->base, &user, NULL, &f->model.upstream, NULL), QUIRE_OK);
    for (uint32_t i = 0; i < n_prompts; i++)
        f->prompts[i].batch.n_tokens = 4;
    prompt_batch_begin(&f->batch, &f->model, owner, f, NULL, &f->prompts->batch, n_prompts, n_choices);
    prompt_batch_expect(&f->batch);
}

/* Checks that nothing waits any more. */
static void close_batch(struct fixture *f)
{
    assert_int_equal(turns_n_all(f->model.turns), 0);
    upstream_close(f->model.upstream);
    turns_close(f->model.turns);
    event_base_free(f->base);
}

static void let_turns_come(struct fixture *f)
{
    event_base_loop(f->base, EVLOOP_NONBLOCK);
}

/* ---- the tests ---- */

static void one_prompt_to_its_end(void **state)
{
    struct fixture f;
    (void)state;
    open_batch(&f, &calls, 1, 1);
    prompt_batch_start(&f.batch);
    assert_int_equal(f.n_submitted, 1);
    assert_true(f.prompts[0].batch.live);
    give_accept(&f, 0);
    give_accept(&f, 0); /* a second one has no effect */
    assert_true(f.prompts[0].batch.accepted);
    give_token(&f, 0);
    give_token(&f, 0);
    assert_int_equal(f.n_complete, 0);
    give_end(&f, 0, WIRE_FINISH_LENGTH);
    assert_int_equal(f.n_complete, 1);
    assert_int_equal(f.n_failed, 0);
    assert_int_equal(f.n_taken, 1);
    assert_int_equal(f.prompts[0].n_accepted, 1);
    assert_int_equal(f.prompts[0].n_tokens, 2);
    assert_int_equal(f.prompts[0].n_done, 1);
    assert_false(f.submitted[0].cancelled); /* it is over, so there is nothing to cancel */
    close_batch(&f);
}

/* A cache has the answer at once: complete() comes after submit() (checked there), once. */
static void answered_within_submit(void **state)
{
    struct fixture f;
    (void)state;
    open_batch(&f, &calls, 3, 1);
    for (uint32_t i = 0; i < 3; i++)
        f.within[i] = ANSWERS;
    prompt_batch_start(&f.batch);
    assert_int_equal(f.n_complete, 0);
    let_turns_come(&f);
    assert_int_equal(f.n_submitted, 3);
    assert_int_equal(f.n_complete, 1);
    assert_int_equal(f.n_taken, 1);
    close_batch(&f);
}

/* The others wait until the first prompt is accepted, and then go in their order, as far as the engine has room. */
static void others_wait_for_their_turn(void **state)
{
    struct fixture f;
    (void)state;
    open_batch(&f, &calls, 4, 5); /* 20 choices: held back */
    assert_false(prompt_batch_is_small(&f.batch));
    turns_set_engine(f.model.turns, 0, 0, 4); /* room for two prompts without a first token */
    prompt_batch_start(&f.batch);
    let_turns_come(&f);
    assert_int_equal(f.n_submitted, 1);
    give_accept(&f, 0);
    let_turns_come(&f);
    assert_int_equal(f.n_submitted, 2);
    assert_ptr_equal(f.submitted[1].prompt, &f.prompts[1].batch);
    let_turns_come(&f);
    assert_int_equal(f.n_submitted, 2);
    give_token(&f, 0); /* it leaves room for one more */
    let_turns_come(&f);
    assert_int_equal(f.n_submitted, 3);
    for (uint32_t i = 0; i < 3; i++)
        give_end(&f, i, WIRE_FINISH_STOP);
    let_turns_come(&f);
    assert_int_equal(f.n_submitted, 4);
    assert_int_equal(f.n_complete, 0);
    give_end(&f, 3, WIRE_FINISH_STOP);
    assert_int_equal(f.n_complete, 1);
    close_batch(&f);
}

/* fail() comes after submit() (checked there), once, and the other prompts end. */
static void lost_within_submit(void **state)
{
    struct fixture f;
    (void)state;
    open_batch(&f, &calls, 3, 1);
    f.within[0] = ACCEPTS;
    f.within[1] = LOSES;
    prompt_batch_start(&f.batch);
    let_turns_come(&f);
    assert_int_equal(f.n_submitted, 2);
    assert_int_equal(f.n_failed, 1);
    assert_int_equal(f.error.status, 503);
    assert_true(f.submitted[0].cancelled);
    assert_false(f.submitted[1].cancelled);
    assert_int_equal(f.n_complete, 0);
    close_batch(&f);
}

static void first_prompt_refused(void **state)
{
    struct fixture f;
    (void)state;
    for (int within = 0; within < 2; within++) {
        open_batch(&f, &calls, 3, 1);
        f.within[0] = within ? REFUSES : NOTHING;
        prompt_batch_start(&f.batch);
        if (!within)
            give_refuse(&f, 0, QUIRE_EXHAUSTED);
        assert_int_equal(f.n_failed, 1);
        assert_int_equal(f.error.status, 429);
        assert_string_equal(f.error.why.text, "the queue is full");
        assert_int_equal(f.n_submitted, 1);
        assert_int_equal(f.n_taken, 0);
        close_batch(&f);
    }
    open_batch(&f, &calls, 1, 1);
    f.within[0] = FAILS;
    prompt_batch_start(&f.batch);
    assert_int_equal(f.n_failed, 1);
    assert_string_equal(f.error.why.text, "the connection is full");
    assert_false(f.prompts[0].batch.live);
    close_batch(&f);
}

/* Once the request has begun, a full engine means that a prompt waits again. */
static void later_prompt_waits_again(void **state)
{
    struct fixture f;
    (void)state;
    for (int how = 0; how < 3; how++) { /* refused later, refused within submit(), submit() fails */
        open_batch(&f, &calls, 2, 9);
        f.within[0] = ACCEPTS;
        f.within[1] = how == 0 ? NOTHING : how == 1 ? REFUSES : FAILS;
        prompt_batch_start(&f.batch);
        let_turns_come(&f);
        if (how == 0)
            give_refuse(&f, 1, QUIRE_EXHAUSTED);
        assert_int_equal(f.prompts[1].n_sent, 1);
        assert_int_equal(f.n_failed, 0);
        assert_true(f.prompts[1].batch.waits);
        assert_int_equal(turns_n_all(f.model.turns), 9);
        give_end(&f, 0, WIRE_FINISH_STOP); /* the engine has room again */
        assert_int_equal(f.n_complete, 0);
        let_turns_come(&f);
        assert_int_equal(f.prompts[1].n_sent, 2);
        give_end(&f, f.n_submitted - 1, WIRE_FINISH_STOP);
        assert_int_equal(f.n_complete, 1);
        close_batch(&f);
    }
    open_batch(&f, &calls, 2, 9);
    f.must_not_wait = true; /* its deadline has passed */
    f.within[0] = ACCEPTS;
    prompt_batch_start(&f.batch);
    let_turns_come(&f);
    give_refuse(&f, 1, QUIRE_EXHAUSTED);
    assert_int_equal(f.n_failed, 1);
    assert_true(f.submitted[0].cancelled);
    close_batch(&f);
}

static void ended_by_the_engine(void **state)
{
    struct fixture f;
    (void)state;
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        open_batch(&f, &calls, 1, 1);
        prompt_batch_start(&f.batch);
        give_accept(&f, 0);
        give_end(&f, 0, cancelled ? WIRE_FINISH_CANCELLED : WIRE_FINISH_ERROR);
        assert_int_equal(f.n_failed, 1);
        assert_int_equal(f.n_complete, 0);
        assert_int_equal(f.error.status, cancelled ? 503 : 500);
        close_batch(&f);
    }
}

/* The client is gone: what runs is cancelled, what waits is forgotten. */
static void end_cancels_all(void **state)
{
    struct fixture f;
    struct prompt_batch none = {0};
    (void)state;
    open_batch(&f, &calls, 4, 5);
    turns_set_engine(f.model.turns, 0, 0, 4);
    f.within[0] = ACCEPTS;
    prompt_batch_start(&f.batch);
    let_turns_come(&f);
    assert_int_equal(f.n_submitted, 2);
    assert_int_equal(turns_n_all(f.model.turns), 10);
    prompt_batch_end(&f.batch);
    assert_true(f.submitted[0].cancelled && f.submitted[1].cancelled);
    let_turns_come(&f);
    assert_int_equal(f.n_submitted, 2);
    assert_int_equal(f.n_failed + f.n_complete, 0);
    close_batch(&f);
    prompt_batch_end(&none);
}

/* Without its function an event is ignored, except a vector: the source must see that nothing takes it. */
static void few_functions(void **state)
{
    struct prompt_batch_calls few = {
        .prompt_bytes = sizeof(struct one_prompt),
        .submit = owner_submit,
        .on_done = on_done,
        .complete = on_complete,
        .fail = on_fail,
    };
    const struct wire_vector vector = {0};
    const struct completion_origin origin = {0};
    struct fixture f;
    (void)state;
    open_batch(&f, &few, 1, 1);
    prompt_batch_start(&f.batch);
    const struct completion_events *events = f.submitted[0].events;
    assert_null(events->on_vector);
    events->on_origin(f.submitted[0].prompt, &origin);
    assert_true(events->has_space(f.submitted[0].prompt));
    give_accept(&f, 0);
    give_token(&f, 0);
    give_end(&f, 0, WIRE_FINISH_STOP);
    assert_int_equal(f.n_complete, 1);
    close_batch(&f);
    few.on_vector = on_vector;
    open_batch(&f, &few, 1, 1);
    prompt_batch_start(&f.batch);
    f.submitted[0].events->on_vector(f.submitted[0].prompt, &vector);
    assert_int_equal(f.prompts[0].n_vectors, 1);
    prompt_batch_end(&f.batch);
    close_batch(&f);
}

int run_prompt_batch_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_prompt_to_its_end),
        cmocka_unit_test(answered_within_submit),
        cmocka_unit_test(others_wait_for_their_turn),
        cmocka_unit_test(lost_within_submit),
        cmocka_unit_test(first_prompt_refused),
        cmocka_unit_test(later_prompt_waits_again),
        cmocka_unit_test(ended_by_the_engine),
        cmocka_unit_test(end_cancels_all),
        cmocka_unit_test(few_functions),
    };
    return cmocka_run_group_tests_name("prompt_batch", tests, NULL, NULL);
}
