/* Quantized matrices of safetensors: packed here by the definitions of their formats, element by element, and read
 * back through the view. Contradictory ones are rejected in one line that names the tensor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/model/quantization/quantized.h"
#include "kernels/math/convert.h"
#include "kernels/quant.h"

#include "base/encoding/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 24u
#define K 160u /* 5 groups of 32; 2 of 128, the last short */
#define MAX_GROUPS 10u

/* ---- a checkpoint in memory -------------------------------------------------------------------------------------- */

struct image {
    char header[4096];
    size_t n_header, n_data;
    uint8_t data[1 << 16];
    uint8_t file[1 << 17];
};

static void *add(struct image *im, const char *name, const char *dtype, const char *shape, size_t bytes)
{
    im->n_header += (size_t)snprintf(im->header + im->n_header, sizeof im->header - im->n_header,
                                     "%s\"m.%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                                     im->n_header ? "," : "{", name, dtype, shape, im->n_data, im->n_data + bytes);
    void *at = im->data + im->n_data;
    im->n_data += bytes;
    assert_true(im->n_data <= sizeof im->data);
    memset(at, 0, bytes);
    return at;
}

static struct checkpoint *open_image(struct image *im)
{
    struct checkpoint *st;
    struct quire_error err;
    im->header[im->n_header++] = '}';
    while (im->n_header % 8)
        im->header[im->n_header++] = ' ';
    for (size_t i = 0; i < 8; i++)
        im->file[i] = (uint8_t)((uint64_t)im->n_header >> 8 * i);
    memcpy(im->file + 8, im->header, im->n_header);
    memcpy(im->file + 8 + im->n_header, im->data, im->n_data);
    if (checkpoint_open_memory(im->file, 8 + im->n_header + im->n_data, &st, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return st;
}

/* ---- what is packed ---------------------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t below)
{
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

/* A matrix of integers as the formats mean it: w[n][k] = scale[n][group of k] (q[n][k] − zero[n][group of k]). */
struct meant {
    uint32_t group, groups;
    int q[N][K], zero[N][MAX_GROUPS];
    float scale[N][MAX_GROUPS];
    uint32_t group_of[K];
};

static void draw_meant(struct meant *m, uint32_t bits, uint32_t group, bool symmetric, bool shuffle)
{
    m->group = group ? group : K;
    m->groups = (K + m->group - 1) / m->group;
    for (uint32_t k = 0; k < K; k++)
        m->group_of[k] = k / m->group;
    for (uint32_t k = K - 1; shuffle && k > 0; k--) {
        uint32_t other = draw(k + 1), g = m->group_of[k];
        m->group_of[k] = m->group_of[other];
        m->group_of[other] = g;
    }
    for (uint32_t n = 0; n < N; n++) {
        for (uint32_t k = 0; k < K; k++)
            m->q[n][k] = (int)draw(1u << bits);
        for (uint32_t g = 0; g < m->groups; g++) {
            m->zero[n][g] = symmetric ? 1 << (bits - 1) : (int)draw(1u << bits);
            m->scale[n][g] = (float)(1 + draw(1000)) * 0x1p-12f; /* exact in f16 */
        }
    }
}

static void or_bits(uint32_t *words, uint64_t word, uint32_t place, uint32_t bits, uint32_t value)
{
    words[word] |= (value & ((1u << bits) - 1)) << place * bits;
}

static void put_scales(struct image *im, const struct meant *m, bool by_rows)
{
    char shape[32];
    snprintf(shape, sizeof shape, "[%u,%u]", by_rows ? N : m->groups, by_rows ? m->groups : N);
    uint16_t *s = add(im, by_rows ? "weight_scale" : "scales", "F16", shape, 2u * N * m->groups);
    for (uint32_t n = 0; n < N; n++)
        for (uint32_t g = 0; g < m->groups; g++)
            s[by_rows ? n * m->groups + g : g * N + n] = k_f16_from_f32(m->scale[n][g]);
}

static void put_order(struct image *im, const struct meant *m, const char *name)
{
    char shape[32];
    snprintf(shape, sizeof shape, "[%u]", K);
    memcpy(add(im, name, "I32", shape, 4u * K), m->group_of, 4u * K);
}

/* AutoGPTQ: qweight[k / p][n] holds k % p at bits × that; qzeros[g][n / p] likewise, less 1 in the first version. */
static void pack_gptq(struct image *im, const struct meant *m, uint32_t bits, bool v1)
{
    const uint32_t p = 32 / bits;
    char shape[32];
    snprintf(shape, sizeof shape, "[%u,%u]", K / p, N);
    uint32_t *w = add(im, "qweight", "I32", shape, 4u * (K / p) * N);
    snprintf(shape, sizeof shape, "[%u,%u]", m->groups, N / p);
    uint32_t *z = add(im, "qzeros", "I32", shape, 4u * m->groups * (N / p));
    for (uint32_t n = 0; n < N; n++) {
        for (uint32_t k = 0; k < K; k++)
            or_bits(w, (uint64_t)(k / p) * N + n, k % p, bits, (uint32_t)m->q[n][k]);
        for (uint32_t g = 0; g < m->groups; g++)
            or_bits(z, (uint64_t)g * (N / p) + n / p, n % p, bits, (uint32_t)(m->zero[n][g] - (v1 ? 1 : 0)));
    }
    put_scales(im, m, false);
    put_order(im, m, "g_idx");
}

/* AutoAWQ: qweight[k][n / 8], where 4 bits at place i are of row order[i]. */
static void pack_awq(struct image *im, const struct meant *m)
{
    static const uint32_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    char shape[32];
    snprintf(shape, sizeof shape, "[%u,%u]", K, N / 8);
    uint32_t *w = add(im, "qweight", "I32", shape, 4u * K * (N / 8));
    snprintf(shape, sizeof shape, "[%u,%u]", m->groups, N / 8);
    uint32_t *z = add(im, "qzeros", "I32", shape, 4u * m->groups * (N / 8));
    for (uint32_t j = 0; j < N / 8; j++)
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t n = 8 * j + order[i];
            for (uint32_t k = 0; k < K; k++)
                or_bits(w, (uint64_t)k * (N / 8) + j, i, 4, (uint32_t)m->q[n][k]);
            for (uint32_t g = 0; g < m->groups; g++)
                or_bits(z, (uint64_t)g * (N / 8) + j, i, 4, (uint32_t)m->zero[n][g]);
        }
    put_scales(im, m, false);
}

/* compressed-tensors: weight_packed[n][k / p]; weight_zero_point packed along rows. */
static void pack_ct(struct image *im, const struct meant *m, uint32_t bits, bool symmetric, bool in_order)
{
    const uint32_t p = 32 / bits;
    char shape[32];
    snprintf(shape, sizeof shape, "[%u,%u]", N, K / p);
    uint32_t *w = add(im, "weight_packed", "I32", shape, 4u * N * (K / p));
    for (uint32_t n = 0; n < N; n++)
        for (uint32_t k = 0; k < K; k++)
            or_bits(w, (uint64_t)n * (K / p) + k / p, k % p, bits, (uint32_t)m->q[n][k]);
    if (!symmetric) {
        snprintf(shape, sizeof shape, "[%u,%u]", N / p, m->groups);
        uint32_t *z = add(im, "weight_zero_point", "I32", shape, 4u * (N / p) * m->groups);
        for (uint32_t n = 0; n < N; n++)
            for (uint32_t g = 0; g < m->groups; g++)
                or_bits(z, (uint64_t)(n / p) * m->groups + g, n % p, bits, (uint32_t)m->zero[n][g]);
    }
    put_scales(im, m, true);
    if (in_order)
        put_order(im, m, "weight_g_idx");
}

/* ---- read back --------------------------------------------------------------------------------------------------- */

/* Rows of the tensors, which hold those of several matrices below each other where a model fuses its projections. The first
 * are all of them. */
struct rows {
    uint32_t first, n;
};
static const struct rows parts[] = {{0, N}, {0, 8}, {8, 16}, {16, 8}, {5, 11}};
#define N_PARTS (sizeof parts / sizeof parts[0])

/* Two passes, as weights are loaded: count, then make. */
static int view_of(const struct checkpoint *st, const struct quantization *how, struct rows rows,
                   struct k_weight_view *v, uint8_t **arena, struct quire_error *err)
{
    struct quantized_matrix m = {.checkpoint = st,
                                 .how = how,
                                 .name = "m",
                                 .n_rows = rows.n,
                                 .n_cols = K,
                                 .all_rows = N,
                                 .first_row = rows.first,
                                 .n_threads = 3,
                                 .is_read = true};
    struct quantized_arena counted = {0};
    *arena = NULL;
    assert_true(quantized_has(&m));
    int status = quantized_view(&m, &counted, v, err);
    if (status != QUIRE_OK)
        return status;
    struct k_format format = v->format;
    struct quantized_arena made = {.base = *arena = aligned_alloc(64, counted.used ? counted.used : 64)};
    status = quantized_view(&m, &made, v, err);
    if (status == QUIRE_OK) {
        assert_int_equal(made.used, counted.used);
        assert_memory_equal(&format, &v->format, sizeof format);
    }
    return status;
}

static void check_view(const struct k_weight_view *v, const struct meant *m, struct rows rows)
{
    assert_int_equal(v->n_rows, rows.n);
    assert_int_equal(v->n_cols, K);
    for (uint32_t n = rows.first; n < rows.first + rows.n; n++)
        for (uint32_t i = 0; i < K; i++) {
            const uint32_t k = v->permutation ? v->permutation[i] : i, g = m->group_of[k];
            float q, scale, least;
            k_quant_read(v, n - rows.first, i, i + 1, &q);
            k_quant_scale(v, n - rows.first, i, &scale, &least);
            if (q != (float)(m->q[n][k] - m->zero[n][g]) || scale != m->scale[n][g] || least != 0)
                fail_msg("row %u, column %u: %g of scale %g, meant %d - %d of %g", n, i, (double)q, (double)scale,
                         m->q[n][k], m->zero[n][g], (double)m->scale[n][g]);
        }
}

static void packed_integers(void **state)
{
    (void)state;
    static const struct {
        enum quantization_layout layout;
        uint32_t bits, group;
        bool symmetric, in_order, v1, in_place;
    } cases[] = {
        {QUANTIZATION_GPTQ, 4, 32, true, false, true, false},
        {QUANTIZATION_GPTQ, 4, 128, false, false, true, false},
        {QUANTIZATION_GPTQ, 4, 0, false, false, false, false},
        {QUANTIZATION_GPTQ, 8, 32, false, true, true, false},
        {QUANTIZATION_GPTQ, 4, 64, true, true, false, false},
        {QUANTIZATION_GPTQ, 8, 0, true, false, true, false},
        {QUANTIZATION_AWQ, 4, 32, false, false, false, false},
        {QUANTIZATION_AWQ, 4, 128, false, false, false, false},
        {QUANTIZATION_PACKED, 4, 32, true, false, false, true},
        {QUANTIZATION_PACKED, 4, 128, false, false, false, true},
        {QUANTIZATION_PACKED, 8, 32, true, false, false, false},
        {QUANTIZATION_PACKED, 8, 32, false, false, false, false},
        {QUANTIZATION_PACKED, 4, 32, false, true, false, false},
        {QUANTIZATION_PACKED, 4, 0, true, false, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct image *im = calloc(1, sizeof *im);
        struct meant *m = calloc(1, sizeof *m);
        struct quantization how = {.layout = cases[i].layout,
                                   .bits = cases[i].bits,
                                   .group = cases[i].group,
                                   .symmetric = cases[i].symmetric,
                                   .zero_is_less = cases[i].v1,
                                   .in_order = cases[i].in_order};
        draw_meant(m, how.bits, how.group, how.symmetric, how.in_order);
        if (how.layout == QUANTIZATION_GPTQ)
            pack_gptq(im, m, how.bits, how.zero_is_less);
        else if (how.layout == QUANTIZATION_AWQ)
            pack_awq(im, m);
        else
            pack_ct(im, m, how.bits, how.symmetric, how.in_order);
        struct checkpoint *st = open_image(im);
        for (size_t p = 0; p < N_PARTS; p++) {
            struct k_weight_view v;
            struct quire_error err;
            uint8_t *arena;
            if (view_of(st, &how, parts[p], &v, &arena, &err) != QUIRE_OK)
                fail_msg("case %zu: %s", i, err.text);
            check_view(&v, m, parts[p]);
            const uint8_t *data = v.data;
            assert_int_equal(data >= im->file && data < im->file + sizeof im->file, cases[i].in_place);
            assert_int_equal(v.permutation != NULL, how.in_order);
            free(arena);
        }
        checkpoint_close(st);
        free(im);
        free(m);
    }
}

/* FP8 and int8 as they lie, with scales of the tensor, of rows and of blocks whose edges do not divide. */
struct elements_case {
    const char *dtype, *suffix, *shape;
    uint32_t block_rows, group, n_scales;
};

static void check_elements(const struct elements_case *c, const struct k_weight_view *v, struct rows rows,
                           const uint8_t *w, const float *s)
{
    const bool is_int = c->dtype[0] == 'I', has_e4m3 = !is_int && c->dtype[4] == '4';
    const uint32_t groups = c->group ? (K + c->group - 1) / c->group : 1;
    assert_true(v->x_scale == (is_int ? 0.125f : 0));
    for (uint32_t n = rows.first; n < rows.first + rows.n; n++)
        for (uint32_t k = 0; k < K; k++) {
            const uint32_t row = c->n_scales == 1 ? 0 : c->block_rows ? n / c->block_rows : n;
            const uint8_t e = w[n * K + k];
            float q, scale, least;
            k_quant_read(v, n - rows.first, k, k + 1, &q);
            k_quant_scale(v, n - rows.first, k, &scale, &least);
            assert_true(q == (is_int ? (float)(int8_t)e : has_e4m3 ? k_f32_from_e4m3(e) : k_f32_from_e5m2(e)));
            assert_true(scale == s[row * groups + (c->group ? k / c->group : 0)]);
        }
}

static void elements_in_place(void **state)
{
    (void)state;
    static const struct elements_case cases[] = {{"F8_E4M3", "weight_scale_inv", "[2,2]", 16, 128, 4},
                                                 {"F8_E5M2", "weight_scale", "[]", 0, 0, 1},
                                                 {"F8_E4M3", "weight_scale", "[24]", 0, 0, N},
                                                 {"F8_E4M3", "weight_scale", "[24,5]", 0, 32, 5 * N},
                                                 {"I8", "weight_scale", "[24,1]", 0, 0, N},
                                                 {"I8", "weight_scale", "[1]", 0, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct image *im = calloc(1, sizeof *im);
        const bool is_int = cases[i].dtype[0] == 'I';
        struct quantization how = {.layout = QUANTIZATION_ELEMENTS,
                                   .bits = 8,
                                   .is_float = !is_int,
                                   .symmetric = true,
                                   .group = cases[i].group,
                                   .block_rows = cases[i].block_rows,
                                   .inputs = is_int ? INPUTS_STATIC : INPUTS_FLOAT};
        uint8_t *w = add(im, "weight", cases[i].dtype, "[24,160]", N * K);
        float *s = add(im, cases[i].suffix, "F32", cases[i].shape, 4 * cases[i].n_scales);
        *(float *)add(im, "input_scale", "F32", "[1]", 4) = 0.125f;
        for (uint32_t j = 0; j < N * K; j++)
            w[j] = (uint8_t)draw(120);
        for (uint32_t j = 0; j < cases[i].n_scales; j++)
            s[j] = (float)(j + 1) * 0.37f;
        struct checkpoint *st = open_image(im);
        for (size_t p = 0; p < N_PARTS; p++) {
            struct k_weight_view v;
            struct quire_error err;
            uint8_t *arena;
            const bool cuts_block = cases[i].block_rows && parts[p].first % cases[i].block_rows;
            assert_int_equal(view_of(st, &how, parts[p], &v, &arena, &err), cuts_block ? QUIRE_UNSUPPORTED : QUIRE_OK);
            if (cuts_block)
                assert_non_null(strstr(err.text, "inside a block of 16 rows"));
            else
                check_elements(&cases[i], &v, parts[p], w, s);
            free(arena);
        }
        checkpoint_close(st);
        free(im);
    }
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void bad_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *what, *says;
    } cases[] = {
        {"nan", "tensor 'm.scales': element 3 is nan"},
        {"zero", "tensor 'm.scales': element 3 is 0"},
        {"inf", "tensor 'm.scales': element 3 is inf"},
        {"range", "tensor 'm.g_idx': element 3 is group 5 of 5"},
        {"negative", "tensor 'm.g_idx': element 3 is group -1 of 5"},
        {"crowd", "tensor 'm.g_idx': group 0 has more than 32 columns"},
        {"unsaid", "tensor 'm.g_idx': orders columns"},
        {"sym", "tensor 'm.qzeros': row 0 has the zero point"},
        {"bits", "tensor 'm.qweight': shape"},
        {"group", "tensor 'm.scales': shape"},
        {"both", "tensor 'm.weight': exists in addition to"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct image *im = calloc(1, sizeof *im);
        struct meant *m = calloc(1, sizeof *m);
        const char *what = cases[i].what;
        struct quantization how = {.layout = QUANTIZATION_GPTQ, .bits = 4, .group = 32, .in_order = true};
        struct k_weight_view v;
        struct quire_error err;
        uint8_t *arena;
        draw_meant(m, 4, 32, false, true);
        m->zero[0][0] = 3;
        m->scale[3][0] = what[0] == 'n' && what[1] == 'a' ? NAN : what[0] == 'z' ? 0 : what[0] == 'i' ? INFINITY : 1;
        m->group_of[3] = what[0] == 'r' ? 5 : what[1] == 'e' && what[0] == 'n' ? UINT32_MAX : m->group_of[3];
        for (uint32_t k = 0; k < K && what[0] == 'c'; k++)
            m->group_of[k] = 0;
        how.in_order = what[0] != 'u';
        how.symmetric = what[0] == 's';
        pack_gptq(im, m, 4, false);
        if (strcmp(what, "both") == 0)
            add(im, "weight", "F16", "[24,160]", 2u * N * K);
        how.bits = strcmp(what, "bits") == 0 ? 8 : 4;
        how.group = what[0] == 'g' ? 64 : 32;
        struct checkpoint *st = open_image(im);
        assert_int_equal(view_of(st, &how, parts[0], &v, &arena, &err), QUIRE_INVALID);
        if (!strstr(err.text, cases[i].says) || !strstr(err.text, "model.safetensors") || strchr(err.text, '\n'))
            fail_msg("%s: %s", what, err.text);
        checkpoint_close(st);
        free(arena);
        free(im);
        free(m);
    }
}

/* Sizes, or a kind of FP8, that the file states and its tensors have not. */
static void contradictions(void **state)
{
    (void)state;
    static const struct {
        const char *floats; /* of FP8, else packed */
        int64_t rows, cols;
        const char *says; /* NULL: it is right */
    } cases[] = {
        {NULL, N, K, NULL},
        {NULL, N, K - 1, "tensor 'm.weight_shape': says [24, 159], but config.json makes it [24, 160]"},
        {NULL, -1, K, "tensor 'm.weight_shape': says [-1, 160]"},
        {"F8_E4M3", 0, 0, NULL},
        {"F8_E5M2", 0, 0, "tensor 'm.weight': dtype: F8_E4M3, but config.json's quantization_config needs F8_E5M2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct image *im = calloc(1, sizeof *im);
        struct meant *m = calloc(1, sizeof *m);
        struct quantization how = {.layout = cases[i].floats ? QUANTIZATION_ELEMENTS : QUANTIZATION_PACKED,
                                   .bits = cases[i].floats ? 8 : 4,
                                   .group = cases[i].floats ? 0 : 32,
                                   .is_float = cases[i].floats != NULL,
                                   .floats = cases[i].floats,
                                   .symmetric = true};
        struct k_weight_view v;
        struct quire_error err;
        uint8_t *arena;
        draw_meant(m, 4, 32, true, false);
        if (cases[i].floats) {
            add(im, "weight", "F8_E4M3", "[24,160]", N * K);
            *(float *)add(im, "weight_scale", "F32", "[1]", 4) = 1;
        } else {
            pack_ct(im, m, 4, true, false);
            int64_t *shape = add(im, "weight_shape", "I64", "[2]", 16);
            shape[0] = cases[i].rows;
            shape[1] = cases[i].cols;
        }
        struct checkpoint *st = open_image(im);
        int status = view_of(st, &how, parts[0], &v, &arena, &err);
        if (status != (cases[i].says ? QUIRE_INVALID : QUIRE_OK) || (cases[i].says && !strstr(err.text, cases[i].says)))
            fail_msg("case %zu: status %d, %s", i, status, status == QUIRE_OK ? "" : err.text);
        checkpoint_close(st);
        free(arena);
        free(im);
        free(m);
    }
}

static void configs(void **state)
{
    (void)state;
#define CT(format, weights, more) \
    "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"" format "\"," \
    "\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{" weights "}" more "}}}}"
#define Q(text) "{\"quantization_config\":{" text "}}"
    static const struct {
        const char *config;
        int status;
        const char *says; /* text of the error, or the method's name */
    } cases[] = {
        {"{}", QUIRE_OK, "none"},
        {Q("\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128,\"desc_act\":true"), QUIRE_OK, "gptq"},
        {Q("\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"checkpoint_format\":\"gptq_v2\""), QUIRE_OK,
         "gptq"},
        {Q("\"quant_method\":\"gptq\",\"bits\":3,\"group_size\":128"), QUIRE_UNSUPPORTED, "bits: 3"},
        {Q("\"quant_method\":\"gptq\",\"bits\":2"), QUIRE_UNSUPPORTED, "bits: 2"},
        {Q("\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":7"), QUIRE_UNSUPPORTED, "group_size: 7"},
        {Q("\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":0"), QUIRE_UNSUPPORTED, "group_size: 0"},
        {Q("\"quant_method\":\"gptq\",\"bits\":\"4\""), QUIRE_INVALID, "bits"},
        {Q("\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"marlin\""), QUIRE_UNSUPPORTED, "'marlin'"},
        {Q("\"quant_method\":\"awq\",\"bits\":4,\"group_size\":64,\"version\":\"gemm\""), QUIRE_OK, "awq"},
        {Q("\"quant_method\":\"awq\",\"w_bit\":4,\"version\":\"gemv\""), QUIRE_UNSUPPORTED, "'gemv'"},
        {Q("\"quant_method\":\"awq\",\"bits\":4,\"zero_point\":false"), QUIRE_UNSUPPORTED, "zero_point"},
        {Q("\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]"), QUIRE_OK, "fp8"},
        {Q("\"quant_method\":\"fp8\",\"weight_block_size\":[128,100]"), QUIRE_UNSUPPORTED, "weight_block_size"},
        {Q("\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]"), QUIRE_UNSUPPORTED, "weight_block_size"},
        {Q("\"quant_method\":\"fp8\",\"fmt\":\"e4m3\""), QUIRE_OK, "fp8"},
        {Q("\"quant_method\":\"fp8\",\"fmt\":\"e3m4\""), QUIRE_UNSUPPORTED, "fmt: 'e3m4'"},
        {Q("\"quant_method\":\"fp8\",\"fmt\":3"), QUIRE_INVALID, "fmt"},
        {Q("\"quant_method\":\"bitsandbytes\""), QUIRE_UNSUPPORTED, "'bitsandbytes'"},
        {Q("\"quant_method\":\"mxfp4\""), QUIRE_OK, "mxfp4"},
        {Q("\"bits\":4"), QUIRE_INVALID, "quant_method: is missing"},
        {"{\"quantization_config\":[]}", QUIRE_INVALID, "must be an object"},
        {CT("pack-quantized", "\"num_bits\":4,\"strategy\":\"group\",\"group_size\":128", ""), QUIRE_OK,
         "compressed-tensors"},
        {CT("mxfp4-pack-quantized", "\"num_bits\":4,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":32", ""),
         QUIRE_OK, "compressed-tensors"},
        {CT("mxfp4-pack-quantized", "\"num_bits\":4,\"type\":\"float\",\"strategy\":\"group\",\"group_size\":16", ""),
         QUIRE_UNSUPPORTED, "group_size 32"},
        {CT("mxfp4-pack-quantized", "\"num_bits\":4,\"strategy\":\"group\",\"group_size\":32", ""), QUIRE_UNSUPPORTED,
         "float is"},
        {CT("mxfp4-pack-quantized", "\"num_bits\":4,\"type\":\"float\",\"strategy\":\"channel\"", ""),
         QUIRE_UNSUPPORTED, "strategy"},
        {CT("int-quantized", "\"num_bits\":8,\"strategy\":\"channel\"",
            ",\"input_activations\":{\"num_bits\":8,\"dynamic\":true,\"strategy\":\"token\"}"),
         QUIRE_OK, "compressed-tensors"},
        {CT("int-quantized", "\"num_bits\":8,\"strategy\":\"channel\"",
            ",\"input_activations\":{\"num_bits\":8,\"symmetric\":false}"),
         QUIRE_UNSUPPORTED, "symmetric"},
        {CT("float-quantized", "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\",\"block_structure\":[128,128]",
            ",\"input_activations\":{\"num_bits\":8,\"type\":\"float\",\"dynamic\":true}"),
         QUIRE_OK, "compressed-tensors"},
        {CT("nvfp4-pack-quantized", "\"num_bits\":4,\"type\":\"float\"", ""), QUIRE_UNSUPPORTED, "nvfp4"},
        {CT("pack-quantized", "\"num_bits\":2", ""), QUIRE_UNSUPPORTED, "num_bits: 2"},
        {CT("int-quantized", "\"num_bits\":4", ""), QUIRE_UNSUPPORTED, "num_bits: 4"},
        {CT("pack-quantized", "\"num_bits\":4,\"strategy\":\"spiral\"", ""), QUIRE_UNSUPPORTED, "'spiral'"},
        {Q("\"quant_method\":\"compressed-tensors\",\"config_groups\":{}"), QUIRE_UNSUPPORTED, "config_groups"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct quantization q;
        struct quire_error err = {.text = ""};
        json_t *config = NULL;
        assert_int_equal(quire_json_parse(cases[i].config, strlen(cases[i].config), 64, "config", &config, &err),
                         QUIRE_OK);
        int status = quantization_read(config, &q, &err);
        const char *got = status == QUIRE_OK ? quantization_name(&q) : err.text;
        if (status != cases[i].status || !strstr(got, cases[i].says))
            fail_msg("%s: status %d, %s", cases[i].config, status, got);
        json_decref(config);
    }
}

/* Scales for a KV cache, which the engine says that it does not use; there may be nothing else. */
static void cache_scales(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        enum quantization_layout layout;
        bool scales_cache;
    } cases[] = {
        {Q("\"quant_method\":\"compressed-tensors\",\"config_groups\":{},\"kv_cache_scheme\":{\"num_bits\":8,\"type\":\"float\"}"),
         QUANTIZATION_NONE, true},
        {Q("\"quant_method\":\"fp8\",\"kv_cache_scheme\":{\"num_bits\":8}"), QUANTIZATION_ELEMENTS, true},
        {Q("\"quant_method\":\"fp8\",\"kv_cache_scheme\":null"), QUANTIZATION_ELEMENTS, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct quantization q;
        struct quire_error err = {.text = ""};
        json_t *config = NULL;
        assert_int_equal(quire_json_parse(cases[i].config, strlen(cases[i].config), 64, "config", &config, &err),
                         QUIRE_OK);
        assert_int_equal(quantization_read(config, &q, &err), QUIRE_OK);
        assert_int_equal(q.layout, cases[i].layout);
        assert_int_equal(q.scales_cache, cases[i].scales_cache);
        json_decref(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_scales), cmocka_unit_test(packed_integers), cmocka_unit_test(elements_in_place),
        cmocka_unit_test(bad_tensors),  cmocka_unit_test(contradictions),  cmocka_unit_test(configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
