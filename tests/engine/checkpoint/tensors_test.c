/* The table of tensors: what it promises of every golden is what the files hold, to the byte; its parts fit together;
 * and shards cut by it can be computed apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/checkpoint/checkpoint.h"
#include "tests/engine/fixtures/described.h"
#include "engine/model/describe.h"
#include "engine/model/share.h"
#include "engine/model/tensor_table.h"
#include "engine/model/weights.h"

#include <stdio.h>
#include <string.h>

#define MODELS QUIRE_SOURCE_DIR "/tests/goldens/models/"

static const char *const names[] = {
    "llama2",    "llama3",  "llama_bias", "mistral", "qwen2",     "qwen2_yarn", "qwen2_window", "qwen3",
    "qwen3_f16", "olmo2",   "olmo2_f32",  "smollm3", "olmo3",     "granite",    "gemma",        "gemma2",
    "gemma3",    "mixtral", "qwen3_moe",  "olmoe",   "qwen2_moe", "gpt_oss",    "granite_moe",  "granite_moe_shared",
    "glm4_moe"};

/* Bytes of every tensor that the walk names; each must be in the checkpoint. */
static uint64_t bytes_of_walk(const struct model_desc *desc, const struct checkpoint *st)
{
    uint64_t bytes = 0;
    struct model_stack stack = {0};
    while (model_next_stack(desc, &stack))
        for (uint32_t i = 0; i < stack.n_parts * stack.count; i++) {
            const struct model_tensor *row = &stack.parts[i % stack.n_parts];
            char name[MODEL_NAME_BYTES];
            struct checkpoint_tensor t;
            struct quire_error err;
            model_tensor_name(desc, row, stack.layer, i / stack.n_parts, false, name);
            int status = checkpoint_find(st, name, &t, &err);
            if (!model_has_tensor(desc, stack.layer, row)) {
                assert_int_equal(status, QUIRE_NOT_FOUND);
                continue;
            }
            if (status != QUIRE_OK)
                fail_msg("%s", err.text);
            const uint64_t own = (uint64_t)model_size_of(desc, stack.layer, row->rows) *
                                 model_size_of(desc, stack.layer, row->cols) * k_format_bytes(t.format, 1);
            const bool is_part = model_part_above(row) || model_part_below(row) ||
                                 (row->count != SIZE_ONE && !model_is_numbered(row));
            assert_true(is_part ? own < t.n_bytes : own == t.n_bytes);
            bytes += own;
        }
    return bytes;
}

/* The walk lists every tensor of the checkpoint and no other. */
static void the_walk_is_the_checkpoint(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char dir[512];
        static struct described d;
        const struct model_desc *desc = &d.desc;
        struct model_config *config;
        struct sampling_defaults sampling;
        struct checkpoint *st = NULL;
        struct weights_unused unused;
        struct quire_error err;
        snprintf(dir, sizeof dir, MODELS "%s", names[i]);
        if (model_describe(dir, &config, &sampling, &err) != QUIRE_OK || checkpoint_open(dir, &st, &err) != QUIRE_OK)
            fail_msg("%s: %s", names[i], err.text);
        described_take(config, &d);
        assert_int_equal(bytes_of_walk(desc, st), checkpoint_total_bytes(st));
        assert_int_equal(weights_unused(st, desc, false, &unused, &err), QUIRE_OK);
        assert_int_equal(unused.n, 0);
        checkpoint_close(st);
    }
}

