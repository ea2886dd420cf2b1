/* model_identity(): each field of a description that the engine computes with changes it, and no other field does.
 * tests/clients/cache/test_identity.py checks the effect of a file's fields on answers. */
#include "engine/identity/model_identity.h"
#include "engine/model/describe.h"
#include "engine/model/layer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MODELS QUIRE_SOURCE_DIR "/tests/goldens/models/"

static struct model_desc described(const char *dir)
{
    struct model_desc desc;
    struct sampling_defaults sampling;
    struct quire_error err;
    assert_int_equal(model_describe(dir, &desc, &sampling, &err), QUIRE_OK);
    return desc;
}

static bool moves(const struct model_desc *a, const struct model_desc *b)
{
    const struct key256 x = model_identity(a), y = model_identity(b);
    return memcmp(&x, &y, sizeof x) != 0;
}

#define MOVES(change) \
    do { \
        struct model_desc d = first; \
        change; \
        if (!moves(&first, &d)) \
            fail_msg("does not move the identity: %s", #change); \
    } while (0)
#define STAYS(change) \
    do { \
        struct model_desc d = first; \
        change; \
        if (moves(&first, &d)) \
            fail_msg("moves the identity: %s", #change); \
    } while (0)

static void sizes_and_layers(void **state)
{
    const struct model_desc first = described(MODELS "llama3");
    (void)state;
    MOVES(d.architecture[0] = 'X');
    MOVES(d.vocab_size++);
    MOVES(d.hidden_size++);
    MOVES(d.n_layers--);
    MOVES(d.n_q_heads++);
    MOVES(d.n_kv_heads++);
    MOVES(d.head_dim += 16);
    MOVES(d.intermediate_size++);
    MOVES(d.tied_embeddings = !d.tied_embeddings);
    MOVES(d.q_bias = !d.q_bias);
    MOVES(d.k_bias = !d.k_bias);
    MOVES(d.v_bias = !d.v_bias);
    MOVES(d.o_bias = !d.o_bias);
    MOVES(d.mlp_bias = !d.mlp_bias);
    MOVES(d.rms_eps *= 1.0000002f); /* the next number */
    MOVES(d.final_norm = NORM_LAYER);
    MOVES(model_set_window(&d, 1, 24));
    for (uint32_t l = 0; l < first.n_layers; l++)
        for (uint32_t i = 0; i < first.layers[l].n_blocks; i++) {
            MOVES(d.layers[l].blocks[i].norm = NORM_LAYER);
            MOVES(d.layers[l].blocks[i].place = NORM_POST);
            MOVES(d.layers[l].blocks[i].head_norm = HEAD_NORM_EACH);
            MOVES(d.layers[l].blocks[i].mask = MASK_NONE);
            MOVES(d.layers[l].blocks[i].activation = ACTIVATION_GELU);
        }
    STAYS(d.max_position = 77);
    STAYS(d.bos = 9);
    STAYS(d.dtype_stated = !d.dtype_stated);
    STAYS(d.layers[first.n_layers].n_blocks = 1);
    STAYS((d.layers[0].blocks[0].window = 99)); /* of a layer that attends to all positions */
}

static void windows_by_layer(void **state)
{
    const struct model_desc first = described(MODELS "qwen2_window");
    (void)state;
    MOVES(model_set_window(&d, 2, 25));
    MOVES(model_set_window(&d, 2, 0));
    MOVES(model_set_window(&d, 0, 24));
}

/* RoPE is what results: two ways to say the same frequencies are one model. */
static void frequencies(void **state)
{
    const struct model_desc first = described(MODELS "qwen2_yarn");
    (void)state;
    MOVES(d.rope_theta *= 2);
    MOVES(d.rope_factor *= 2);
    MOVES(d.rope_original_max *= 64);
    MOVES(d.rope_attention_factor *= 1.5);
    MOVES(d.rope = MODEL_ROPE_DEFAULT);
    MOVES(d.rope = MODEL_ROPE_LINEAR);
    STAYS(d.rope_low_freq = 3); /* llama3's */

    struct model_desc plain = first, linear;
    plain.rope = MODEL_ROPE_DEFAULT;
    linear = plain;
    linear.rope = MODEL_ROPE_LINEAR;
    linear.rope_factor = 1;
    assert_false(moves(&plain, &linear));
}

static void weights_and_ends(void **state)
{
    struct model_desc first = described(MODELS "llama3");
    (void)state;
    memcpy(first.eos, (const uint32_t[]){4, 5, 6}, 3 * sizeof *first.eos);
    first.n_eos = 3;
    MOVES(d.dtype = K_F16);
    MOVES(d.weight_format.bits = 4);
    MOVES(d.int8_activations = true);
    MOVES(d.quantization.method = "gptq");
    MOVES(d.quantization.layout = QUANTIZATION_GPTQ);
    MOVES(d.quantization.inputs = INPUTS_STATIC);
    MOVES(d.quantization.bits++);
    MOVES(d.quantization.group++);
    MOVES(d.quantization.block_rows++);
    MOVES(d.quantization.is_float = true);
    MOVES(d.quantization.symmetric = !d.quantization.symmetric);
    MOVES(d.quantization.zero_is_less = !d.quantization.zero_is_less);
    MOVES(d.quantization.in_order = !d.quantization.in_order);
    STAYS(d.quantization.scales_cache = true);
    MOVES(d.n_eos--);
    MOVES(d.eos[1] = 77);
    STAYS((d.eos[0] = first.eos[2], d.eos[2] = first.eos[0]));
    STAYS((d.eos[3] = first.eos[1], d.n_eos = 4)); /* said twice */
}

static void vectors(void **state)
{
    const struct model_desc first = described(QUIRE_SOURCE_DIR "/tests/goldens/vectors/bert_mean");
    (void)state;
    MOVES(d.encoder = false);
    MOVES(d.roberta = true);
    MOVES(d.n_positions++);
    MOVES(d.first_position++);
    MOVES(d.n_segments++);
    MOVES(d.pooling = POOLING_CLS);
    MOVES(d.normalize = !d.normalize);
    MOVES(d.n_labels++);
    MOVES(d.vector_size++);
    MOVES(d.dense_size++);
    MOVES(d.dense_bias = !d.dense_bias);
    MOVES(d.dense_tanh = !d.dense_tanh);
    MOVES(d.dense_dtype = K_F16);
    STAYS(d.dense_folder[0] = 'x');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_layers), cmocka_unit_test(windows_by_layer), cmocka_unit_test(frequencies),
        cmocka_unit_test(weights_and_ends), cmocka_unit_test(vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
