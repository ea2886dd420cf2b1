#include "tools/quantize/calibrated.h"

#include "engine/model/quantization/row_threads.h"
#include "kernels/args/moe.h"
#include "kernels/math/convert.h"
#include "base/encoding/little_endian.h"
#include "tools/quantize/calibrate/layers.h"
#include "tools/quantize/calibrate/statistics.h"
#include "tools/quantize/methods/awq.h"
#include "tools/quantize/methods/fold.h"
#include "tools/quantize/methods/gptq.h"
#include "tools/quantize/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MATRICES 8
#define LEAST_AWQ_ROWS 8u /* rows of each expert that a search reads */

/* A matrix of the layer that is quantized. */
struct matrix {
    uint32_t unit;
    struct checkpoint_tensor tensor;
    float *w; /* [n_rows, n_cols], owned: the weights with the scales of both sides; then the effective weights */
    float *row_scales; /* NULL, or [n_rows], owned: rows were divided by them */
    struct quantizer_codes codes;
};

/* The matrices with one input: of a layer, or of one of its experts. */
struct site {
    struct matrix matrices[MAX_MATRICES]; /* in the order in which the model stacks them */
    uint32_t n;
    struct site_statistics statistics;
    float *scales; /* NULL, or [n_cols], owned: columns were multiplied by them */
};

struct calibrated {
    struct checkpoint_run *r;
    struct calibration_layers *layers;
    uint32_t layer, n_experts; /* n_experts: of the layer; 0: an MLP */
    struct site *sites; /* owned: of each kind one, or one for each expert, or none */
    uint32_t first[CALIBRATION_N_SITES + 1]; /* the sites of kind k are [first[k], first[k + 1]) */
    uint32_t *rows; /* owned, scratch: rows of an expert */
    int status; /* of the observer */
    struct quire_error *err;
};

/* Names of a layer's matrices by site, in the model's order. */
static const struct {
    const char *name; /* %u: the expert */
    enum calibration_site site;
    bool is_expert;
} matrix_names[] = {{"self_attn.q_proj", CALIBRATION_QKV, false},
                    {"self_attn.k_proj", CALIBRATION_QKV, false},
                    {"self_attn.v_proj", CALIBRATION_QKV, false},
                    {"self_attn.qkv_proj", CALIBRATION_QKV, false},
                    {"self_attn.o_proj", CALIBRATION_O, false},
                    {"mlp.gate_proj", CALIBRATION_GATE_UP, false},
                    {"mlp.up_proj", CALIBRATION_GATE_UP, false},
                    {"mlp.gate_up_proj", CALIBRATION_GATE_UP, false},
                    {"mlp.down_proj", CALIBRATION_DOWN, false},
                    {"mlp.experts.%u.gate_proj", CALIBRATION_GATE_UP, true},
                    {"mlp.experts.%u.up_proj", CALIBRATION_GATE_UP, true},
                    {"mlp.experts.%u.down_proj", CALIBRATION_DOWN, true},
                    {"block_sparse_moe.experts.%u.w1", CALIBRATION_GATE_UP, true},
                    {"block_sparse_moe.experts.%u.w3", CALIBRATION_GATE_UP, true},
                    {"block_sparse_moe.experts.%u.w2", CALIBRATION_DOWN, true},
                    {"shared_mlp.input_linear", CALIBRATION_SHARED_GATE_UP, false},
                    {"shared_mlp.output_linear", CALIBRATION_SHARED_DOWN, false},
                    {"mlp.shared_experts.gate_proj", CALIBRATION_SHARED_GATE_UP, false},
                    {"mlp.shared_experts.up_proj", CALIBRATION_SHARED_GATE_UP, false},
                    {"mlp.shared_experts.down_proj", CALIBRATION_SHARED_DOWN, false},
                    {"mlp.shared_expert.gate_proj", CALIBRATION_SHARED_GATE_UP, false},
                    {"mlp.shared_expert.up_proj", CALIBRATION_SHARED_GATE_UP, false},
                    {"mlp.shared_expert.down_proj", CALIBRATION_SHARED_DOWN, false}};
#define N_NAMES (sizeof matrix_names / sizeof *matrix_names)

