/* Drafts in a recording: they drive the scheduler to the same decisions, and the answers replay. A watch in this
 * test passes the guesses and the gates to the recorder, as the engine does with those of its drafters. */
#include "record_rig.h"

#include "engine/record/drive.h"
#include "engine/stats.h"
#include "app/replay/replay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sample_tests.h"

#define N_PROMPT 20u
#define N_TOKENS 40u

struct guesser {
    const struct engine_watch *recorder;
    const uint32_t *tokens; /* [N_TOKENS] the known answer */
    uint32_t n_proposed;
};

static void on_committed(void *context, const struct engine_watch_commit *c)
{
    struct guesser *g = context;
    struct sched *s = (struct sched *)(uintptr_t)c->sched;
    uint32_t n_known, guesses[4];
    if (c->n_results != 1 || c->results[0].finished)
        return;
    sched_tokens(s, c->results[0].seq, &n_known);
    uint32_t at = n_known - N_PROMPT, n = 0;
    for (; n < 4 && at + n < N_TOKENS; n++)
        guesses[n] = g->tokens[at + n] + (g->n_proposed % 3 == n); /* at most one of them is wrong */
    n = sched_propose(s, c->results[0].seq, guesses, n);
    if (n > 0)
        g->recorder->proposed(g->recorder->context, c->results[0].seq, guesses, n);
    g->n_proposed += n > 0;
    if (sched_gate(s, c->results[0].seq, n_known % 8 < 4))
        g->recorder->gated(g->recorder->context, c->results[0].seq, n_known % 8 < 4);
}

static void record(const char *path, struct request_spec *q, const uint32_t *tokens, struct answer *out_of)
{
    const struct recorder_about about = {.model = "tiny", .config_sha256 = quire_sha256("x", 1)};
    struct recorder *recorder;
    assert_int_equal(recorder_open(path, &about, &recorder, NULL), QUIRE_OK);
    struct guesser g = {.recorder = recorder_watch(recorder), .tokens = tokens};
    const struct engine_watch guesses = {.context = &g, .committed = on_committed};
    const struct engine_watch *watches[] = {recorder_watch(recorder), &guesses};
    struct engine_options o = rig_options();
    static struct engine_observers observers;
    observers = (struct engine_observers){.watches = watches, .n_watches = 2};
    o.observers = &observers;
    struct client *client = client_open(rig_model.dir, &o);
    const struct answer *a = client_ask(client, q);
    assert_int_equal(a->choices[0].n_tokens, N_TOKENS);
    assert_memory_equal(a->choices[0].tokens, tokens, N_TOKENS * sizeof *tokens);
    assert_memory_equal(a->choices[0].record.bytes, out_of->choices[0].record.bytes, a->choices[0].record.n);
    client_close(client);
    recorder_close(recorder);
    assert_true(g.n_proposed > 5);
}

/* Replays everything with these drafts or without drafts; nothing may differ. */
static struct replay_report replay(struct recording *r, const char *speculative)
{
    struct speculative_config config;
    struct replay *p;
    struct replay_report report;
    struct quire_error err;
    if (speculative)
        assert_int_equal(speculative_config_parse(speculative, strlen(speculative), &config, &err), QUIRE_OK);
    if (replay_open(r, &p, &err) != QUIRE_OK ||
        replay_run(p, rig_model.dir, speculative ? &config : NULL, NULL, NULL, &report, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    assert_int_equal(report.n_different, 0);
    replay_close(p);
    return report;
}

static void drafts_again(void **state)
{
    (void)state;
    uint32_t prompt[N_PROMPT];
    client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, 3);
    struct request_spec q = client_request(prompt, N_PROMPT, N_TOKENS);
    q.n_logprobs = 2;
    q.ignore_eos = true;
    struct engine_options o = rig_options();
    struct client *plain = client_open(rig_model.dir, &o);
    struct answer *a = client_ask(plain, &q);
    const char *path = rig_new_path();
    record(path, &q, a->choices[0].tokens, a);

    struct recording *r;
    struct recording_entry e;
    struct recording_run run;
    struct replay_report report;
    uint32_t n_proposed = 0, n_drafts = 0, n_accepted = 0, n_steps = 0, n_gates = 0;
    assert_int_equal(recording_open(path, &r, NULL), QUIRE_OK);
    while (recording_next(r, &e, NULL) == QUIRE_OK && e.kind != RECORDING_END) {
        n_proposed += e.kind == RECORDING_PROPOSE ? e.propose.n : 0;
        n_drafts += e.kind == RECORDING_PLAN ? e.plan.n_drafts : 0;
        n_steps += e.kind == RECORDING_COMMIT;
        n_gates += e.kind == RECORDING_GATE && e.gate.gated;
        for (uint32_t i = 0; e.kind == RECORDING_COMMIT && i < e.commit.n_results; i++)
            n_accepted += e.commit.results[i].n_accepted;
    }
    assert_true(n_gates > 1);
    assert_true(n_drafts > 10 && n_drafts <= n_proposed);
    assert_true(n_accepted > 5 && n_accepted < n_drafts);
    assert_int_equal(n_steps, N_TOKENS - n_accepted);
    assert_int_equal(recording_drive(r, NULL, NULL, &run, NULL), QUIRE_OK);
    assert_true(run.agrees);
    assert_int_equal(run.requests[0].n_outputs[0], N_TOKENS);
    recording_run_free(&run);
    report = replay(r, NULL);
    assert_int_equal(report.n_tokens, N_TOKENS);
    recording_close(r);
    client_close(plain);
}

#define NGRAM "{\"method\": \"ngram\", \"num_speculative_tokens\": 5, \"adaptive\": false}"

/* Drafts of a server and of a request: recorded, they drive the scheduler again, and replay with drafts and without. */
static void an_engines_drafts(void **state)
{
    (void)state;
    const char *path = rig_new_path();
    struct engine_options o = rig_options();
    struct rig_traffic traffic;
    struct recording *r;
    struct recording_run run;
    struct rig rig;
    assert_int_equal(speculative_config_parse(NGRAM, strlen(NGRAM), &o.steps->speculative, NULL), QUIRE_OK);
    rig_open(&rig, path, o);
    rig_submit(&rig, 1, &traffic);
    rig_wait(&rig, &traffic);
    uint32_t prompt[N_PROMPT];
    client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, 3);
    struct request_spec q = client_request(prompt, N_PROMPT, N_TOKENS);
    q.ignore_eos = true;
    q.prediction = client_ask(rig.client, &q)->choices[0].tokens;
    q.n_prediction = N_TOKENS;
    q.draft_method = DRAFT_NGRAM;
    q.max_drafts = 3;
    client_ask(rig.client, &q);
    const struct engine_stats stats = client_idle_stats(rig.client);
    rig_close(&rig);
    assert_true(stats.n_preemptions > 0 && stats.n_accepted_tokens > N_TOKENS / 2);
    assert_true(stats.n_draft_tokens > stats.n_accepted_tokens);

