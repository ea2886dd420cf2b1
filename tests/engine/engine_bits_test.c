/* Every build and both backends on a CPU give the same bits: release and sanitizers, gcc and clang,
 * x86-64 and Arm, ref and cpu.
 *
 * tests/engine/bits.txt holds, for each golden model and form, the BLAKE2b-256 over everything the engine said of one greedy
 * and one sampled request. A difference is a changed answer for every user: it needs a reason in
 * docs/numerics.md and a line in CHANGELOG.md. With --write the program prints the file anew. */
#include "client.h"
#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MODELS QUIRE_SOURCE_DIR "/tests/goldens/models/"
#define FILE_NAME QUIRE_SOURCE_DIR "/tests/engine/bits.txt"
#define N_PROMPT 150

static const struct {
    const char *model, *form;
} cases[] = {
    {"llama2", "lane"}, {"llama3", "lane"},     {"llama_bias", "lane"},   {"mistral", "lane"},
    {"qwen2", "lane"},  {"qwen2_yarn", "lane"}, {"qwen2_window", "lane"}, {"qwen3", "lane"},
    {"llama3", "tile"}, {"qwen3_f16", "lane"},  {"qwen2_window", "tile"}, {"qwen3", "tile"},
    {"qwen3_f16", "tile"}, {"qwen3", "tile-bf16"},
};
#define N_CASES (sizeof cases / sizeof cases[0])

/* A chain over the answer's records, which hold each number bit for bit. */
static struct key256 add_answer(struct key256 chain, const struct answer *a)
{
    chain = quire_keyed_hash(&chain, a->prompt_record.bytes, a->prompt_record.n);
    return quire_keyed_hash(&chain, a->choices[0].record.bytes, a->choices[0].record.n);
}

static void digest(const char *device, size_t i, char hex[65])
{
    char dir[512];
    uint32_t prompt[N_PROMPT];
    struct engine_options options;
    struct key256 chain = {{0}};
    snprintf(dir, sizeof dir, MODELS "%s", cases[i].model);
    engine_options_default(&options);
    options.num_kv_blocks = 100;
    options.max_num_batched_tokens = 64;
    options.device = device;
    options.gemm_form = cases[i].form;
    if (strcmp(cases[i].form, "tile-bf16") == 0) {
        options.gemm_form = "tile";
        options.activation_dtype = "bfloat16";
    }
    struct client *c = client_open(dir, &options);
    client_random_prompt(prompt, N_PROMPT, engine_info(client_engine(c))->desc->vocab_size, 7);

    struct engine_request r = client_request(prompt, N_PROMPT, 32);
    r.sampling.n_logprobs = r.sampling.n_prompt_logprobs = 20;
    r.sampling.ignore_eos = true;
    chain = add_answer(chain, client_ask(c, &r));
    r.sampling.temperature = 0.9f;
    r.sampling.top_p = 0.95f;
    r.sampling.has_seed = true;
    r.sampling.seed = 42;
    chain = add_answer(chain, client_ask(c, &r));
    client_close(c);
    quire_key256_hex(&chain, hex);
}

static void every_build_gives_the_committed_bits(void **state)
{
    (void)state;
    char hex[65], model[64], form[16], want[65];
    FILE *file = fopen(FILE_NAME, "r");
    assert_non_null(file);
    for (size_t i = 0; i < N_CASES; i++) {
        assert_int_equal(fscanf(file, "%63s %15s %64s", model, form, want), 3);
        assert_string_equal(model, cases[i].model);
        assert_string_equal(form, cases[i].form);
        static const char *const devices[] = {"ref", "cpu"};
        for (int device = 0; device < 2; device++) {
            digest(devices[device], i, hex);
            if (strcmp(hex, want) != 0)
                fail_msg("%s, %s form on %s: other bits than those of tests/engine/bits.txt", model, form,
                         devices[device]);
        }
    }
    fclose(file);
}

int main(int argc, char **argv)
{
    if (quire_hash_init() != QUIRE_OK)
        return 1;
    if (argc > 1 && strcmp(argv[1], "--write") == 0) {
        for (size_t i = 0; i < N_CASES; i++) {
            char hex[65];
            digest("ref", i, hex);
            printf("%s %s %s\n", cases[i].model, cases[i].form, hex);
        }
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_build_gives_the_committed_bits)};
    return cmocka_run_group_tests_name("bits", tests, NULL, NULL);
}