static int no_memory(struct quire_error *err)
{
    return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

/* ---- a layer's matrices ------------------------------------------------------------------------------------------- */

/* Finds the unit of a tensor "…layers.LAYER.NAME" of the text model. */
static bool find_unit(const struct calibrated *c, const char *name, uint32_t *unit, struct checkpoint_tensor *t)
{
    char ending[96];
    const int n = snprintf(ending, sizeof ending, "layers.%u.%s", c->layer, name);
    for (uint32_t i = 0; i < c->r->n_units; i++) {
        const size_t n_name = strlen(c->r->units[i].name);
        if (n_name < (size_t)n || strcmp(c->r->units[i].name + n_name - (size_t)n, ending) != 0 ||
            !source_is_of_text(c->r->units[i].name))
            continue;
        checkpoint_run_tensor(c->r, i, t);
        *unit = i;
        return true;
    }
    return false;
}

static int load_matrix(struct calibrated *c, struct site *s)
{
    struct matrix *m = &s->matrices[s->n - 1];
    const uint64_t n = m->tensor.shape[0] * m->tensor.shape[1];
    int status = checkpoint_run_alloc_codes(c->r, &m->tensor, &m->codes, c->err);
    if (status == QUIRE_OK && !(m->w = malloc((n + 1) * sizeof *m->w)))
        status = no_memory(c->err);
    return status == QUIRE_OK ? checkpoint_run_load(c->r, m->unit, m->w, c->err) : status;
}

/* The site's matrices: those that the checkpoint has quantized. */
static int load_site(struct calibrated *c, enum calibration_site kind, uint32_t expert, bool is_expert)
{
    struct site *s = &c->sites[c->first[kind] + expert];
    int status = QUIRE_OK;
    for (size_t i = 0; status == QUIRE_OK && i < N_NAMES; i++) {
        char name[64], weight[80];
        struct matrix *m = &s->matrices[s->n];
        if (matrix_names[i].site != kind || matrix_names[i].is_expert != is_expert)
            continue;
        snprintf(name, sizeof name, matrix_names[i].name, expert);
        snprintf(weight, sizeof weight, "%s.weight", name);
        if (!find_unit(c, weight, &m->unit, &m->tensor) || !c->r->units[m->unit].is_quantized)
            continue;
        s->n++;
        status = load_matrix(c, s);
    }
    if (status != QUIRE_OK || s->n == 0)
        return status;
    return site_statistics_begin(&s->statistics, (uint32_t)s->matrices[0].tensor.shape[1],
                                 c->r->job->method->algorithm != ALGORITHM_SMOOTHQUANT, c->err);
}

static int load_layer(struct calibrated *c)
{
    int status = QUIRE_OK;
    c->n_experts = calibration_n_experts(c->layers, c->layer);
    c->sites = calloc(CALIBRATION_N_SITES + 2 * c->n_experts, sizeof *c->sites);
    c->rows = malloc(((uint64_t)c->r->samples.length * K_MOE_MAX_USED + 1) * sizeof *c->rows);
    if (!c->sites || !c->rows)
        return no_memory(c->err);
    for (uint32_t k = 0; status == QUIRE_OK && k < CALIBRATION_N_SITES; k++) {
        const bool is_expert = c->n_experts > 0 && (k == CALIBRATION_GATE_UP || k == CALIBRATION_DOWN);
        const uint32_t n = is_expert ? c->n_experts : 1;
        c->first[k + 1] = c->first[k] + n;
        for (uint32_t e = 0; status == QUIRE_OK && e < n; e++) {
            status = load_site(c, (enum calibration_site)k, e, is_expert);
            if (status == QUIRE_OK && c->sites[c->first[k] + e].n == 0 && k < CALIBRATION_SHARED_GATE_UP)
                return quire_fail(c->err, QUIRE_UNSUPPORTED, "layer %u: its matrices have names that %s does not know",
                                  c->layer, c->r->job->method->name);
        }
    }
    return status;
}

static void free_layer(struct calibrated *c)
{
    for (uint32_t i = 0; c->sites && i < c->first[CALIBRATION_N_SITES]; i++) {
        struct site *s = &c->sites[i];
        for (uint32_t j = 0; j < MAX_MATRICES; j++) {
            free(s->matrices[j].w);
            free(s->matrices[j].row_scales);
            checkpoint_run_free_codes(&s->matrices[j].codes);
        }
        free(s->scales);
        site_statistics_free(&s->statistics);
    }
    free(c->sites);
    free(c->rows);
    c->sites = NULL;
    c->rows = NULL;
    memset(c->first, 0, sizeof c->first);
}

/* Shares a sample's rows among the experts that compute with them. */
static int observe_experts(struct calibrated *c, const struct calibration_rows *x)
{
    int status = QUIRE_OK;
    for (uint32_t e = 0; status == QUIRE_OK && e < c->n_experts; e++) {
        struct site *s = &c->sites[c->first[x->site] + e];
        uint32_t n = 0;
        for (uint32_t i = 0; i < x->n_tokens * x->n_used; i++)
            if (x->experts[i] == e)
                c->rows[n++] = x->per_choice ? i : i / x->n_used;
        if (n > 0 && s->statistics.n_cols == x->n_cols)
            status = site_statistics_add_some(&s->statistics, x->x, c->rows, n, c->r->job->n_threads, c->err);
    }
    return status;
}

static void observe(void *context, const struct calibration_rows *x)
{
    struct calibrated *c = context;
    struct site *s = &c->sites[c->first[x->site]];
    if (x->experts && c->status == QUIRE_OK)
        c->status = observe_experts(c, x);
    else if (!x->experts && x->n_cols == s->statistics.n_cols)
        site_statistics_add(&s->statistics, x->x, x->n_tokens, c->r->job->n_threads);
}

/* ---- scales of columns -------------------------------------------------------------------------------------------- */

/* Rows of a matrix from `first` to its end. */
struct rows {
    struct matrix *m; /* NULL if no matrix has these rows */
    uint64_t first;
};

/* Divides rows of the matrix before a site. Their bias is divided when it is written. */
static int divide_rows(struct calibrated *c, struct rows rows, const float *scales)
{
    const uint64_t n_rows = rows.m->tensor.shape[0], n_cols = rows.m->tensor.shape[1];
    float *const row_scales = rows.m->row_scales = malloc(n_rows * sizeof *row_scales);
    if (!row_scales)
        return no_memory(c->err);
    for (uint64_t r = 0; r < n_rows; r++)
        row_scales[r] = r >= rows.first ? scales[r - rows.first] : 1;
    for (uint64_t r = rows.first; r < n_rows; r++)
        for (uint64_t k = 0; k < n_cols; k++)
            rows.m->w[r * n_cols + k] /= row_scales[r];
    return QUIRE_OK;
}

static void multiply_columns(struct site *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        for (uint64_t r = 0; r < s->matrices[i].tensor.shape[0]; r++)
            for (uint32_t k = 0; k < s->statistics.n_cols; k++)
                s->matrices[i].w[r * s->statistics.n_cols + k] *= s->scales[k];
}

/* The activations are divided by the scales, so their squares are, too. */
static void divide_square(struct site *s)
{
    const uint32_t n = s->statistics.n_cols;
    for (uint32_t i = 0; s->statistics.square && i < n; i++)
        for (uint32_t j = 0; j < n; j++)
            s->statistics.square[(uint64_t)i * n + j] /= s->scales[i] * s->scales[j];
}

static void store(const struct checkpoint_tensor *t, uint8_t *bytes, uint64_t i, float x)
{
    if (t->format.kind == K_F32)
        memcpy(bytes + i * 4, &x, 4);
    else
        le_store_u16(bytes + i * 2, t->format.kind == K_F16 ? k_f16_from_f32(x) : k_bf16_from_f32(x));
}

/* A plain tensor of the layer whose last dimension is n. */
struct plain {
    uint32_t unit;
    struct checkpoint_tensor tensor;
    uint64_t n;
    float *values; /* [n], owned */
};

/* Leaves p->values NULL if the tensor does not exist. */
static int load_plain(struct calibrated *c, const char *name, uint32_t n_dims, uint32_t n, struct plain *p)
{
    const struct checkpoint_tensor *t = &p->tensor;
    *p = (struct plain){0};
    if (!find_unit(c, name, &p->unit, &p->tensor))
        return QUIRE_OK;
    if (t->n_dims != n_dims || t->shape[n_dims - 1] != n)
        return quire_fail(c->err, QUIRE_INVALID, "%.100s: tensor '%.150s': shape: must end in %u", t->file, t->name, n);
    const uint64_t n_rows = n_dims == 2 ? t->shape[0] : 1;
    p->n = n_rows * n;
    p->values = malloc((p->n + 1) * sizeof *p->values);
    return p->values ? source_load(t, 0, n_rows, p->values, c->err) : no_memory(c->err);
}

static int write_values(struct calibrated *c, const struct plain *p)
{
    uint8_t *bytes = malloc(p->tensor.n_bytes + 1);
    if (!bytes)
        return no_memory(c->err);
    for (uint64_t i = 0; i < p->n; i++)
        store(&p->tensor, bytes, i, p->values[i]);
    const int status = checkpoint_run_write_plain(c->r, p->unit, bytes, c->err);
    free(bytes);
    return status;
}

/* Multiplies the columns of a plain matrix. Returns QUIRE_OK if it does not exist. */
static int multiply_plain(struct calibrated *c, const char *name, const float *scales, uint32_t n)
{
    struct plain p;
    int status = load_plain(c, name, 2, n, &p);
    for (uint64_t i = 0; status == QUIRE_OK && i < p.n; i++)
        p.values[i] *= scales[i % n];
    if (status == QUIRE_OK && p.values)
        status = write_values(c, &p);
    free(p.values);
    return status;
}

/* Divides a bias. Returns QUIRE_OK if it does not exist. */
static int divide_bias(struct calibrated *c, const char *name, const float *scales, uint32_t n)
{
    struct plain p;
    int status = load_plain(c, name, 1, n, &p);
    for (uint64_t i = 0; status == QUIRE_OK && i < p.n; i++)
        p.values[i] /= scales[i];
    if (status == QUIRE_OK && p.values)
        status = write_values(c, &p);
    free(p.values);
    return status;
}

/* Divides a norm by the scales, which become what the stored norm was divided by. */
static int divide_norm(struct calibrated *c, const char *name, float *scales, uint32_t n)
{
    struct plain p;
    int status = load_plain(c, name, 1, n, &p);
    if (status == QUIRE_OK && !p.values)
        status = quire_fail(c->err, QUIRE_INVALID, "layer %u: %s is missing", c->layer, name);
    if (status == QUIRE_OK) {
        const struct quantizer_norm norm = {p.tensor.format.kind, calibration_norm_offset(c->layers), n};
        quantizer_fold_norm(&norm, p.values, scales);
        status = write_values(c, &p);
    }
    free(p.values);
    return status;
}

/* Sites that have one input, and so one vector of scales. */
struct site_group {
    struct site **sites; /* owned */
    uint32_t n;
};

/* The sites of a kind and those of another one that have matrices. */
static int group_sites(struct calibrated *c, enum calibration_site kind, enum calibration_site other,
                       struct site_group *g)
{
    *g = (struct site_group){.sites = malloc((c->first[CALIBRATION_N_SITES] + 1u) * sizeof(struct site *))};
    if (!g->sites)
        return no_memory(c->err);
    for (uint32_t i = 0; i < c->first[CALIBRATION_N_SITES]; i++)
        if (((i >= c->first[kind] && i < c->first[kind + 1]) || (i >= c->first[other] && i < c->first[other + 1])) &&
            c->sites[i].n > 0)
            g->sites[g->n++] = &c->sites[i];
    return QUIRE_OK;
}

/* Up to `most` rows of a site, evenly from all of its matrices. Returns their number. */
static uint32_t pick_rows(const struct site *s, uint32_t most, float *out)
{
    uint64_t n_all = 0;
    for (uint32_t i = 0; i < s->n; i++)
        n_all += s->matrices[i].tensor.shape[0];
    const uint32_t n = n_all < most ? (uint32_t)n_all : most;
    for (uint32_t j = 0; j < n; j++) {
        uint64_t row = n_all * j / n;
        uint32_t i = 0;
        for (; row >= s->matrices[i].tensor.shape[0]; i++)
            row -= s->matrices[i].tensor.shape[0];
        memcpy(out + (uint64_t)j * s->statistics.n_cols, s->matrices[i].w + row * s->statistics.n_cols,
               s->statistics.n_cols * sizeof *out);
    }
    return n;
}

static int search_awq(struct calibrated *c, const struct site_group *g, float *scales)
{
    const uint32_t n = g->sites[0]->statistics.n_cols;
    const uint32_t most = QUANTIZER_AWQ_ROWS / g->n > LEAST_AWQ_ROWS ? QUANTIZER_AWQ_ROWS / g->n : LEAST_AWQ_ROWS;
    float *rows = malloc((uint64_t)g->n * most * n * sizeof *rows),
          *scratch = malloc(quantizer_awq_scratch(most, n) * sizeof *scratch);
    double *magnitudes = calloc(n, sizeof *magnitudes);
    struct quantizer_awq_part *parts = calloc(g->n, sizeof *parts);
    int status = rows && scratch && magnitudes && parts ? QUIRE_OK : no_memory(c->err);
    for (uint32_t i = 0; status == QUIRE_OK && i < g->n; i++) {
        const struct site *s = g->sites[i];
        float *w = rows + (uint64_t)i * most * n;
        parts[i] = (struct quantizer_awq_part){w, pick_rows(s, most, w), s->statistics.square};
        for (uint32_t k = 0; k < n; k++)
            magnitudes[k] += s->statistics.sum[k];
    }
    const struct quantizer_awq a = {&c->r->how, n, g->n, parts};
    if (status == QUIRE_OK)
        quantizer_awq_scales(&a, magnitudes, scratch, scales);
    free(rows);
    free(scratch);
    free(magnitudes);
    free(parts);
    return status;
}

/* The largest weights of each column. */
static void add_largest(const struct site *s, float *most)
{
    const uint32_t n = s->statistics.n_cols;
    for (uint32_t i = 0; i < s->n; i++)
        for (uint64_t r = 0; r < s->matrices[i].tensor.shape[0]; r++)
            for (uint32_t k = 0; k < n; k++)
                most[k] = fmaxf(most[k], fabsf(s->matrices[i].w[r * n + k]));
}

/* The largest of all sites: experts share their norm, and so their scales. The router is not rounded to codes, so that its
 * weights have no say. */
static int search_smooth(struct calibrated *c, const struct site_group *g, float *scales)
{
    const uint32_t n = g->sites[0]->statistics.n_cols;
    float *const most_w = calloc(n, sizeof *most_w), *const most_x = calloc(n, sizeof *most_x);
    const int status = most_w && most_x ? QUIRE_OK : no_memory(c->err);
    for (uint32_t i = 0; status == QUIRE_OK && i < g->n; i++) {
        add_largest(g->sites[i], most_w);
        for (uint32_t k = 0; k < n; k++)
            most_x[k] = fmaxf(most_x[k], g->sites[i]->statistics.most[k]);
    }
    if (status == QUIRE_OK)
        quantizer_smooth_scales(most_x, most_w, n, scales);
    free(most_w);
    free(most_x);
    return status;
}

/* Chooses the scales of all matrices with one input: scales [n_cols], the caller's. */
static int search(struct calibrated *c, const struct site_group *g, float *scales)
{
    return (c->r->job->method->algorithm == ALGORITHM_AWQ ? search_awq : search_smooth)(c, g, scales);
}

static int scale_columns(struct calibrated *c, const struct site_group *g, const float *scales)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct site *s = g->sites[i];
        const uint64_t n_bytes = s->statistics.n_cols * sizeof *scales;
        if (!(s->scales = malloc(n_bytes)))
            return no_memory(c->err);
        memcpy(s->scales, scales, n_bytes);
        multiply_columns(s);
        divide_square(s);
    }
    return QUIRE_OK;
}

