/* A rank that computes other bits than the others: a bit of one number of its residual stream is turned, once, in the
 * middle of an answer (not its lowest, which the sums that follow may round away). On a GPU, whose steps may be recorded, it adds
 * to its residual stream what the others do not. The linker hands the engine this k_backend_open() (--wrap), in every process of the group. */
#include "engine/engine.h"
#include "engine/event.h"
#include "kernels/args/norm.h"
#include "kernels/backend.h"
#include "kernels/open.h"
#include "tests/engine/fixtures/client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_PROMPT 20
#ifdef TEST_DEVICE
#define MODEL QUIRE_SOURCE_DIR "/tests/goldens/models/llama3"
#define N_TOKENS 8
#define RECORDED 0 /* in what is recorded, and so in each step that decodes */
#define EAGER 1 /* in the prompt's step */
#else
#define MODEL QUIRE_SOURCE_DIR "/tools/demo_model/model"
#define TEST_DEVICE "cpu"
#define N_TOKENS 100
#define LATER 100 /* one of the norms of sums, after a few steps of one token */
#define FIRST 3 /* in the prompt's step, of a token whose logits are not needed */
#endif

int __real_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err);
int __wrap_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err);

static const struct k_backend_ops *real;
static struct k_backend_ops lying;
static int own_rank;
static unsigned lies_at;

#ifdef RECORDED
static bool is_recording;

static int rmsnorm(struct k_backend *b, const struct k_rmsnorm_args *a, struct quire_error *err)
{
    struct k_rmsnorm_args lie = *a;
    if (a->add_is_part && (lies_at == RECORDED ? is_recording : a->n_tokens == N_PROMPT))
        lie.add_bias_dev = a->weight_dev;
    return real->rmsnorm(b, &lie, err);
}

static int graph_begin(struct k_backend *b, struct quire_error *err)
{
    is_recording = true;
    return real->graph_begin(b, err);
}

static int graph_end(struct k_backend *b, struct k_graph **out, struct quire_error *err)
{
    is_recording = false;
    return real->graph_end(b, out, err);
}

static void lie(void)
{
    lying.rmsnorm = rmsnorm;
    lying.graph_begin = graph_begin;
    lying.graph_end = graph_end;
}
#else
static unsigned n_norms;

static int rmsnorm(struct k_backend *b, const struct k_rmsnorm_args *a, struct quire_error *err)
{
    const int status = real->rmsnorm(b, a, err);
    if (status == QUIRE_OK && a->add_dev && ++n_norms == lies_at)
        ((uint32_t *)(void *)a->x_dev)[0] ^= 1u << 12;
    return status;
}

static void lie(void)
{
    lying.rmsnorm = rmsnorm;
    n_norms = 0;
}
#endif

int __wrap_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err)
{
    const char *who = getenv("TEST_LIES"); /* "RANK WHERE" */
    const int status = __real_k_backend_open(options, out, why, err);
    if (status != QUIRE_OK || !who || atoi(who) != own_rank)
        return status;
    real = (*out)->ops;
    lying = *real;
    lie();
    lies_at = (unsigned)atoi(strchr(who, ' '));
    (*out)->ops = &lying;
    return status;
}

/* Whether the answer came to its end; else why not. */
static bool answers(uint32_t n_places, uint32_t n_stages, char *why)
{
    static uint32_t prompt[N_PROMPT];
    struct engine_options o;
    engine_options_default(&o);
    o.device = TEST_DEVICE;
    o.n_threads = 1;
    o.num_kv_blocks = 64;
    o.tensor_parallel_size = n_places;
    o.pipeline_parallel_size = n_stages;
    for (uint32_t i = 0; i < N_PROMPT; i++)
        prompt[i] = 30 + 7 * i;
    struct client *c = client_open(MODEL, &o);
    struct request_spec r = client_request(prompt, N_PROMPT, N_TOKENS);
    r.ignore_eos = true;
    const struct answer *a = client_ask(c, &r);
    const bool is_whole = a->choices[0].finish == ENGINE_FINISH_LENGTH;
    if (!is_whole) {
        assert_int_equal(a->choices[0].finish, ENGINE_FINISH_ERROR);
        assert_int_equal(a->choices[0].status, QUIRE_UNAVAILABLE);
        assert_true(a->choices[0].n_tokens < N_TOKENS);
    }
    memcpy(why, a->choices[0].message, QUIRE_ERROR_BYTES);
    client_close(c);
    return is_whole;
}

static void a_rank_with_other_bits_is_found_and_named(void **state)
{
    static const struct {
        uint32_t n_places, n_stages;
        const char *who, *says;
        unsigned at;
    } cases[] = {
#ifdef RECORDED
        {2, 1, "1", "rank 1 has computed different bits from rank 0 (", EAGER},
        {2, 1, "0", "rank 1 has computed different bits from rank 0 (", RECORDED}};
#else
        {4, 1, "0", "rank 0 has computed different bits from rank 1 (", LATER},
        {4, 1, "2", "rank 2 has computed different bits from rank 0 (", LATER},
        {2, 1, "1", "rank 1 has computed different bits from rank 0 (", FIRST},
        {2, 2, "3", "rank 3 has computed different bits from rank 2 (", LATER}};
#endif
    char why[QUIRE_ERROR_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char lie[32];
        snprintf(lie, sizeof lie, "%s %u", cases[i].who, cases[i].at);
        setenv("TEST_LIES", lie, 1);
        assert_false(answers(cases[i].n_places, cases[i].n_stages, why));
        if (!strstr(why, cases[i].says))
            fail_msg("rank %s of %u: \"%s\"", cases[i].who, cases[i].n_places, why);
    }
    unsetenv("TEST_LIES");
    assert_true(answers(cases[0].n_places, 1, why));
}

int main(void)
{
    const char *place = getenv("QUIRE_GROUP"); /* "DESCRIPTOR RANK TIMEOUT_MS" */
    if (engine_is_rank()) {
        own_rank = atoi(strchr(place, ' '));
        return rank_main();
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rank_with_other_bits_is_found_and_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
