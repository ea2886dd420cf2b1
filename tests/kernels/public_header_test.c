/* The public interface itself: opening, planning, invalid weights, rejected arguments. */
#include "kernels/args/gemm.h"
#include "kernels/args/rows.h"
#include "kernels/args/sample.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "kernels/format.h"
#include "kernels/gemm_form.h"
#include "kernels/open.h"
#include "kernels/planner.h"
#include "kernels/weight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int open_device(const char *device, struct k_backend **b, const char **why, struct quire_error *err)
{
    struct k_backend_options options = {.device = device, .n_threads = 1};
    return k_backend_open(&options, b, why, err);
}

static struct k_backend *open_ref(enum k_gemm_form form)
{
    struct k_backend *b;
    const char *why;
    assert_int_equal(
        k_backend_open(&(struct k_backend_options){.device = "ref", .n_threads = 2, .form = form}, &b, &why, NULL),
        QUIRE_OK);
    return b;
}

static void test_open(void **state)
{
    (void)state;
    struct k_backend *b;
    struct quire_error err;
    const char *why;
    static const char *const host[] = {"auto", "ref", "cpu"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(open_device(host[i], &b, &why, &err), QUIRE_OK);
        assert_string_equal(b->ops->planner->name, strcmp(host[i], "ref") == 0 ? "ref" : "cpu");
        assert_true(strlen(why) > 0 && strlen(b->description) > 0);
        assert_int_equal(b->ops->planner->overlap_depth, 0);
        b->ops->close(b);
    }
#if !defined(QUIRE_CUDA_LINKED) /* otherwise see cuda_public_header_test.c */
    assert_int_equal(open_device("cuda", &b, &why, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "device cuda: no libquire_cuda.so"));
    assert_null(b);
    assert_int_equal(open_device("cuda:1", &b, &why, &err), QUIRE_UNSUPPORTED);
    assert_int_equal(open_device("auto", &b, &why, &err), QUIRE_OK);
    assert_non_null(strstr(why, access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0
                                    ? "cpu: no libquire_cuda.so"
                                    : "cpu: this machine has no NVIDIA GPU"));
    b->ops->close(b);
#endif
    assert_int_equal(open_device("cudax", &b, &why, &err), QUIRE_INVALID);
    assert_int_equal(open_device("tpu", &b, &why, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "tpu"));
    struct k_backend_options many = {.device = "ref", .n_threads = 100000};
    assert_int_equal(k_backend_open(&many, &b, &why, &err), QUIRE_INVALID);
}

static void test_default_threads(void **state)
{
    (void)state;
    struct k_backend *b;
    const char *why;
    struct k_backend_options options = {.device = "ref"};
    assert_int_equal(k_backend_open(&options, &b, &why, NULL), QUIRE_OK);
    b->ops->close(b);
}

static void test_plan(void **state)
{
    (void)state;
    struct k_plan_dims dims = {.n_tokens = 512,
                               .n_seqs = 16,
                               .n_logits = 16,
                               .n_vocab = 151936,
                               .n_q_heads = 14,
                               .n_kv_heads = 2,
                               .head_dim = 64,
                               .max_model_len = 4096,
                               .n_threads = 4};
    struct k_plan_bytes bytes;
    k_planner_find("ref")->workspace(&dims, &bytes);
    assert_int_equal(bytes.sample, UINT64_C(4) * 151936 * 4);
    assert_int_equal(bytes.attention, 0);
    k_planner_find("cpu")->workspace(&dims, &bytes);
    /* Floats per thread: 64 queries, K and V of a tile, twice 64 outputs with m and l. For each of 15 borders between
     * 16 pieces: 8 splits, and that of sinks, of 7 heads' outputs with m and l. */
    assert_int_equal(bytes.attention, (4 * (3 * 64 * 64 + 2 * (64 * 64 + 2 * 80)) + 15 * 9 * (7 * 64 + 2 * 16)) * 4);
    dims.n_threads = 0;
    k_planner_find("cpu")->workspace(&dims, &bytes);
    assert_true(bytes.sample >= UINT64_C(151936) * 4);
    dims.max_gemm_cols = 4864;
    k_planner_find("cuda")->workspace(&dims, &bytes);
    assert_true(bytes.sample > 0 && bytes.attention > 0 && bytes.attention_plan > 0);
}