/* Matrices that stay plain and have the input of an MLP's norm: routers, and gates of shared experts. */
static const char *const plain_readers[] = {"mlp.gate.weight", "block_sparse_moe.gate.weight",
                                            "mlp.shared_expert_gate.weight", "block_sparse_moe.router.layer.weight",
                                            "mlp.router.weight"};

/* Scales the sites behind a norm, and divides the norm. */
static int scale_behind_norm(struct calibrated *c, enum calibration_site kind, enum calibration_site other,
                             const char *norm)
{
    struct site_group g;
    int status = group_sites(c, kind, other, &g);
    const uint32_t n = status == QUIRE_OK ? g.sites[0]->statistics.n_cols : 0;
    float *scales = malloc((n + 1u) * sizeof *scales);
    if (status == QUIRE_OK)
        status = scales ? search(c, &g, scales) : no_memory(c->err);
    if (status == QUIRE_OK)
        status = divide_norm(c, norm, scales, n);
    if (status == QUIRE_OK)
        status = scale_columns(c, &g, scales);
    for (size_t i = 0;
         status == QUIRE_OK && kind == CALIBRATION_GATE_UP && i < sizeof plain_readers / sizeof *plain_readers; i++)
        status = multiply_plain(c, plain_readers[i], scales, n);
    free(scales);
    free(g.sites);
    return status;
}

