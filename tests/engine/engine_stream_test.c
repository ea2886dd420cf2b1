/* Attention sinks with a window (docs/internals/numerics.md §10): texts beyond the model's positions in a bounded KV
 * cache, an answer that is the same when it is computed again as a prompt, and the properties that the mask and the
 * second q give: what lies between has no effect, and neither has how much of it there is. */
#include "engine/engine.h"
#include "memory/kv_cache.h"
#include "tests/engine/fixtures/client.h"
#include "tests/engine/fixtures/step_options.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MODEL QUIRE_SOURCE_DIR "/tests/goldens/models/qwen2" /* F32, 1,024 positions */
#define N_VOCAB 320u
#define WINDOW 24u
#define SINKS 5u
#define CHUNK 64u
#define LONGEST 4096u

static struct engine_options streaming_options(void)
{
    struct engine_options o;
    engine_options_default(&o);
    o.steps = client_steps();
    o.gemm_form = "lane";
    o.n_threads = 1;
    o.max_num_batched_tokens = CHUNK;
    o.max_model_len = LONGEST;
    o.attention_window = WINDOW;
    o.attention_sinks = SINKS;
    return o;
}

/* Blocks that the longest text holds at once. */
static uint32_t blocks_of_one(void)
{
    struct kv_config kv = {.block_tokens = 16, .n_groups = 1};
    kv.groups[0].window = WINDOW;
    kv.groups[0].sinks = SINKS;
    return kv_blocks_needed(&kv, 0, LONGEST, CHUNK);
}

static struct answer *ask_logprobs(struct client *c, const uint32_t *prompt, uint32_t n)
{
    struct request_spec r = client_request(prompt, n, 1);
    r.n_prompt_logprobs = 0;
    return client_ask(c, &r);
}

/* Three times the model's positions in the blocks of a window; and a prompt has the bits of the answer. */
static void answers_have_no_end(void **state)
{
    (void)state;
    enum { N_PROMPT = 50, N_ANSWER = 3000 };
    static uint32_t text[N_PROMPT + N_ANSWER];
    struct engine_options o = streaming_options();
    o.num_kv_blocks = blocks_of_one();
    assert_true(o.num_kv_blocks < 10);
    struct client *c = client_open(MODEL, &o);
    client_random_prompt(text, N_PROMPT, N_VOCAB, 1);
    struct request_spec r = client_request(text, N_PROMPT, N_ANSWER);
    r.ignore_eos = true;
    r.temperature = 1;
    r.has_seed = true;
    r.n_logprobs = 0;
    const struct answer *first = client_ask(c, &r);
    assert_int_equal(first->choices[0].n_tokens, N_ANSWER);
    memcpy(text + N_PROMPT, first->choices[0].tokens, N_ANSWER * sizeof *text);
    const struct answer *again = ask_logprobs(c, text, N_PROMPT + N_ANSWER);
    assert_int_equal(again->n_prompt_logprobs, N_PROMPT + N_ANSWER - 1);
    assert_memory_equal(again->prompt_logprobs + N_PROMPT, first->choices[0].logprobs, N_ANSWER * sizeof(float));
    assert_int_equal(client_idle_stats(c).n_blocks_leaked, 0);
    client_close(c);
}

/* A chat goes on from the blocks of its sinks and of its last window. */
static void a_chat_goes_on_from_the_cache(void **state)
{
    (void)state;
    static uint32_t text[1500];
    struct engine_options o = streaming_options();
    o.num_kv_blocks = 4 * blocks_of_one();
    o.prefix_caching = true;
    struct client *c = client_open(MODEL, &o);
    client_random_prompt(text, 1500, N_VOCAB, 2);
    struct request_spec r = client_request(text, 1500, 8);
    r.n_logprobs = 3;
    r.ignore_eos = true;
    const struct answer *first = client_ask(c, &r), *second = client_ask(c, &r);
    assert_int_equal(first->choices[0].n_cached, 0);
    assert_int_equal(second->choices[0].n_cached, 1500 / 16 * 16);
    assert_true(records_equal(&first->choices[0].record, &second->choices[0].record));
    client_close(c);
}