static void test_planners(void **state)
{
    (void)state;
    static const char *const known[] = {"ref", "cpu", "cuda"}, *const unknown[] = {"",       "tpu",   "cud",
                                                                                   "cudart", "ref:0", "auto"};
    for (size_t i = 0; i < 3; i++) {
        const struct k_planner *planner = k_planner_find(known[i]);
        assert_non_null(planner);
        assert_string_equal(planner->name, known[i]);
        assert_int_equal(planner->on_host, i < 2);
        assert_int_equal(planner->overlap_depth, i == 2);
        assert_int_equal(planner->micro_batch_tokens, i == 2 ? 256 : 64);
    }
    assert_ptr_equal(k_planner_find("cuda:3"), k_planner_find("cuda"));
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_null(k_planner_find(unknown[i]));
    const struct k_plan_dims invariant = {0}, not_invariant = {.not_invariant = true};
    assert_true(k_planner_find("cpu")->needs_gate_up(&invariant));
    assert_false(k_planner_find("cuda")->needs_gate_up(&invariant));
    assert_true(k_planner_find("cuda")->needs_gate_up(&not_invariant));
}

static void test_plan_weight(void **state)
{
    (void)state;
    const uint64_t page = UINT64_C(2) << 20;
    assert_int_equal(k_planner_find("cpu")->weight_bytes(k_format_of(K_BF16), 1, 4096, 4096), 0);
    assert_int_equal(k_planner_find("cuda")->weight_bytes(k_format_of(K_F16), 1, 2, 1), 256);
    assert_int_equal(k_planner_find("cuda")->weight_bytes(k_format_of(K_F16), 1, 16, 8), 256);
    /* plus an exponent per row */
    assert_int_equal(k_planner_find("cuda")->weight_bytes(k_format_of(K_BF16), 1, 16, 8), 512);
    assert_int_equal(k_planner_find("cuda")->weight_bytes(k_format_of(K_F16), 1, 17, 9), 768); /* rows of 32 bytes */
    assert_int_equal(k_planner_find("cuda")->weight_bytes(k_format_of(K_F16), 1, 1024, 1024), page);
    assert_int_equal(k_planner_find("cuda")->weight_bytes(k_format_of(K_BF16), 1, 1024, 1024), 2 * page);
    assert_int_equal(k_planner_find("cuda")->weight_bytes(k_format_of(K_F32), 1, 151936, 8192) % page, 0);
}

static void test_devices(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (const struct k_device *d; (d = k_device_at(n)); n++) {
        assert_ptr_equal(k_device_find(d->name), d);
        assert_true(d->memory_bytes > UINT64_C(15) << 30 && d->memory_bytes < UINT64_C(256) << 30);
    }
    assert_true(n >= 8);
    assert_string_equal(k_device_find("h200")->title, "NVIDIA H200 SXM");
    assert_ptr_equal(k_device_find("H200"), k_device_find("h200"));
    assert_ptr_equal(k_device_find("RTX 4090"), k_device_find("rtx4090"));
    assert_ptr_equal(k_device_find("4090"), k_device_find("rtx4090"));
    assert_null(k_device_find("a100")); /* of 40 or 80 GB? */
    assert_null(k_device_find("h2000"));
    assert_null(k_device_find("rtx"));
    assert_null(k_device_find(""));
}