/* Scales a site, and divides the rows before it and their bias. */
static int scale_behind_matrix(struct calibrated *c, struct site *s, struct rows before, const char *bias)
{
    const uint32_t n = s->statistics.n_cols;
    struct site_group g = {&s, 1};
    float *scales = malloc((n + 1u) * sizeof *scales);
    int status = scales ? search(c, &g, scales) : no_memory(c->err);
    if (status == QUIRE_OK)
        status = scale_columns(c, &g, scales);
    if (status == QUIRE_OK)
        status = divide_rows(c, before, scales);
    if (status == QUIRE_OK && bias)
        status = divide_bias(c, bias, scales, n);
    free(scales);
    return status;
}

/* The n rows that are the last matrix of a site: alone, or at the end of the one matrix of n_parts of the same size. */
static struct rows last_rows(struct site *s, uint32_t n_parts, uint64_t n)
{
    struct matrix *last = s->n > 0 ? &s->matrices[s->n - 1] : NULL;
    const uint64_t n_rows = last ? last->tensor.shape[0] : 0;
    const bool fits = s->n == n_parts ? n_rows == n : s->n == 1 && n_rows == n_parts * n;
    return fits ? (struct rows){last, n_rows - n} : (struct rows){NULL, 0};
}

/* Scales the inputs of the down matrices of a kind: an MLP's, or those of all experts. */
static int scale_down(struct calibrated *c, enum calibration_site down, enum calibration_site gate_up)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; status == QUIRE_OK && i < c->first[down + 1] - c->first[down]; i++) {
        struct site *s = &c->sites[c->first[down] + i];
        const struct rows up = last_rows(&c->sites[c->first[gate_up] + i], 2, s->statistics.n_cols);
        if (up.m && s->n > 0)
            status = scale_behind_matrix(c, s, up, "mlp.up_proj.bias");
    }
    return status;
}

