/* Records a live engine that is closed or killed. The recording drives a scheduler to the same decisions and an
 * engine to the same bits. */
#include "record_rig.h"

#include "engine/engine.h"
#include "engine/record/drive.h"
#include "app/replay/replay.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/sample_tests.h"

static struct recording *open_recording(const char *path)
{
    struct recording *r;
    struct quire_error err;
    if (recording_open(path, &r, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return r;
}

static struct recording_run drive(struct recording *r)
{
    struct recording_run run;
    struct quire_error err;
    if (recording_drive(r, NULL, NULL, &run, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    if (!run.agrees)
        fail_msg("byte %llu: decided otherwise", (unsigned long long)run.wrong_offset);
    assert_memory_equal(&run.decisions, &run.recorded_decisions, sizeof run.decisions);
    return run;
}

static struct replay_report replay(struct recording *r, const char *model)
{
    struct replay *p;
    struct replay_report report = {0};
    struct quire_error err;
    if (replay_open(r, &p, &err) != QUIRE_OK || replay_run(p, model, NULL, NULL, NULL, &report, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    replay_close(p);
    return report;
}

/* ---- a run of every kind --------------------------------------------------------------------- */

/* An emulated step takes a second, a CPU's a millisecond. */
#ifdef TEST_DEVICE
#define ONE_RUN_IN 4
#else
#define ONE_RUN_IN 1
#endif

/* The recording must contain the same answer as the client received, for each request. */
static void compare_answers(const struct recording_run *run, const struct rig_traffic *traffic)
{
    assert_int_equal(run->n_requests, RIG_N_REQUESTS);
    for (uint32_t i = 0; i < RIG_N_REQUESTS; i++) {
        const struct answer *a = traffic->answers[i];
        const struct recording_request *q = &run->requests[i];
        assert_int_equal(q->request, a->id);
        assert_int_equal(q->n, a->n);
        bool cancelled = false;
        uint32_t n_all = 0;
        for (uint32_t k = 0; k < a->n; k++) {
            assert_int_equal(q->n_outputs[k], a->choices[k].n_tokens);
            cancelled |= a->choices[k].finish == ENGINE_FINISH_CANCELLED;
            n_all += a->choices[k].n_tokens;
        }
        assert_int_equal(q->cancelled, cancelled);
        assert_int_equal(q->n_cached, a->choices[0].n_cached);
        if (n_all > 0) {
            assert_true(recording_queue_us(q) >= 0);
            assert_true(recording_ttft_us(q) >= recording_queue_us(q));
            assert_true(recording_e2el_us(q) >= recording_ttft_us(q));
        } else {
            assert_true(recording_ttft_us(q) < 0);
        }
    }
}

static uint64_t one_run(uint64_t number, const struct engine_options *o)
{
    const char *path = rig_new_path();
    struct rig rig;
    struct rig_traffic traffic;
    rig_open(&rig, path, *o);
    rig_submit(&rig, number, &traffic);
    rig_wait(&rig, &traffic);
    client_stop_engine(rig.client);
    recorder_close(rig.recorder);

    struct recording *r = open_recording(path);
    struct recording_run run = drive(r);
    uint64_t n_preemptions = run.n_preemptions;
    assert_true(run.closed);
    assert_int_equal(run.n_left_out, 0);
    compare_answers(&run, &traffic);
    recording_run_free(&run);
    struct replay_report report = replay(r, rig_model.dir);
    assert_int_equal(report.n_different, 0);
    assert_false(report.other_identity);
    assert_int_equal(report.n_requests, RIG_N_REQUESTS);
    assert_true(report.n_compared >= RIG_N_REQUESTS / 2 && report.n_tokens > 0);
    recording_close(r);
    client_close(rig.client);
    return n_preemptions;
}

static void every_policy_again(void **state)
{
    (void)state;
    uint64_t n_preemptions = 0;
    struct sample sample = sample_of(ONE_RUN_IN);
    for (uint32_t i = 0; sched_policy_at(i); i++) {
        struct engine_options o = rig_options();
        o.steps->scheduling_policy = sched_policy_at(i)->name;
        if (sample_takes(&sample))
            n_preemptions += one_run(i, &o);
    }
    sample_report(&sample, "policies");
    assert_true(n_preemptions > 0 || sample.one_in > 1); /* otherwise this test has too many blocks */
}

static void other_shapes_again(void **state)
{
    (void)state;
    struct engine_options shapes[4];
    for (uint32_t i = 0; i < 4; i++)
        shapes[i] = rig_options();
    shapes[0].swap_space = 1 << 20;
    shapes[1].swap_space = 1 << 20;
    shapes[1].steps->preemption_mode = "recompute";
    shapes[1].prefix_cache_eviction = "reuse";
    shapes[1].steps->long_prefill_token_threshold = 16;
    shapes[2].steps->batching = "dynamic";
    shapes[2].steps->max_batch_size = 3;
    shapes[2].steps->max_wait_ms = 2;
    shapes[2].steps->class_batch_size[0] = 2;
    shapes[2].steps->class_wait_us[0] = 1500;
    shapes[2].steps->adaptive_batches = true;
    shapes[3].steps->preemption_mode = "never";
    shapes[3].steps->cost = (struct sched_cost){.n_points = 1, .points = {{1, 150}}, .row_us = 3};
    shapes[3].steps->step_target_ms = 1;
    shapes[3].steps->adaptive_budget = true;
    struct sample sample = sample_of(ONE_RUN_IN);
    for (uint32_t i = 0; i < 4; i++)
        if (sample_takes(&sample))
            one_run(100 + i, &shapes[i]);
    sample_report(&sample, "shapes");
}

static bool has_kind(struct recording *r, enum recording_kind kind)
{
    struct recording_entry e;
    bool has = false;
    recording_rewind(r);
    do {
        assert_int_equal(recording_next(r, &e, NULL), QUIRE_OK);
        has = has || e.kind == kind;
    } while (e.kind != RECORDING_END);
    return has;
}

static void a_policy_that_changes(void **state)
{
    (void)state;
    const char *path = rig_new_path();
    struct rig rig;
    struct rig_traffic traffic[2];
    struct quire_error err;
    uint64_t order;
    rig_open(&rig, path, rig_options());
    rig_submit(&rig, 7, &traffic[0]);
    assert_int_equal(engine_set_policy(client_engine(rig.client), "priority", NULL, &order, &err), QUIRE_OK);
    rig_submit(&rig, 8, &traffic[1]);
    engine_drain(client_engine(rig.client));
    rig_wait(&rig, &traffic[0]);
    rig_wait(&rig, &traffic[1]);
    rig_close(&rig);

    struct recording *r = open_recording(path);
    assert_true(has_kind(r, RECORDING_POLICY));
    struct recording_run run = drive(r);
    assert_int_equal(run.n_requests, 2 * RIG_N_REQUESTS);
    recording_run_free(&run);
    assert_int_equal(replay(r, rig_model.dir).n_different, 0);
    recording_close(r);
}

static void a_batch_that_begins_at_the_end(void **state)
{
    (void)state;
    const char *path = rig_new_path();
    struct rig rig;
    uint32_t prompt[9];
    struct engine_options o = rig_options();
    o.steps->batching = "static";
    o.steps->max_batch_size = 5;
    client_random_prompt(prompt, 9, TINY_VOCAB, 3);
    struct request_spec q = client_request(prompt, 9, 5);
    rig_open(&rig, path, o);
    struct answer *a = client_submit(rig.client, &q);
    engine_drain(client_engine(rig.client));
    client_wait(rig.client, a);
    rig_close(&rig);

    struct recording *r = open_recording(path);
    assert_true(has_kind(r, RECORDING_NO_MORE));
    struct recording_run run = drive(r);
    assert_true(run.n_steps > 0);
    recording_run_free(&run);
    recording_close(r);
}

/* ---- unplanned ends -------------------------------------------------------------------------- */

static void serve_until_killed(const char *path, int ready)
{
    struct rig rig;
    struct rig_traffic traffic;
    rig_open(&rig, path, rig_options());
    rig_submit(&rig, 50, &traffic);
    rig_wait(&rig, &traffic);
    /* The engine stops here, after the first token of a request that never ends. */
    uint32_t prompt[9];
    client_random_prompt(prompt, 9, TINY_VOCAB, 3);
    struct request_spec q = client_request(prompt, 9, 100);
    q.ignore_eos = true;
    client_pause(rig.client);
    client_submit(rig.client, &q);
    client_wait_paused(rig.client);
    if (write(ready, "x", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static void killed(void **state)
{
    (void)state;
    const char *path = rig_new_path();
    int pipes[2], status;
    char byte;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0)
        serve_until_killed(path, pipes[1]);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(pipes[0]);
    assert_true(WIFSIGNALED(status));

    struct recording *r = open_recording(path);
    struct recording_run run = drive(r);
    assert_false(run.closed);
    assert_true(run.n_requests >= RIG_N_REQUESTS);
    recording_run_free(&run);
    struct replay_report report = replay(r, rig_model.dir);
    assert_int_equal(report.n_different, 0);
    assert_true(report.n_tokens > 100 && report.n_cut > 0);
    recording_close(r);
}

/* In a child: a file may not grow beyond 12,000 bytes. */
static void serve_on_a_full_disk(const char *path)
{
    struct rig rig;
    struct rig_traffic traffic;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){12000, 12000});
    rig_open(&rig, path, rig_options());
    rig_submit(&rig, 60, &traffic);
    rig_wait(&rig, &traffic);
    bool all = true;
    for (uint32_t i = 0; i < RIG_N_REQUESTS; i++)
        all = all && traffic.answers[i]->over;
    rig_close(&rig);
    _exit(all ? 0 : 1);
}

static void a_full_disk(void **state)
{
    (void)state;
    const char *path = rig_new_path();
    int status;
    pid_t child = fork();
    if (child == 0)
        serve_on_a_full_disk(path);
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 12000);
    struct recording *r = open_recording(path);
    struct recording_run run = drive(r);
    assert_true(!run.closed && run.n_plans > 0);
    recording_run_free(&run);
    recording_close(r);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void what_the_file_holds(void **state)
{
    (void)state;
    const char *path = rig_new_path();
    struct key256 secret, domain;
    struct rig rig;
    struct stat st;
    quire_random(&secret, sizeof secret);
    quire_random(&domain, sizeof domain);
    struct engine_options o = rig_options();
    o.chain_secret = &secret;
    rig_open(&rig, path, o);
    uint32_t prompt[20];
    client_random_prompt(prompt, 20, TINY_VOCAB, 3);
    struct request_spec q = client_request(prompt, 20, 4);
    q.cache_domain = domain;
    client_ask(rig.client, &q);
    rig_close(&rig);

    size_t n;
    unsigned char *bytes = rig_read(path, &n);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_null(memmem(bytes, n, secret.bytes, 16));
    assert_null(memmem(bytes, n, domain.bytes, 16));
    assert_non_null(memmem(bytes, n, prompt, sizeof prompt)); /* on a little-endian machine */
    free(bytes);

    struct recorder *again;
    struct quire_error err;
    const struct recorder_about about = {.model = "tiny"};
    assert_int_equal(recorder_open(path, &about, &again, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "never overwritten"));
}

static uint32_t *put_answer(uint32_t *at, uint32_t kind, const struct record *record, uint32_t n, uint32_t n_top)
{
    for (uint32_t i = 0; i < n; i++) {
        struct recorded given = record_entry(record, i, n_top);
        *at++ = kind;
        *at++ = given.token;
        *at++ = given.position;
        *at++ = n_top;
        memcpy(at++, &given.logprob, 4);
        *at++ = given.rank;
        for (uint32_t k = 0; k < n_top; k++) {
            *at++ = given.ids[k];
            memcpy(at++, &given.logprobs[k], 4);
        }
    }
    return at;
}

/* Against recording.md, from the client's data. */
static void digests_cover_every_logprob_bit(void **state)
{
    (void)state;
    const char *path = rig_new_path();
    struct rig rig;
    uint32_t prompt[9], bytes[400];
    client_random_prompt(prompt, 9, TINY_VOCAB, 3);
    struct request_spec q = client_request(prompt, 9, 5);
    q.n_logprobs = 3;
    q.n_prompt_logprobs = 1;
    q.ignore_eos = true;
    rig_open(&rig, path, rig_options());
    struct answer *a = client_ask(rig.client, &q);
    uint32_t *end = put_answer(bytes, 1, &a->prompt_record, 8, 1);
    end = put_answer(end, 0, &a->choices[0].record, 5, 3);
    struct key256 digest = quire_sha256(bytes, (size_t)(end - bytes) * 4);
    rig_close(&rig);

    struct recording *r = open_recording(path);
    struct recording_entry e = {0};
    while (e.kind != RECORDING_FINISH)
        assert_int_equal(recording_next(r, &e, NULL), QUIRE_OK);
    assert_int_equal(e.finish.choices[0].n_tokens, 5);
    assert_int_equal(e.finish.choices[0].n_prompt_logprobs, 8);
    assert_memory_equal(&e.finish.choices[0].digest, &digest, sizeof digest);
    recording_close(r);
}

static void an_engine_that_does_not_open_leaves_no_file(void **state)
{
    (void)state;
    const char *path = rig_new_path();
    const struct recorder_about about = {.model = "tiny"};
    struct recorder *recorder;
    assert_int_equal(recorder_open(path, &about, &recorder, NULL), QUIRE_OK);
    recorder_close(recorder);
    assert_int_equal(access(path, F_OK), -1);
}

static void another_model_answers_otherwise(void **state)
{
    (void)state;
    const char *path = rig_new_path();
    struct rig rig;
    struct rig_traffic traffic;
    rig_open(&rig, path, rig_options());
    rig_submit(&rig, 9, &traffic);
    rig_wait(&rig, &traffic);
    rig_close(&rig);
    struct recording *r = open_recording(path);
    struct replay_report report = replay(r, rig_other_model.dir);
    assert_true(report.n_different > 5 && report.n_shown > 0 && report.other_identity);
    recording_close(r);
}

/* With f16 weights, which have every form; the tiny model's are f32. And with every KV cache. */
static void every_form_again(void **state)
{
    (void)state;
    const char *model = QUIRE_SOURCE_DIR "/tests/goldens/models/qwen3_f16";
#ifdef TEST_DEVICE
    static const struct {
        const char *form, *cache;
    } cases[] = {{"lane", "auto"}, {"mma", "auto"}};
#else
    static const struct {
        const char *form, *cache;
    } cases[] = {{"lane", "auto"}, {"tile", "auto"}, {"lane", "int8"}, {"lane", "fp8"}, {"tile", "fp8_e5m2"}};
#endif
    static const uint32_t prompt[] = {5, 6, 7, 8, 9, 10};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = rig_new_path();
        struct engine_options o = rig_options();
        struct rig rig;
        o.gemm_form = cases[i].form;
        o.kv_cache_dtype = cases[i].cache;
        rig_open_model(&rig, path, model, o);
        struct request_spec r = client_request(prompt, 6, 4);
        r.n_logprobs = 2;
        client_ask(rig.client, &r);
        rig_close(&rig);
        struct recording *recording = open_recording(path);
        struct replay_report report = replay(recording, model);
        assert_int_equal(report.n_compared, 1);
        assert_int_equal(report.n_different, 0);
        assert_false(report.other_identity);
        recording_close(recording);
    }
}

#ifdef TEST_DEVICE
/* Its decisions are repeated; its answers need not be. */
static void without_invariance(void **state)
{
    (void)state;
    const char *path = rig_new_path();
    struct engine_options o = rig_options();
    struct rig rig;
    uint32_t prompt[40]; /* more rows than our own GEMMs take */
    for (uint32_t i = 0; i < 40; i++)
        prompt[i] = 5 + i;
    o.gemm_form = "mma";
    o.invariance = "off";
    rig_open_model(&rig, path, QUIRE_SOURCE_DIR "/tests/goldens/models/qwen3_f16", o);
    struct request_spec r = client_request(prompt, 40, 4);
    client_ask(rig.client, &r);
    rig_close(&rig);
    struct recording *recording = open_recording(path);
    assert_true(recording_header(recording)->engine->not_invariant);
    const struct sched_tenant *tenants = recording_header(recording)->config->policy_options.tenants;
    assert_true(tenants[0].group == 5 && tenants[0].group_weight == 2 && tenants[0].max_seats == 3);
    assert_true(tenants[1].weight == 3 && tenants[1].group == 5 && tenants[2].max_kv_blocks == 19);
    assert_int_equal(recording_header(recording)->engine->gemm_form, K_FORM_MMA);
    drive(recording);
    struct replay *p;
    struct replay_report report;
    struct quire_error err;
    assert_int_equal(replay_open(recording, &p, &err), QUIRE_OK);
    assert_int_equal(replay_run(p, rig_model.dir, NULL, NULL, NULL, &report, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "made with --invariance off"));
    replay_close(p);
    recording_close(recording);
}
#endif

int main(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_again),
        cmocka_unit_test(other_shapes_again),
        cmocka_unit_test(a_policy_that_changes),
        cmocka_unit_test(a_batch_that_begins_at_the_end),
        cmocka_unit_test(killed),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(what_the_file_holds),
        cmocka_unit_test(digests_cover_every_logprob_bit),
        cmocka_unit_test(an_engine_that_does_not_open_leaves_no_file),
        cmocka_unit_test(another_model_answers_otherwise),
        cmocka_unit_test(every_form_again),
#ifdef TEST_DEVICE
        cmocka_unit_test(without_invariance),
#endif
    };
    if (quire_hash_init() != QUIRE_OK)
        return 1;
#ifdef TEST_DEVICE /* the last one is the device's own; record_test runs all others */
    sample_tests(tests, sizeof tests / sizeof *tests - 1, 2);
#endif
    sample_overlap(tests, sizeof tests / sizeof *tests);
    return cmocka_run_group_tests(tests, rig_set_up, rig_tear_down);
}