static void test_memory_and_tickets(void **state)
{
    (void)state;
    struct k_backend *b = open_ref(K_FORM_LANE);
    struct quire_error err;
    void *p;
    for (uint64_t bytes = 0; bytes < 200; bytes += 33) {
        assert_int_equal(b->ops->alloc(b, bytes, &p, &err), QUIRE_OK);
        assert_int_equal((uintptr_t)p % 64, 0);
        b->ops->free(b, p);
    }
    assert_int_equal(b->ops->alloc(b, UINT64_MAX, &p, &err), QUIRE_NO_MEMORY);
    assert_null(p);
    assert_int_equal(b->ops->copy_in(b, NULL, NULL, 0, &err), QUIRE_OK);
    uint64_t ticket;
    assert_int_equal(b->ops->fence(b, &ticket, &err), QUIRE_OK);
    assert_int_equal(b->ops->wait(b, ticket, &err), QUIRE_OK);
    assert_int_equal(b->ops->wait(b, ticket + 1, &err), QUIRE_INVALID);
    b->ops->close(b);
}

static void test_bad_weights(void **state)
{
    (void)state;
    struct k_backend *b = open_ref(K_FORM_LANE);
    struct quire_error err;
    struct k_weight *w;
    static const uint16_t data[64] = {0};
    static const int8_t zeros[64] = {0};
    static const uint32_t order[32] = {0, 32};
    const struct k_weight_view good = k_plain_view(data, K_F16, 4, 8, 16);
    struct k_weight_view bad[12] = {good, good, good, good, good, good, good, good, good, good, good, good};
    bad[0].data = NULL;
    bad[1].n_rows = 0;
    bad[2].n_cols = 0;
    bad[3].row_stride_bytes = 14;
    bad[4].row_stride_bytes = 17;
    bad[5].data = (const char *)data + 1;
    bad[6].format.kind = (enum k_dtype)9;
    bad[7].format.bits = 8;
    bad[8].format.group = 4;
    bad[9].scales = data;
    bad[10].zero_points = zeros;
    bad[11].permutation = order;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_not_equal(b->ops->weight_create(b, &bad[i], 1, 1, &w, &err), QUIRE_OK);
        assert_null(w);
    }
    struct k_weight_view pair[2] = {good, good};
    pair[1].n_cols = 7;
    assert_int_equal(b->ops->weight_create(b, pair, 1, 2, &w, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "part 1"));
    /* Quantized weights: missing scales, columns that are not whole groups or blocks, an input that does not exist,
     * rows that are too short. */
    static const uint8_t bytes[256] = {0};
    const struct k_weight_view int4 = {.data = bytes,
                                       .format = k_format_of_planes(K_INT, 4, 16, K_F16),
                                       .n_rows = 4,
                                       .n_cols = 32,
                                       .row_stride_bytes = 16,
                                       .scales = data};
    struct k_weight_view wrong[] = {int4, int4, int4, int4, int4, int4, int4};
    wrong[0].scales = NULL;
    wrong[1].format.group = 17;
    wrong[2].format.bits = 3;
    wrong[3].row_stride_bytes = 15;
    wrong[4].permutation = order;
    wrong[5].format = k_format_of_blocks(K_PACKING_Q8_0); /* these blocks contain scales */
    wrong[6].format.scale = K_INT;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_not_equal(b->ops->weight_create(b, &wrong[i], 1, 1, &w, &err), QUIRE_OK);
    assert_int_equal(b->ops->weight_create(b, &int4, 1, 1, &w, &err), QUIRE_OK);
    b->ops->weight_destroy(b, w);
    struct k_weight_view blocks = {.data = bytes,
                                   .format = k_format_of_blocks(K_PACKING_Q4_K),
                                   .n_rows = 1,
                                   .n_cols = 256,
                                   .row_stride_bytes = 144};
    assert_int_equal(b->ops->weight_create(b, &blocks, 1, 1, &w, &err), QUIRE_OK);
    b->ops->weight_destroy(b, w);
    blocks.n_cols = 224;
    assert_int_equal(b->ops->weight_create(b, &blocks, 1, 1, &w, &err), QUIRE_INVALID);
    pair[0].n_rows = UINT32_MAX;
    pair[1].n_cols = 8;
    assert_int_equal(b->ops->weight_create(b, pair, 1, 2, &w, &err), QUIRE_INVALID);
    assert_int_equal(b->ops->weight_create(b, pair, 1, 0, &w, &err), QUIRE_INVALID);
    assert_int_equal(b->ops->weight_create(b, pair, 1, K_WEIGHT_MAX_PARTS + 1, &w, &err), QUIRE_INVALID);
    b->ops->weight_destroy(b, NULL);
    b->ops->close(b);
}