/* Each object of a layer comes once, and in layers' order. */
static void each_object_comes_once(void **state)
{
    (void)state;
    static struct described d = {.config = {.n_layers = 3, .hidden_size = 96, .vocab_size = 257}};
    described_layers(&d, NORM_PRE, HEAD_NORM_EACH,
                     (struct model_attention){.n_q_heads = 6, .n_kv_heads = 2, .k_dim = 16, .q_bias = true}, 110);
    const struct model_desc *desc = &d.desc;
    bool seen[4][TENSOR_VECTOR + 1][MODEL_N_SITES + MODEL_N_VECTORS] = {{{false}}};
    struct model_stack stack = {0};
    uint32_t layer = 0, n = 0;
    while (model_next_stack(desc, &stack)) {
        assert_in_range(stack.layer, layer, desc->config->n_layers);
        assert_in_range(stack.n_parts, 1, K_WEIGHT_MAX_PARTS);
        layer = stack.layer;
        bool *slot = &seen[layer][stack.parts->kind][stack.parts->place];
        assert_false(*slot);
        *slot = true;
        n++;
        if (stack.parts->kind == TENSOR_BIAS) { /* k and v have room though the model has q's only */
            assert_int_equal(stack.parts->place, SITE_QKV);
            assert_int_equal(stack.rows, (6 + 2 * 2) * 16);
            assert_int_equal(model_stack_floats(&stack), (6 + 2 * 2) * 16);
        }
    }
    assert_int_equal(n, 3 * (4 + 1 + 4) + 3); /* matrices, a bias, norms; embedding, head and last norm */
    assert_int_equal(model_param_floats(desc), 3 * (160 + 2 * 96 + 2 * 16) + 96 + 16);
    assert_int_equal(model_head_site(desc), SITE_LM_HEAD);
    d.config.tied_embeddings = true;
    assert_int_equal(model_head_site(desc), SITE_EMBED);
}

/* What attention gives are the heads that q asks for. */
static bool makes(enum model_size rows, enum model_size cols)
{
    return rows == cols || (rows == SIZE_Q && cols == SIZE_HEADS);
}

/* A site cut by columns needs its input cut in the same way: what it takes, a site cut by rows must make. A bias goes
 * the way of its rows; where every device has a partial sum, one of them adds it. */
static void shards_fit_together(void **state)
{
    (void)state;
    static struct described d = {.config = {.n_layers = 1}};
    described_layers(&d, NORM_PRE, HEAD_NORM_NONE,
                     (struct model_attention){.n_q_heads = 4, .n_kv_heads = 4, .k_dim = 80}, 4864);
    const struct model_desc *desc = &d.desc;
    for (size_t i = 0; i < model_n_tensors; i++) {
        const struct model_tensor *row = &model_tensors[i];
        if (row->when >= IF_ENCODER) { /* which no plan shares out */
            assert_int_equal(row->shard, SHARD_NONE);
            continue;
        }
        if (model_whole_size(desc, 0, row->cols) == 0) /* of a shared expert, which this model lacks */
            continue;
        if (row->kind == TENSOR_MATRIX && row->shard == SHARD_COLS) {
            bool made = false;
            for (size_t j = 0; j < model_n_tensors; j++)
                made |= model_tensors[j].kind == TENSOR_MATRIX && model_tensors[j].shard == SHARD_ROWS &&
                        makes(model_tensors[j].rows, row->cols);
            assert_true(made);
            assert_int_equal(model_size_of(desc, 0, row->cols) % model_unit_of(desc, 0, row), 0);
        }
        assert_int_equal(model_unit_of(desc, 0, row), row->shard != SHARD_COLS ? 0 : row->place == SITE_O ? 80 : 256);
        if (row->kind != TENSOR_BIAS)
            continue;
        assert_int_equal(row->cols, SIZE_ONE);
        for (size_t j = 0; j < model_n_tensors; j++)
            if (model_tensors[j].kind == TENSOR_MATRIX && model_tensors[j].place == row->place &&
                model_tensors[j].when < IF_ENCODER)
                assert_int_equal(row->shard, model_tensors[j].shard == SHARD_ROWS ? SHARD_ROWS : SHARD_NONE);
    }
}

/* FP8 with one scale for all rows. */
static struct k_weight_view view_of_one_scale(const uint16_t *data, uint32_t n_rows, uint32_t n_cols,
                                              const float *scale)
{
    return (struct k_weight_view){.data = data,
                                  .format = k_format_of_planes(K_E4M3, 8, 0, K_F32),
                                  .n_rows = n_rows,
                                  .n_cols = n_cols,
                                  .row_stride_bytes = n_cols,
                                  .scales = scale,
                                  .scale_rows = n_rows};
}

/* A rank's columns record the rows that they were cut from. Rows do not, and blocks record nothing about a whole
 * row. A rank's rows have the scale of them all. */
