/* Attention sinks on a device (docs/internals/numerics.md §10, §17): the bits of a CPU in the lane form, and of an answer
 * that is computed again in the mma form. */
#include "engine/engine.h"
#include "tests/engine/fixtures/client.h"
#include "tests/engine/fixtures/step_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MODELS QUIRE_SOURCE_DIR "/tests/goldens/models/"
#define N_VOCAB 320u /* of both models */
#define N_PROMPT 90u
#define N_ANSWER 14u

static struct engine_options sinks_options(const char *form)
{
    struct engine_options o;
    engine_options_default(&o);
    o.steps = client_steps();
    o.gemm_form = form;
    o.n_threads = 1;
    o.max_num_batched_tokens = 64;
    o.max_model_len = 256;
    o.attention_window = 24;
    o.attention_sinks = 5;
    return o;
}

/* Asks for an answer with the logprobs of all tokens. */
static const struct answer *ask(struct client *c, const uint32_t *text, uint32_t n)
{
    struct request_spec r = client_request(text, n, N_PROMPT + N_ANSWER + 1 - n);
    r.ignore_eos = true;
    r.n_prompt_logprobs = 0;
    r.n_logprobs = 0;
    return client_ask(c, &r);
}

/* In the lane form a GPU gives the bits of a CPU: of a prompt in chunks and of the answer behind it. */
static void a_gpu_gives_the_bits_of_a_cpu(void **state)
{
    (void)state;
    uint32_t text[N_PROMPT];
    client_random_prompt(text, N_PROMPT, N_VOCAB, 8);
    struct engine_options host = sinks_options("lane"), device = host;
    host.device = "cpu";
    struct client *a = client_open(MODELS "qwen2", &host), *b = client_open(MODELS "qwen2", &device);
    const struct answer *want = ask(a, text, N_PROMPT), *got = ask(b, text, N_PROMPT);
    assert_memory_equal(got->prompt_logprobs + 1, want->prompt_logprobs + 1, (N_PROMPT - 1) * sizeof(float));
    assert_true(records_equal(&got->choices[0].record, &want->choices[0].record));
    client_close(a);
    client_close(b);
}

/* In the mma form an answer has the bits of a prompt that contains it, whatever the chunks are. */
static void an_mma_answer_is_the_same_as_a_prompt(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {64, 7};
    uint32_t text[N_PROMPT + N_ANSWER];
    float want[N_ANSWER];
    client_random_prompt(text, N_PROMPT, N_VOCAB, 9);
    for (uint32_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        struct engine_options o = sinks_options("mma");
        o.max_num_batched_tokens = chunks[i];
        struct client *c = client_open(MODELS "qwen2_window", &o);
        if (i == 0) {
            const struct answer *first = ask(c, text, N_PROMPT);
            memcpy(text + N_PROMPT, first->choices[0].tokens, N_ANSWER * sizeof *text);
            memcpy(want, first->choices[0].logprobs, sizeof want);
        }
        const struct answer *again = ask(c, text, N_PROMPT + N_ANSWER);
        assert_memory_equal(again->prompt_logprobs + N_PROMPT, want, sizeof want);
        client_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_gives_the_bits_of_a_cpu),
        cmocka_unit_test(an_mma_answer_is_the_same_as_a_prompt),
    };
    return cmocka_run_group_tests_name("engine_stream_device", tests, NULL, NULL);
}