static void test_forms_and_weights(void **state)
{
    (void)state;
    struct k_backend *b = open_ref(K_FORM_TILE_BF16);
    struct quire_error err;
    struct k_weight *w;
    static const uint16_t data[64] = {0};
    float x[16] = {0}, y[4];
    const struct k_weight_view view = k_plain_view(data, K_F16, 4, 16, 32);
    assert_int_equal(b->ops->weight_create(b, &view, 1, 1, &w, &err), QUIRE_OK);
    assert_int_equal(b->ops->gemm(b, &(struct k_gemm_args){.weight = w, .x_dev = x, .y_dev = y, .n_tokens = 1}, &err),
                     QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "float16"));
    b->ops->weight_destroy(b, w);
    static const bool supported[K_N_FORMS][3] = {
        /* F32, F16, BF16 */
        [K_FORM_LANE] = {true, true, true},
        [K_FORM_TILE] = {false, true, true},
        [K_FORM_TILE_BF16] = {false, false, true},
        [K_FORM_INT8] = {true, true, true},
    };
    for (int form = 0; form < K_N_FORMS; form++)
        for (int dtype = 0; dtype < 3; dtype++)
            assert_int_equal(b->ops->supports(b, K_OP_GEMM, (enum k_gemm_form)form, k_format_of((enum k_dtype)dtype)),
                             supported[form][dtype]);
    assert_false(b->ops->supports(b, K_OP_GEMM, K_FORM_AUTO, k_format_of(K_BF16)));
    b->ops->close(b);
}

/* ref has no faster form. cpu's selection depends on the machine, but must never be a form that does not support the
 * weights. */
static void test_form_chosen_by_the_backend(void **state)
{
    (void)state;
    static const char *const devices[] = {"ref", "cpu"};
    for (int i = 0; i < 2; i++) {
        for (int dtype = 0; dtype < 3; dtype++) {
            struct k_backend *b;
            const char *why;
            struct k_backend_options options = {.device = devices[i],
                                                .n_threads = 1,
                                                .form = K_FORM_AUTO,
                                                .weight_format = k_format_of((enum k_dtype)dtype)};
            assert_int_equal(k_backend_open(&options, &b, &why, NULL), QUIRE_OK);
            assert_true(b->form == K_FORM_LANE || (i == 1 && dtype == K_BF16 && b->form == K_FORM_TILE));
            b->ops->close(b);
        }
    }
}

