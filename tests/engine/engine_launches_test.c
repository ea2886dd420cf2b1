/* The number of kernel launches of a step, counted on the emulator: with one sequence a launch costs about as much
 * as its computation, so one more in a layer is a regression that no other test sees. Also the operations between
 * two steps: one copy to the device, one from it, and nothing else. */
#include "engine/engine.h"
#include "engine/event.h"
#include "engine/info.h"
#include "engine/options.h"
#include "engine/plan.h"
#include "tests/engine/fixtures/client.h"
#include "tests/simt/control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MODELS QUIRE_SOURCE_DIR "/tests/goldens/models/"
/* rmsnorm, qkv, rope_kv, attention, o, rmsnorm, gate_up with silu, down */
#define IN_A_LAYER 8u
/* norms of all heads of q and of k; the norms that follow a block add to the residual stream themselves; factors of that stream for
 * qkv and for gate and up; and of what down reads, since the test's MLP is 122 wide, of which no factors are left */
#define IN_A_LAYER_OF_OLMO2 13u
/* place_tokens, embed and rope_angles; two gathers in the last layer; the last rmsnorm, the logits and sampling */
#define BESIDE_LAYERS 8u

static void no_events(void *context, const struct engine_event *events, size_t n)
{
    (void)context;
    (void)events;
    (void)n;
}

/* Launches until a model is open whose recorded steps are of 1 to n sequences. */
static unsigned long launches_to_open(const char *model, uint32_t n, uint32_t *n_layers, uint32_t *n_graphs)
{
    struct engine_options o;
    struct engine *e;
    struct quire_error err;
    engine_options_default(&o);
    o.model_dir = model;
    o.device = "cuda";
    o.num_kv_blocks = 16;
    o.max_model_len = 64;
    o.max_num_seqs = n;
    unsigned long before = simt_calls("launch");
    if (engine_open(&o, no_events, NULL, &e, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    *n_graphs = engine_info(e)->n_graphs;
    uint64_t graph_bytes = engine_info(e)->graph_bytes; /* the emulator takes 64 KiB and a little for each */
    assert_true(graph_bytes >= *n_graphs << 16 && graph_bytes < *n_graphs << 17);
    assert_true(graph_bytes <= engine_plan_graph_reserve_bytes(engine_info(e)->plan));
    assert_int_equal(engine_info(e)->plan->gemm_form, K_FORM_MMA);
    *n_layers = engine_info(e)->desc->config->n_layers;
    unsigned long launches = simt_calls("launch") - before;
    engine_close(e);
    return launches;
}

/* Opened for `more` sequences, an engine records one step more than for `fewer`, of as many tokens; nothing else differs. */
static void check_launches(const char *model, uint32_t fewer, uint32_t more, unsigned in_a_layer, int beside)
{
    uint32_t n_layers, n_fewer, n_more;
    unsigned long of_fewer = launches_to_open(model, fewer, &n_layers, &n_fewer);
    unsigned long of_more = launches_to_open(model, more, &n_layers, &n_more);
    assert_true(n_layers > 1);
    assert_int_equal(n_more - n_fewer, 1);
    assert_int_equal(of_more - of_fewer, in_a_layer * n_layers + beside);
}

static void test_launches_of_a_decode_step(void **state)
{
    (void)state;
    check_launches(MODELS "llama3", 1, 2, IN_A_LAYER, BESIDE_LAYERS);
}

static void test_launches_where_norms_follow(void **state)
{
    (void)state;
    check_launches(MODELS "olmo2", 1, 2, IN_A_LAYER_OF_OLMO2, BESIDE_LAYERS);
}

/* More than 32 tokens take other GEMMs, of the same factors. */
static void test_launches_of_a_large_step(void **state)
{
    (void)state;
    check_launches(MODELS "llama3", 32, 40, IN_A_LAYER, BESIDE_LAYERS);
    check_launches(MODELS "olmo2", 32, 40, IN_A_LAYER_OF_OLMO2, BESIDE_LAYERS);
}

struct calls {
    unsigned long copies, graphs, launches;
};

static struct calls calls_now(void)
{
    return (struct calls){simt_calls("cudaMemcpyAsync"), simt_calls("cudaGraphLaunch"), simt_calls("launch")};
}

/* The calls of an answer of n_tokens tokens to one prompt, shorter than a block. */
static struct calls calls_of(struct client *c, uint32_t n_tokens)
{
    static const uint32_t prompt[] = {5, 17, 3};
    struct request_spec spec = client_request(prompt, sizeof prompt / sizeof prompt[0], n_tokens);
    struct calls before = calls_now();
    spec.ignore_eos = true;
    assert_int_equal(client_ask(c, &spec)->choices[0].n_tokens, n_tokens);
    client_idle_stats(c);
    struct calls after = calls_now();
    return (struct calls){after.copies - before.copies, after.graphs - before.graphs, after.launches - before.launches};
}

static void check_copies(const char *model)
{
    enum { FEW = 2, MANY = 9 };
    struct engine_options o;
    engine_options_default(&o);
    o.device = "cuda";
    o.num_kv_blocks = 16;
    o.max_model_len = 64;
    o.max_num_seqs = 1;
    struct client *c = client_open(model, &o);
    struct calls few = calls_of(c, FEW), many = calls_of(c, MANY);
    client_close(c);
    assert_int_equal(many.graphs - few.graphs, MANY - FEW);
    assert_int_equal(many.copies - few.copies, 2 * (MANY - FEW));
    assert_int_equal(many.launches, few.launches);
}

static void test_copies_of_a_decode_step(void **state)
{
    (void)state;
    check_copies(MODELS "llama2");
    check_copies(MODELS "qwen2_window"); /* two groups of KV blocks */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launches_of_a_decode_step), cmocka_unit_test(test_launches_where_norms_follow),
        cmocka_unit_test(test_launches_of_a_large_step), cmocka_unit_test(test_copies_of_a_decode_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