static int scale_layer(struct calibrated *c)
{
    const bool is_awq = c->r->job->method->algorithm == ALGORITHM_AWQ;
    struct site *o = &c->sites[c->first[CALIBRATION_O]];
    const struct rows v = last_rows(&c->sites[c->first[CALIBRATION_QKV]], 3, o->statistics.n_cols);
    int status = scale_behind_norm(c, CALIBRATION_QKV, CALIBRATION_QKV, "input_layernorm.weight");
    if (status == QUIRE_OK)
        status = scale_behind_norm(c, CALIBRATION_GATE_UP, CALIBRATION_SHARED_GATE_UP,
                                   calibration_has_two_norms(c->layers, c->layer) ? "pre_feedforward_layernorm.weight"
                                                                                  : "post_attention_layernorm.weight");
    if (status == QUIRE_OK && is_awq && calibration_is_linear_in_up(c->layers, c->layer))
        status = scale_down(c, CALIBRATION_DOWN, CALIBRATION_GATE_UP);
    if (status == QUIRE_OK && is_awq)
        status = scale_down(c, CALIBRATION_SHARED_DOWN, CALIBRATION_SHARED_GATE_UP);
    /* With grouped queries several heads read a head of v, so o has no scales of its own. */
    if (status == QUIRE_OK && is_awq && v.m)
        status = scale_behind_matrix(c, o, v, "self_attn.v_proj.bias");
    return status;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------ */

/* Rows of a matrix, shared by threads. */
struct rows_job {
    const struct checkpoint_run *r;
    const struct quantizer_gptq *gptq; /* NULL: weights are rounded one by one */
    struct matrix *m;
    float *scratch; /* of each share */
};

static void quantize_rows(void *context, uint32_t share, uint32_t first, uint32_t last)
{
    const struct rows_job *j = context;
    if (j->gptq)
        quantizer_gptq_rows(j->gptq, j->m->w, first, last, j->scratch + share * quantizer_gptq_scratch(j->gptq->n_cols),
                            &j->m->codes);
    else
        quantizer_round(&j->r->how, j->m->w, first, last, &j->m->codes);
}

/* Replaces w by the weights that the codes stand for, without the scales of both sides. */
static void make_effective(const struct quantizer_integers *how, const struct site *s, struct matrix *m)
{
    const struct quantizer_codes *q = &m->codes;
    for (uint32_t r = 0; r < q->n_rows; r++)
        for (uint32_t k = 0; k < q->n_cols; k++) {
            const uint32_t group = q->groups ? q->groups[k] : how->group ? k / how->group : 0;
            const uint64_t plane = (uint64_t)r * q->n_groups + group;
            const struct quantizer_grid grid = {q->scales[plane], q->zeros[plane]};
            float *w = &m->w[(uint64_t)r * q->n_cols + k];
            *w = quantizer_value(grid, q->codes[(uint64_t)r * q->n_cols + k]);
            if (s->scales)
                *w /= s->scales[k];
            if (m->row_scales)
                *w *= m->row_scales[r];
        }
}

static int quantize_matrix(struct calibrated *c, struct site *s, struct matrix *m, const struct quantizer_gptq *gptq)
{
    const uint32_t n_threads = c->r->job->n_threads;
    struct rows_job job = {.r = c->r, .gptq = gptq, .m = m};
    if (gptq) {
        const uint64_t n_groups = (uint64_t)gptq->n_cols * sizeof *m->codes.groups;
        job.scratch = malloc(n_threads * quantizer_gptq_scratch(gptq->n_cols) * sizeof *job.scratch);
        m->codes.groups = malloc(n_groups);
        if (!job.scratch || !m->codes.groups) {
            free(job.scratch);
            return no_memory(c->err);
        }
        memcpy(m->codes.groups, gptq->groups, n_groups);
    }
    row_threads_run(m->codes.n_rows, QUANTIZER_GPTQ_ROWS, UINT64_MAX / 2, n_threads, quantize_rows, &job);
    free(job.scratch);
    make_effective(&c->r->how, s, m);
    int status = checkpoint_run_write_codes(c->r, m->unit, &m->tensor, &m->codes, c->err);
    c->r->job->progress(c->r->job->context, "weights", c->r->done_weights += m->tensor.shape[0] * m->tensor.shape[1],
                        c->r->n_weights);
    return status;
}

/* For GPTQ, and for AWQ's rounding. */
static int prepare_gptq(struct calibrated *c, struct site *s, struct quantizer_gptq *g)
{
    const uint64_t n = s->statistics.n_cols;
    *g = (struct quantizer_gptq){.how = c->r->how,
                                 .n_cols = s->statistics.n_cols,
                                 .inverse = malloc(n * n * sizeof *g->inverse),
                                 .order = malloc(n * sizeof *g->order),
                                 .groups = malloc(n * sizeof *g->groups),
                                 .clips = true};
    if (!g->inverse || !g->order || !g->groups)
        return no_memory(c->err);
    int status = quantizer_gptq_prepare(g, s->statistics.square, c->r->job->choices->desc_act, c->r->job->choices->damp,
                                        c->r->job->n_threads, c->err);
    if (status != QUIRE_OK)
        quire_error_prefix(c->err, "layer %u: %s", c->layer, s->matrices[0].tensor.name);
    return status;
}

/* An expert that saw fewer tokens than a quarter of its columns has a Hessian that says little. */
static bool saw_enough(const struct site *s)
{
    return s->statistics.n_tokens >= s->statistics.n_cols / 4;
}

static int quantize_site(struct calibrated *c, struct site *s, bool is_expert)
{
    const bool is_compensated = c->r->job->method->algorithm != ALGORITHM_SMOOTHQUANT && (!is_expert || saw_enough(s));
    struct quantizer_gptq gptq = {.n_cols = 0};
    int status = is_compensated ? prepare_gptq(c, s, &gptq) : QUIRE_OK;
    for (uint32_t i = 0; status == QUIRE_OK && i < s->n; i++)
        status = quantize_matrix(c, s, &s->matrices[i], is_compensated ? &gptq : NULL);
    free(gptq.inverse);
    free(gptq.order);
    free(gptq.groups);
    if (is_expert && !is_compensated && c->r->job->method->algorithm != ALGORITHM_SMOOTHQUANT)
        c->r->report->n_rounded += s->n;
    return status;
}

/* Lets the layer compute with the effective weights of all sites of a kind. */
static int replace(struct calibrated *c, enum calibration_site kind)
{
    const struct site *first = &c->sites[c->first[kind]];
    const uint32_t n_sites = c->first[kind + 1] - c->first[kind], n = n_sites * first->n;
    const float **w = malloc((n + 1u) * sizeof *w);
    uint32_t *n_rows = malloc((n + 1u) * sizeof *n_rows);
    int status = w && n_rows ? QUIRE_OK : no_memory(c->err);
    for (uint32_t i = 0; status == QUIRE_OK && i < n; i++) {
        const struct matrix *m = &first[i / first->n].matrices[i % first->n];
        w[i] = m->w;
        n_rows[i] = m->codes.n_rows;
    }
    if (status == QUIRE_OK && n > 0) {
        const struct calibration_matrices all = {w, n_rows, n_sites, first->n, first->statistics.n_cols};
        status = calibration_layer_replace(c->layers, kind, &all, c->err);
    }
    free(w);
    free(n_rows);
    return status;
}

/* Returns whether an earlier run finished the layer, so that its matrices can be read. The scales of the other methods
 * are not in the output, so their layers are computed again. */
static bool is_layer_done(const struct calibrated *c)
{
    bool is_done = c->r->job->method->algorithm == ALGORITHM_GPTQ;
    for (uint32_t i = 0; i < c->first[CALIBRATION_N_SITES]; i++)
        for (uint32_t j = 0; j < c->sites[i].n; j++)
            is_done = is_done && quantizer_output_has(c->r->output, c->sites[i].matrices[j].unit);
    return is_done;
}

static int reuse_site(struct calibrated *c, struct site *s)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; status == QUIRE_OK && i < s->n; i++) {
        struct matrix *m = &s->matrices[i];
        m->codes.groups = malloc((m->codes.n_cols + 1u) * sizeof *m->codes.groups);
        status = m->codes.groups ? checkpoint_run_read_codes(c->r, m->unit, &m->tensor, &m->codes, c->err)
                                 : no_memory(c->err);
        if (status == QUIRE_OK)
            make_effective(&c->r->how, s, m);
        c->r->done_weights += m->tensor.shape[0] * m->tensor.shape[1];
    }
    return status;
}