static void columns_know_their_rows(void **state)
{
    (void)state;
    static const uint16_t data[32 * 512];
    static const float scale = 0.5f;
    static struct described whole = {.config = {.n_layers = 1, .hidden_size = 32, .vocab_size = 32}};
    described_layers(&whole, NORM_PRE, HEAD_NORM_NONE,
                     (struct model_attention){.n_q_heads = 8, .n_kv_heads = 8, .k_dim = 64}, 512);
    const struct model_desc desc = model_share_describe(&whole.desc, 3, 4);
    const struct k_format q8_0 = k_format_of_blocks(K_PACKING_Q8_0);
    enum model_cut cut;
    struct quire_error err;
    for (size_t i = 0; i < model_n_tensors; i++) {
        const struct model_tensor *row = &model_tensors[i];
        if (row->kind != TENSOR_MATRIX || row->owner == OF_MODEL || row->shard == SHARD_NONE)
            continue;
        const uint32_t n_rows = model_whole_size(&desc, 0, row->rows), n_cols = model_whole_size(&desc, 0, row->cols);
        if (n_rows == 0 || n_cols == 0) /* of a shared expert, which this model lacks */
            continue;
        struct k_weight_view view = k_plain_view(data, K_BF16, n_rows, n_cols, n_cols * UINT64_C(2)), blocks = view;
        blocks.format = q8_0;
        blocks.row_stride_bytes = k_format_bytes(q8_0, n_cols);
        assert_int_equal(model_share_cut(&desc, 0, row, "w", &view, &cut, &err), QUIRE_OK);
        assert_ptr_equal(view.whole, cut == CUT_COLS ? data : NULL);
        assert_int_equal(view.whole_cols, cut == CUT_COLS ? 512 : 0);
        assert_int_equal(view.n_cols, cut == CUT_COLS ? 128 : n_cols);
        assert_ptr_equal(view.data, data + (cut == CUT_COLS ? 3 * 128 : n_rows / 4 * 3 * n_cols));
        assert_int_equal(model_share_cut(&desc, 0, row, "w", &blocks, &cut, &err), QUIRE_OK);
        assert_null(blocks.whole);
        if (row->shard != SHARD_ROWS)
            continue;
        struct k_weight_view fp8 = view_of_one_scale(data, n_rows, n_cols, &scale);
        assert_int_equal(model_share_cut(&desc, 0, row, "w", &fp8, &cut, &err), QUIRE_OK);
        assert_ptr_equal(fp8.scales, &scale);
        assert_int_equal(fp8.scale_rows, fp8.n_rows);
    }
}

/* Experts: a tensor each, or one for all. */
static void names_of_several_matrices(void **state)
{
    (void)state;
    static struct described d = {.config = {.n_layers = 1}};
    const struct model_tensor row = {.name = "model.layers.*.mlp.experts.*.up_proj.weight"};
    char name[MODEL_NAME_BYTES];
    described_desc(&d);
    model_tensor_name(&d.desc, &row, 0, 0, false, name);
    assert_string_equal(name, "model.layers.0.mlp.experts.0.up_proj.weight");
    model_tensor_name(&d.desc, &row, 12, 63, true, name);
    assert_string_equal(name, "layers.12.mlp.experts.63.up_proj.weight");
    model_tensor_name(&d.desc, &row, 12, MODEL_ALL_OF, false, name);
    assert_string_equal(name, "model.layers.12.mlp.experts.up_proj.weight");
}

/* The parts of one tensor are found from each of them, and no other rows. */
static void parts_are_neighbours(void **state)
{
    (void)state;
    uint32_t n_fused = 0;
    for (size_t i = 0; i < model_n_tensors; i++) {
        const struct model_tensor *row = &model_tensors[i], *above = model_part_above(row);
        if (above)
            assert_ptr_equal(model_part_below(above), row);
        assert_true(!above || strcmp(above->name, row->name) == 0);
        n_fused += above != NULL;
        assert_int_equal(model_is_numbered(row), strstr(row->name, "experts.*.") != NULL);
    }
    assert_int_equal(n_fused, 7); /* k and v behind q, up behind gate, and so of three kinds of experts and of biases */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_walk_is_the_checkpoint), cmocka_unit_test(each_object_comes_once),
        cmocka_unit_test(shards_fit_together),        cmocka_unit_test(columns_know_their_rows),
        cmocka_unit_test(names_of_several_matrices),  cmocka_unit_test(parts_are_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