    assert_int_equal(recording_open(path, &r, NULL), QUIRE_OK);
    assert_int_equal(recording_drive(r, NULL, NULL, &run, NULL), QUIRE_OK);
    assert_true(run.agrees);
    recording_run_free(&run);
    assert_int_equal(replay(r, NULL).n_draft_tokens, 0);
    assert_true(replay(r, NGRAM).n_accepted_tokens > N_TOKENS / 2);
    recording_close(r);
}

/* A prediction that arrives while the request runs is not recorded, but its effects are, and drive the scheduler. */
static void a_late_prediction(void **state)
{
    (void)state;
    const char *path = rig_new_path();
    uint32_t prompt[N_PROMPT], n_proposed = 0;
    struct recording_entry e;
    struct recording_run run;
    struct recording *r;
    struct rig rig;
    struct engine_options o = rig_options();
    o.steps->speculative.adaptive = false;
    rig_open(&rig, path, o);
    client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, 3);
    struct request_spec q = client_request(prompt, N_PROMPT, N_TOKENS);
    q.ignore_eos = true;
    const struct answer *plain = client_ask(rig.client, &q);
    const struct answer *late = client_ask_late(rig.client, &q, plain->choices[0].tokens, N_TOKENS);
    assert_true(answers_equal(plain, late));
    const struct engine_stats stats = client_idle_stats(rig.client);
    rig_close(&rig);
    assert_int_equal(recording_open(path, &r, NULL), QUIRE_OK);
    while (recording_next(r, &e, NULL) == QUIRE_OK && e.kind != RECORDING_END) {
        n_proposed += e.kind == RECORDING_PROPOSE ? e.propose.n : 0;
        assert_true(e.kind != RECORDING_SUBMIT || e.submit->spec->n_prediction == 0);
    }
    assert_true(stats.n_accepted_tokens > N_TOKENS / 2 && n_proposed >= stats.n_accepted_tokens);
    assert_int_equal(recording_drive(r, NULL, NULL, &run, NULL), QUIRE_OK);
    assert_true(run.agrees);
    recording_run_free(&run);
    assert_int_equal(replay(r, NULL).n_tokens, 2 * N_TOKENS);
    recording_close(r);
}

/* Each selected number of drafts precedes the proposal, with the values that it follows from. */
static void choices_are_recorded(void **state)
{
    (void)state;
    const char *path = rig_new_path();
    uint32_t prompt[N_PROMPT], n_choices = 0, n_chosen = 0, n_left = 0, n_timed = 0;
    struct recording_entry e;
    struct recording *r;
    struct rig rig;
    rig_open(&rig, path, rig_options());
    client_random_prompt(prompt, N_PROMPT, TINY_VOCAB, 3);
    struct request_spec q = client_request(prompt, N_PROMPT, N_TOKENS);
    q.ignore_eos = true;
    q.prediction = client_ask(rig.client, &q)->choices[0].tokens;
    q.n_prediction = N_TOKENS;
    client_ask(rig.client, &q);
    rig_close(&rig);
    assert_int_equal(recording_open(path, &r, NULL), QUIRE_OK);
    while (recording_next(r, &e, NULL) == QUIRE_OK && e.kind != RECORDING_END) {
        if (e.kind == RECORDING_PROPOSE) {
            assert_true(e.propose.n <= n_left); /* less if an answer has fewer tokens to go */
            n_left -= e.propose.n;
        }
        if (e.kind != RECORDING_LENGTHS)
            continue;
        assert_true(e.lengths->n_rows == 1 && e.lengths->n_items == 1 && e.lengths->n_right <= e.lengths->n_chosen);
        assert_true(e.lengths->us_with >= e.lengths->us_without);
        n_choices++;
        n_chosen += n_left = e.lengths->n_chosen;
        n_timed += e.lengths->us_without > 0;
    }
    assert_true(n_choices > 0 && n_chosen > 1 &&
                n_timed == n_choices); /* the first knows only plain steps: there are many */
    recording_close(r);
}

int main(void)
{
    struct CMUnitTest tests[] = {cmocka_unit_test(drafts_again), cmocka_unit_test(an_engines_drafts),
                                 cmocka_unit_test(a_late_prediction), cmocka_unit_test(choices_are_recorded)};
    if (quire_hash_init() != QUIRE_OK)
        return 1;
    sample_overlap(tests, sizeof tests / sizeof *tests);
    return cmocka_run_group_tests(tests, rig_set_up, rig_tear_down);
}