/* The layer computes with the same weights in f32: many tokens take three quarters of the time that widening takes. */
static int observe_layer(struct calibrated *c)
{
    int status = QUIRE_OK;
    for (uint32_t k = 0; status == QUIRE_OK && k < CALIBRATION_N_SITES; k++)
        status = replace(c, (enum calibration_site)k);
    if (status == QUIRE_OK)
        status = calibration_layer_run(c->layers, observe, c, false, c->err);
    for (uint32_t i = 0; i < c->first[CALIBRATION_N_SITES]; i++)
        site_statistics_finish(&c->sites[i].statistics);
    if (status == QUIRE_OK && (status = c->status) == QUIRE_OK && c->r->job->method->algorithm != ALGORITHM_GPTQ)
        status = scale_layer(c);
    return status;
}

/* Quantizes the matrices, or reads those of an earlier run back. */
static int make_sites(struct calibrated *c, enum calibration_site kind, bool is_done)
{
    const bool is_expert = c->n_experts > 0 && (kind == CALIBRATION_GATE_UP || kind == CALIBRATION_DOWN);
    int status = QUIRE_OK;
    for (uint32_t i = c->first[kind]; status == QUIRE_OK && i < c->first[kind + 1]; i++)
        if (c->sites[i].n > 0)
            status = is_done ? reuse_site(c, &c->sites[i]) : quantize_site(c, &c->sites[i], is_expert);
    return status == QUIRE_OK ? replace(c, kind) : status;
}