static void test_refused_arguments(void **state)
{
    (void)state;
    struct k_backend *b = open_ref(K_FORM_LANE);
    struct quire_error err;
    struct k_weight *w;
    static const uint16_t data[64] = {0};
    const struct k_weight_view view = k_plain_view(data, K_F16, 4, 16, 32);
    float x[64] = {0};
    uint32_t id = 4;
    assert_int_equal(b->ops->weight_create(b, &view, 1, 1, &w, &err), QUIRE_OK);
    assert_int_equal(
        b->ops->embed(b, &(struct k_embed_args){.table = w, .ids_dev = &id, .out_dev = x, .n_tokens = 1}, &err),
        QUIRE_INVALID);
    assert_non_null(strstr(err.text, "token id 4"));
    b->ops->weight_destroy(b, w);

    struct k_token_count count = {8, 1};
    struct k_logit_bias bias = {8, 1.0f};
    const struct k_sample_row good = {
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .forced = -1};
    struct k_sample_row bad[4] = {good, good, good, good};
    bad[0].counts = &count;
    bad[0].n_counts = 1;
    bad[1].biases = &bias;
    bad[1].n_biases = 1;
    bad[2].forced = 8;
    bad[3].n_logprobs = K_MAX_LOGPROBS + 1;
    uint32_t n_planned;
    uint64_t parts_bytes;
    struct k_sample_plan_args args = {NULL, NULL, NULL, 1, 8, &n_planned, &parts_bytes};
    for (int i = 0; i < 4; i++) {
        args.rows = &bad[i];
        assert_int_equal(b->ops->sample_plan(b, &args, &err), QUIRE_INVALID);
    }
    args.rows = &good;
    args.n_vocab = (1u << 22) + 1;
    assert_int_equal(b->ops->sample_plan(b, &args, &err), QUIRE_INVALID);
    b->ops->close(b);
}

static void test_dtypes(void **state)
{
    (void)state;
    assert_int_equal(k_dtype_bytes(K_F32), 4);
    assert_int_equal(k_dtype_bytes(K_F16), 2);
    assert_int_equal(k_dtype_bytes(K_BF16), 2);
    assert_string_equal(k_dtype_name(K_F32), "float32");
    assert_string_equal(k_dtype_name(K_F16), "float16");
    assert_string_equal(k_dtype_name(K_BF16), "bfloat16");
}

static void test_formats(void **state)
{
    (void)state;
    static const enum k_dtype dtypes[] = {K_F32, K_F16, K_BF16};
    for (size_t i = 0; i < 3; i++) {
        const struct k_format plain = k_format_of(dtypes[i]);
        assert_true(k_format_is_plain(plain));
        assert_int_equal(k_format_bytes(plain, 1), k_dtype_bytes(dtypes[i]));
        assert_int_equal(k_format_bytes(plain, UINT64_C(3) << 40), (UINT64_C(3) << 40) * k_dtype_bytes(dtypes[i]));
        assert_string_equal(k_format_name(plain), k_dtype_name(dtypes[i]));
    }
    const struct k_format constant = K_FORMAT_BF16, int4 = {K_F16, 4, 128, K_F16, K_PACKING_NONE};
    const struct k_format made = k_format_of(K_BF16);
    assert_memory_equal(&constant, &made, sizeof made);
    assert_false(k_format_is_plain(int4)); /* half a byte an element */
    assert_int_equal(k_format_bytes(int4, 1), 1);
    assert_int_equal(k_format_bytes(int4, 2), 1);
    assert_int_equal(k_format_bytes(int4, 4097), 2049);
}