static float largest_difference(const float *a, const float *b, uint32_t n)
{
    float most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

/* Until the window leaves the sinks, this is full attention, but for rounding. */
static void a_window_of_everything_is_full_attention(void **state)
{
    (void)state;
    enum { N = 300 };
    uint32_t text[N];
    client_random_prompt(text, N, N_VOCAB, 3);
    struct engine_options full = streaming_options(), wide = full, narrow = full;
    full.attention_window = full.attention_sinks = 0;
    full.max_model_len = wide.max_model_len = 1024;
    wide.attention_window = N - SINKS;
    struct client *a = client_open(MODEL, &full), *b = client_open(MODEL, &wide), *c = client_open(MODEL, &narrow);
    const float *want = ask_logprobs(a, text, N)->prompt_logprobs + 1;
    assert_true(largest_difference(ask_logprobs(b, text, N)->prompt_logprobs + 1, want, N - 1) < 1e-4f);
    assert_true(largest_difference(ask_logprobs(c, text, N)->prompt_logprobs + 1, want, N - 1) > 1e-2f);
    client_close(a);
    client_close(b);
    client_close(c);
}

/* Fills text with the sinks, n_between other tokens and a tail, and returns the length. */
static uint32_t make_text(uint32_t *text, uint32_t n_between, uint64_t seed, uint32_t n_tail)
{
    client_random_prompt(text, SINKS, N_VOCAB, 4);
    client_random_prompt(text + SINKS, n_between, N_VOCAB, seed);
    client_random_prompt(text + SINKS + n_between, n_tail, N_VOCAB, 5);
    return SINKS + n_between + n_tail;
}

/* The tail is as long as all layers look back, so its end depends on the sinks and itself. Other tokens between the two
 * move no bit. More of them move rounding alone: the window's distances stay, and the sinks' second q stops. */
static void what_lies_between_has_no_effect(void **state)
{
    (void)state;
    enum { END = 20, TAIL = 200 };
    static uint32_t text[LONGEST];
    struct engine_options o = streaming_options();
    struct client *c = client_open(MODEL, &o);
    uint32_t n = make_text(text, 400, 6, TAIL);
    const float *want = ask_logprobs(c, text, n)->prompt_logprobs + n - END;
    n = make_text(text, 400, 7, TAIL);
    assert_memory_equal(ask_logprobs(c, text, n)->prompt_logprobs + n - END, want, END * sizeof *want);
    n = make_text(text, 3500, 7, TAIL);
    assert_true(largest_difference(ask_logprobs(c, text, n)->prompt_logprobs + n - END, want, END) < 1e-4f);
    text[0] = text[0] ? 0 : 1; /* a sink has one */
    assert_true(largest_difference(ask_logprobs(c, text, n)->prompt_logprobs + n - END, want, END) > 1e-3f);
    client_close(c);
}

static void refuse(const char *model, const struct engine_options *o, const char *word)
{
    struct quire_error err = {.text = ""};
    if (client_try_open(model, o, &err) || !strstr(err.text, word))
        fail_msg("\"%s\" does not say \"%s\"", err.text, word);
}

static void bad_options(void **state)
{
    (void)state;
    struct engine_options o = streaming_options();
    o.attention_window = 0;
    refuse(MODEL, &o, "--attention-sinks 5: needs --attention-window");
    o.attention_window = 1020;
    refuse(MODEL, &o, "is more than the 1024 positions");
    o.attention_window = 100;
    o.attention_sinks = 513;
    refuse(MODEL, &o, "--attention-sinks: must be at most 512");
    o = streaming_options();
    refuse(QUIRE_SOURCE_DIR "/tests/goldens/models/mistral", &o, "every layer of this model has a window of its own");
    o.task = "embed";
    refuse(MODEL, &o, "returns vectors");
    o = streaming_options();
    o.steps->speculative.method = DRAFT_MODEL;
    snprintf(o.steps->speculative.model, sizeof o.steps->speculative.model, "%s", MODEL);
    o.steps->speculative.num_speculative_tokens = 3;
    refuse(MODEL, &o, "--attention-window: a draft model");
    o.max_model_len = 1u << 27;
    o.steps = client_steps();
    refuse(MODEL, &o, "--max-model-len: must be at most");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_have_no_end),
        cmocka_unit_test(a_chat_goes_on_from_the_cache),
        cmocka_unit_test(a_window_of_everything_is_full_attention),
        cmocka_unit_test(what_lies_between_has_no_effect),
        cmocka_unit_test(bad_options),
    };
    return cmocka_run_group_tests_name("engine_stream", tests, NULL, NULL);
}