static int run_layer(struct calibrated *c)
{
    int status = load_layer(c);
    checkpoint_drop_pages(c->r->checkpoint);
    const bool is_done = status == QUIRE_OK && is_layer_done(c);
    if (status == QUIRE_OK)
        status = calibration_layer_begin(c->layers, c->layer, c->err);
    if (status == QUIRE_OK && !is_done)
        status = observe_layer(c);
    for (uint32_t k = 0; status == QUIRE_OK && k < CALIBRATION_N_SITES; k++)
        status = make_sites(c, (enum calibration_site)k, is_done);
    if (status == QUIRE_OK) /* the next layer sees the errors of this one */
        status = calibration_layer_run(c->layers, NULL, NULL, true, c->err);
    calibration_layer_end(c->layers);
    free_layer(c);
    return status;
}

int quantizer_calibrated(struct checkpoint_run *r, struct quire_error *err)
{
    struct calibrated c = {.r = r, .err = err};
    const struct calibration_input input = {r->job->model, r->samples.ids, r->samples.n, r->samples.length,
                                            r->job->n_threads};
    int status = calibration_layers_open(&input, &c.layers, err);
    for (c.layer = 0; status == QUIRE_OK && c.layer < calibration_n_layers(c.layers); c.layer++)
        status = run_layer(&c);
    calibration_layers_close(c.layers);
    return status;
}
