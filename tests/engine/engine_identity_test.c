/* model_identity(): each field of a description that the engine computes with changes it, and no other field does.
 * tests/clients/cache/test_identity.py checks the effect of a file's fields on answers. */
#include "engine/identity/model_identity.h"
#include "engine/model/describe.h"
#include "tests/engine/fixtures/described.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MODELS QUIRE_SOURCE_DIR "/tests/goldens/models/"

static void describe(const char *dir, struct described *out)
{
    struct model_config *config;
    struct sampling_defaults sampling;
    struct quire_error err;
    assert_int_equal(model_describe(dir, &config, &sampling, &err), QUIRE_OK);
    described_take(config, out);
}

static bool moves(struct described *a, struct described *b)
{
    const struct key256 x = model_identity(described_desc(a)), y = model_identity(described_desc(b));
    return memcmp(&x, &y, sizeof x) != 0;
}

static void set_window(struct described *d, uint32_t layer, uint32_t window)
{
    described_desc(d);
    model_set_window(&d->config, layer, window);
}

#define MOVES(change) \
    do { \
        static struct described d; \
        d = first; \
        change; \
        if (!moves(&first, &d)) \
            fail_msg("does not move the identity: %s", #change); \
    } while (0)
#define STAYS(change) \
    do { \
        static struct described d; \
        d = first; \
        change; \
        if (moves(&first, &d)) \
            fail_msg("moves the identity: %s", #change); \
    } while (0)

static void sizes_and_layers(void **state)
{
    static struct described first;
    (void)state;
    describe(MODELS "llama3", &first);
    MOVES(d.config.architecture[0] = 'X');
    MOVES(d.config.vocab_size++);
    MOVES(d.config.hidden_size++);
    MOVES(d.config.n_layers--);
    MOVES(d.config.tied_embeddings = !d.config.tied_embeddings);
    MOVES(d.config.rms_eps *= 1.0000002f); /* the next number */
    MOVES(d.config.final_norm = NORM_LAYER);
    MOVES(d.config.norms_add_one = true);
    MOVES(d.config.factors.embedding = 2);
    MOVES(d.config.factors.residual = 2);
    MOVES(d.config.factors.logits = 2);
    MOVES(d.config.factors.logit_softcap = 2);
    MOVES(set_window(&d, 1, 24));
    for (uint32_t l = 0; l < first.config.n_layers; l++) {
        for (uint32_t i = 0; i < first.layers[l].n_blocks; i++) {
            MOVES(d.layers[l].blocks[i].norm = NORM_LAYER);
            MOVES(d.layers[l].blocks[i].place = NORM_POST);
        }
        MOVES(described_attention(&d, l)->n_q_heads++);
        MOVES(described_attention(&d, l)->n_kv_heads++);
        MOVES(described_attention(&d, l)->k_dim += 16);
        MOVES(described_attention(&d, l)->v_dim += 16);
        MOVES(described_attention(&d, l)->head_norm = HEAD_NORM_EACH);
        MOVES(described_attention(&d, l)->mask = MASK_NONE);
        MOVES(described_attention(&d, l)->q_bias ^= true);
        MOVES(described_attention(&d, l)->k_bias ^= true);
        MOVES(described_attention(&d, l)->v_bias ^= true);
        MOVES(described_attention(&d, l)->o_bias ^= true);
        MOVES(described_attention(&d, l)->rope = 1);
        MOVES(described_attention(&d, l)->scale *= 2);
        MOVES(described_attention(&d, l)->softcap = 50);
        MOVES(described_attention(&d, l)->sinks = true);
        MOVES(described_mlp(&d, l)->inner_size++);
        MOVES(described_mlp(&d, l)->bias ^= true);
        MOVES(described_mlp(&d, l)->activation = ACTIVATION_GELU);
        MOVES(described_mlp(&d, l)->activation = ACTIVATION_GELU_TANH_MUL);
    }
    MOVES((d.ropes[1] = d.ropes[0], d.config.n_ropes = 2));
    STAYS(d.config.max_position = 77);
    STAYS(d.config.tokens.bos = 9);
    STAYS(d.config.dtype_stated = !d.config.dtype_stated);
    STAYS(d.layers[first.config.n_layers].n_blocks = 1);
    STAYS((described_attention(&d, 0)->window = 99)); /* of a layer that attends to all positions */
}

static void windows_by_layer(void **state)
{
    static struct described first;
    (void)state;
    describe(MODELS "qwen2_window", &first);
    MOVES(set_window(&d, 2, 25));
    MOVES(set_window(&d, 2, 0));
    MOVES(set_window(&d, 0, 24));
    MOVES((set_window(&d, 2, 25), described_attention(&d, 2)->n_sinks = 4));
    STAYS(described_attention(&d, 0)->n_sinks = 4); /* of a layer that attends to all positions */
}

static void stream(struct described *d, uint32_t n_sinks, uint32_t window)
{
    described_desc(d);
    assert_int_equal(model_stream(&d->config, n_sinks, window, NULL), QUIRE_OK);
}

/* A window and sinks as options move it, and so does each number. */
static void streaming(void **state)
{
    static struct described first, a, b;
    (void)state;
    describe(MODELS "qwen2", &first);
    MOVES(stream(&d, 0, 100));
    a = first;
    stream(&a, 4, 100);
    const uint32_t others[][2] = {{0, 100}, {5, 100}, {4, 101}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        b = first;
        stream(&b, others[i][0], others[i][1]);
        assert_true(moves(&a, &b));
    }
    b = first;
    stream(&b, 4, 100);
    assert_false(moves(&a, &b));
}

/* RoPE is what results: two ways to say the same frequencies are one model. */
static void frequencies(void **state)
{
    static struct described first;
    (void)state;
    describe(MODELS "qwen2_yarn", &first);
    MOVES(d.ropes[0].theta *= 2);
    MOVES(d.ropes[0].factor *= 2);
    MOVES(d.ropes[0].original_max *= 64);
    MOVES(d.ropes[0].attention_factor *= 1.5);
    MOVES(d.ropes[0].kind = MODEL_ROPE_DEFAULT);
    MOVES(d.ropes[0].kind = MODEL_ROPE_LINEAR);
    STAYS(d.ropes[0].low_freq = 3); /* llama3's */

    static struct described plain, linear;
    plain = first;
    plain.ropes[0].kind = MODEL_ROPE_DEFAULT;
    linear = plain;
    linear.ropes[0].kind = MODEL_ROPE_LINEAR;
    linear.ropes[0].factor = 1;
    assert_false(moves(&plain, &linear));
}

static struct model_experts *experts_of(struct described *d, uint32_t layer)
{
    assert_int_equal(d->layers[layer].blocks[1].kind, BLOCK_EXPERTS);
    return &d->layers[layer].blocks[1].experts;
}

static void experts(void **state)
{
    static struct described first;
    (void)state;
    describe(MODELS "qwen3_moe", &first);
    for (uint32_t l = 1; l < first.config.n_layers; l++) { /* the first is dense */
        MOVES(experts_of(&d, l)->n_experts++);
        MOVES(experts_of(&d, l)->n_used++);
        MOVES(experts_of(&d, l)->inner_size++);
        MOVES(experts_of(&d, l)->shared_size++);
        MOVES(experts_of(&d, l)->router = ROUTER_SOFTMAX + 1);
        MOVES(experts_of(&d, l)->normalize ^= true);
        MOVES(experts_of(&d, l)->n_groups++);
        MOVES(experts_of(&d, l)->n_groups_used++);
        MOVES(experts_of(&d, l)->shared_gate ^= true);
        MOVES(experts_of(&d, l)->limit = 7);
        MOVES(experts_of(&d, l)->scale *= 1.0000002f);
        MOVES(d.layers[l].blocks[1] = d.layers[0].blocks[1]);
        STAYS(experts_of(&d, l)->names = EXPERTS_W1);
    }
}

static void weights_and_ends(void **state)
{
    static struct described first;
    (void)state;
    describe(MODELS "llama3", &first);
    memcpy(first.config.tokens.eos, (const uint32_t[]){4, 5, 6}, 3 * sizeof *first.config.tokens.eos);
    first.config.tokens.n_eos = 3;
    MOVES(d.facts.dtype = K_F16);
    MOVES(d.facts.weight_format.bits = 4);
    MOVES(d.facts.int8_activations = true);
    MOVES(d.facts.quantization.method = "gptq");
    MOVES(d.facts.quantization.layout = QUANTIZATION_GPTQ);
    MOVES(d.facts.quantization.inputs = INPUTS_STATIC);
    MOVES(d.facts.quantization.bits++);
    MOVES(d.facts.quantization.group++);
    MOVES(d.facts.quantization.block_rows++);
    MOVES(d.facts.quantization.is_float = true);
    MOVES(d.facts.quantization.symmetric = !d.facts.quantization.symmetric);
    MOVES(d.facts.quantization.zero_is_less = !d.facts.quantization.zero_is_less);
    MOVES(d.facts.quantization.in_order = !d.facts.quantization.in_order);
    STAYS(d.facts.quantization.scales_cache = true);
    MOVES(d.config.tokens.n_eos--);
    MOVES(d.config.tokens.eos[1] = 77);
    STAYS((d.config.tokens.eos[0] = first.config.tokens.eos[2], d.config.tokens.eos[2] = first.config.tokens.eos[0]));
    STAYS((d.config.tokens.eos[3] = first.config.tokens.eos[1], d.config.tokens.n_eos = 4)); /* said twice */
}

static void vectors(void **state)
{
    static struct described first;
    (void)state;
    describe(QUIRE_SOURCE_DIR "/tests/goldens/vectors/bert_mean", &first);
    MOVES(d.config.encoder = NULL);
    MOVES(d.encoder.roberta = true);
    MOVES(d.encoder.n_positions++);
    MOVES(d.encoder.first_position++);
    MOVES(d.encoder.n_segments++);
    MOVES(d.config.outputs.pooling = POOLING_CLS);
    MOVES(d.config.outputs.normalize = !d.config.outputs.normalize);
    MOVES(d.config.outputs.n_labels++);
    MOVES(d.config.outputs.vector_size++);
    MOVES(d.config.outputs.dense.size++);
    MOVES(d.config.outputs.dense.bias = !d.config.outputs.dense.bias);
    MOVES(d.config.outputs.dense.tanh = !d.config.outputs.dense.tanh);
    MOVES(d.facts.dense_dtype = K_F16);
    STAYS(d.config.outputs.dense.folder[0] = 'x');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_layers), cmocka_unit_test(windows_by_layer), cmocka_unit_test(streaming),
        cmocka_unit_test(frequencies),      cmocka_unit_test(experts),          cmocka_unit_test(weights_and_ends),
        cmocka_unit_test(vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