/* Operations support formats; forms apply only to GEMMs. */
static void test_supports(void **state)
{
    (void)state;
    struct k_backend *b = open_ref(K_FORM_LANE);
    struct k_format grouped = k_format_of(K_F16);
    grouped.group = 32;
    static const enum k_operation of_cache[] = {K_OP_ROPE_KV, K_OP_ATTENTION, K_OP_KV_COPY};
    for (size_t i = 0; i < 3; i++) {
        assert_true(b->ops->supports(b, of_cache[i], K_FORM_LANE, k_format_of(K_F16)));
        assert_true(b->ops->supports(b, of_cache[i], K_FORM_MMA, k_format_of(K_F32)));
        assert_false(b->ops->supports(b, of_cache[i], K_FORM_LANE, k_format_of(K_BF16)));
        assert_false(b->ops->supports(b, of_cache[i], K_FORM_LANE, grouped));
    }
    assert_true(b->ops->supports(b, K_OP_EMBED, K_FORM_MMA, k_format_of(K_BF16)));
    assert_true(b->ops->supports(b, K_OP_GEMM_GATED, K_FORM_TILE, k_format_of(K_F16)));
    assert_false(b->ops->supports(b, K_OP_GEMM_GATED, K_FORM_TILE, k_format_of(K_F32)));
    assert_false(b->ops->supports(b, K_OP_GEMM, K_FORM_LANE, grouped));
    const struct k_format blocks = k_format_of_blocks(K_PACKING_Q6_K), fp8 = k_format_of_planes(K_E4M3, 8, 128, K_F32);
    assert_true(b->ops->supports(b, K_OP_GEMM, K_FORM_LANE, blocks) &&
                b->ops->supports(b, K_OP_GEMM, K_FORM_INT8, blocks));
    assert_true(b->ops->supports(b, K_OP_GEMM, K_FORM_LANE, fp8) && b->ops->supports(b, K_OP_EMBED, K_FORM_TILE, fp8));
    const struct k_format fp4 = k_format_of_planes(K_E2M1, 4, 32, K_E8M0),
                          fp4_of_16 = k_format_of_planes(K_E2M1, 4, 16, K_E8M0);
    assert_true(b->ops->supports(b, K_OP_MOE_GEMM, K_FORM_LANE, fp4) &&
                b->ops->supports(b, K_OP_MOE_GEMM, K_FORM_INT8, fp4));
    assert_false(b->ops->supports(b, K_OP_GEMM, K_FORM_LANE, fp4_of_16) ||
                 b->ops->supports(b, K_OP_GEMM, K_FORM_LANE, k_format_of_planes(K_E2M1, 4, 32, K_F16)) ||
                 b->ops->supports(b, K_OP_GEMM, K_FORM_LANE, k_format_of_planes(K_INT, 4, 32, K_E8M0)));
    assert_false(b->ops->supports(b, K_OP_GEMM, K_FORM_INT8, fp8) ||
                 b->ops->supports(b, K_OP_GEMM, K_FORM_TILE, blocks));
    assert_false(b->ops->supports(b, K_OP_ATTENTION, K_FORM_LANE, blocks));
    /* it has neither weights nor a cache */
    assert_false(b->ops->supports(b, K_OP_RMSNORM, K_FORM_LANE, k_format_of(K_F32)));
    b->ops->close(b);
}

/* docs/internals/kernels.md has exactly one row for each operation, with the list's text. */
static void test_documented_operations(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *recorded;
    } operations[] = {
#define RECORDED(NAME, name, text) {#name, text, "yes"},
#define OTHER(NAME, name, text) {#name, text, "no"},
        K_RECORDED_OPERATIONS(RECORDED) K_EAGER_OPERATIONS(OTHER) K_LINKING_OPERATIONS(RECORDED)
            K_PREPARING_OPERATIONS(OTHER) K_GROUP_OPERATIONS(RECORDED)};
    FILE *file = fopen(QUIRE_SOURCE_DIR "/docs/internals/kernels.md", "r");
    char line[1024], want[1024];
    size_t n = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "| `", 3) != 0)
            continue;
        assert_in_range(n, 0, K_N_OPERATIONS - 1);
        snprintf(want, sizeof want, "| `%s` | %s | %s |\n", operations[n].name, operations[n].text,
                 operations[n].recorded);
        assert_string_equal(line, want);
        assert_string_equal(k_operation_name((enum k_operation)n), operations[n].name);
        n++;
    }
    fclose(file);
    assert_int_equal(n, K_N_OPERATIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_default_threads),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_planners),
        cmocka_unit_test(test_plan_weight),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_memory_and_tickets),
        cmocka_unit_test(test_bad_weights),
        cmocka_unit_test(test_forms_and_weights),
        cmocka_unit_test(test_form_chosen_by_the_backend),
        cmocka_unit_test(test_refused_arguments),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_supports),
        cmocka_unit_test(test_documented_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
