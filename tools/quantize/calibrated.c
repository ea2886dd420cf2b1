#include "tools/quantize/calibrated.h"

#include "engine/model/quantization/row_threads.h"
#include "kernels/math/convert.h"
#include "base/encoding/little_endian.h"
#include "tools/quantize/calibrate/layers.h"
#include "tools/quantize/calibrate/statistics.h"
#include "tools/quantize/methods/awq.h"
#include "tools/quantize/methods/gptq.h"
#include "tools/quantize/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MATRICES 8

/* A matrix of the layer that is quantized. */
struct matrix {
    uint32_t unit;
    struct checkpoint_tensor tensor;
    float *w; /* [n_rows, n_cols], owned: the weights with the scales of both sides; then the effective weights */
    float *row_scales; /* NULL, or [n_rows], owned: rows were divided by them */
    struct quantizer_codes codes;
};

/* The matrices with one input. */
struct site {
    struct matrix matrices[MAX_MATRICES]; /* in the order in which the model stacks them */
    uint32_t n;
    struct site_statistics statistics;
    float *scales; /* NULL, or [n_cols], owned: columns were multiplied by them */
};

struct calibrated {
    struct checkpoint_run *r;
    struct calibration_layers *layers;
    uint32_t layer;
    struct site sites[CALIBRATION_N_SITES];
    struct quire_error *err;
};

/* Names of a layer's matrices by site, in the model's order. */
static const struct {
    const char *name;
    enum calibration_site site;
} matrix_names[] = {{"self_attn.q_proj", CALIBRATION_QKV}, {"self_attn.k_proj", CALIBRATION_QKV},
                    {"self_attn.v_proj", CALIBRATION_QKV}, {"self_attn.qkv_proj", CALIBRATION_QKV},
                    {"self_attn.o_proj", CALIBRATION_O},   {"mlp.gate_proj", CALIBRATION_GATE_UP},
                    {"mlp.up_proj", CALIBRATION_GATE_UP},  {"mlp.gate_up_proj", CALIBRATION_GATE_UP},
                    {"mlp.down_proj", CALIBRATION_DOWN}};

static int no_memory(struct quire_error *err)
{
    return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

/* ---- a layer's matrices ------------------------------------------------------------------------------------------- */

/* Finds the unit of a tensor "…layers.LAYER.NAME". */
static bool find_unit(const struct calibrated *c, const char *name, uint32_t *unit, struct checkpoint_tensor *t)
{
    char ending[96];
    const int n = snprintf(ending, sizeof ending, "layers.%u.%s", c->layer, name);
    for (uint32_t i = 0; i < c->r->n_units; i++) {
        checkpoint_at(c->r->checkpoint, c->r->units[i].source, t);
        const size_t n_name = strlen(t->name);
        if (n_name >= (size_t)n && strcmp(t->name + n_name - (size_t)n, ending) == 0) {
            *unit = i;
            return true;
        }
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
    return status == QUIRE_OK ? source_load(&m->tensor, 0, m->tensor.shape[0], m->w, c->err) : status;
}

static int load_layer(struct calibrated *c)
{
    const bool has_square = c->r->job->method->algorithm != ALGORITHM_SMOOTHQUANT;
    int status = QUIRE_OK;
    for (size_t i = 0; status == QUIRE_OK && i < sizeof matrix_names / sizeof *matrix_names; i++) {
        char name[64];
        struct site *s = &c->sites[matrix_names[i].site];
        struct matrix *m = &s->matrices[s->n];
        snprintf(name, sizeof name, "%s.weight", matrix_names[i].name);
        if (!find_unit(c, name, &m->unit, &m->tensor) || !c->r->units[m->unit].is_quantized)
            continue;
        s->n++;
        status = load_matrix(c, s);
    }
    for (uint32_t i = 0; status == QUIRE_OK && i < CALIBRATION_N_SITES; i++) {
        struct site *s = &c->sites[i];
        if (s->n == 0)
            return quire_fail(c->err, QUIRE_UNSUPPORTED, "layer %u: its matrices have names that %s does not know",
                              c->layer, c->r->job->method->name);
        status = site_statistics_begin(&s->statistics, (uint32_t)s->matrices[0].tensor.shape[1], has_square, c->err);
    }
    return status;
}

static void free_layer(struct calibrated *c)
{
    for (uint32_t i = 0; i < CALIBRATION_N_SITES; i++) {
        struct site *s = &c->sites[i];
        for (uint32_t j = 0; j < MAX_MATRICES; j++) {
            free(s->matrices[j].w);
            free(s->matrices[j].row_scales);
            checkpoint_run_free_codes(&s->matrices[j].codes);
        }
        free(s->scales);
        site_statistics_free(&s->statistics);
        *s = (struct site){.n = 0};
    }
}

static void observe(void *context, enum calibration_site site, const float *x, uint32_t n_tokens, uint32_t n_cols)
{
    struct calibrated *c = context;
    if (n_cols == c->sites[site].statistics.n_cols)
        site_statistics_add(&c->sites[site].statistics, x, n_tokens, c->r->job->n_threads);
}

/* ---- scales of columns -------------------------------------------------------------------------------------------- */

/* Divides rows of the matrix before a site, and its bias is divided when it is written. */
static int divide_rows(struct calibrated *c, struct matrix *m, const float *scales)
{
    const uint64_t n_rows = m->tensor.shape[0], n_cols = m->tensor.shape[1];
    if (!(m->row_scales = malloc(n_rows * sizeof *m->row_scales)))
        return no_memory(c->err);
    memcpy(m->row_scales, scales, n_rows * sizeof *scales);
    for (uint64_t r = 0; r < n_rows; r++)
        for (uint64_t k = 0; k < n_cols; k++)
            m->w[r * n_cols + k] /= scales[r];
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

/* Writes a vector of the layer divided by scales. Returns QUIRE_OK if it does not exist. */
static int write_divided(struct calibrated *c, const char *name, const float *scales, uint32_t n)
{
    uint32_t unit;
    struct checkpoint_tensor t;
    if (!find_unit(c, name, &unit, &t))
        return QUIRE_OK;
    if (t.n_dims != 1 || t.shape[0] != n)
        return quire_fail(c->err, QUIRE_INVALID, "%.100s: tensor '%.150s': shape: must be [%u]", t.file, t.name, n);
    float *values = malloc((n + 1u) * sizeof *values);
    uint8_t *bytes = malloc(t.n_bytes + 1);
    int status = values && bytes ? source_load(&t, 0, 1, values, c->err) : no_memory(c->err);
    for (uint32_t i = 0; status == QUIRE_OK && i < n; i++) {
        const float x = values[i] / scales[i];
        if (t.format.kind == K_F32)
            memcpy(bytes + i * 4, &x, 4);
        else
            le_store_u16(bytes + i * 2, t.format.kind == K_F16 ? k_f16_from_f32(x) : k_bf16_from_f32(x));
    }
    if (status == QUIRE_OK)
        status = checkpoint_run_write_plain(c->r, unit, bytes, c->err);
    free(values);
    free(bytes);
    return status;
}

/* Up to QUANTIZER_AWQ_ROWS rows of a site, evenly from all of its matrices. Returns their number. */
static uint32_t pick_rows(const struct site *s, float *out)
{
    uint64_t n_all = 0;
    for (uint32_t i = 0; i < s->n; i++)
        n_all += s->matrices[i].tensor.shape[0];
    const uint32_t n = n_all < QUANTIZER_AWQ_ROWS ? (uint32_t)n_all : QUANTIZER_AWQ_ROWS;
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

static int search_awq(struct calibrated *c, struct site *s)
{
    const uint32_t n = s->statistics.n_cols;
    const struct quantizer_awq a = {&c->r->how, n, s->statistics.square};
    float *rows = malloc((uint64_t)QUANTIZER_AWQ_ROWS * n * sizeof *rows),
          *scratch = malloc(quantizer_awq_scratch(QUANTIZER_AWQ_ROWS, n) * sizeof *scratch);
    int status = rows && scratch ? QUIRE_OK : no_memory(c->err);
    if (status == QUIRE_OK) {
        const uint32_t n_rows = pick_rows(s, rows);
        quantizer_awq_scales(&a, rows, n_rows, s->statistics.sum, scratch, s->scales);
    }
    free(rows);
    free(scratch);
    return status;
}

static int search_smooth(struct calibrated *c, struct site *s)
{
    const uint32_t n = s->statistics.n_cols;
    float *most = calloc(n, sizeof *most);
    if (!most)
        return no_memory(c->err);
    for (uint32_t i = 0; i < s->n; i++)
        for (uint64_t r = 0; r < s->matrices[i].tensor.shape[0]; r++)
            for (uint32_t k = 0; k < n; k++)
                most[k] = fmaxf(most[k], fabsf(s->matrices[i].w[r * n + k]));
    quantizer_smooth_scales(s->statistics.most, most, n, s->scales);
    free(most);
    return QUIRE_OK;
}

/* Scales a site's columns; the norm, or the matrix before it, is divided by them. */
static int scale_site(struct calibrated *c, enum calibration_site site, const char *norm, struct matrix *before,
                      const char *bias)
{
    struct site *s = &c->sites[site];
    const uint32_t n = s->statistics.n_cols;
    if (!(s->scales = malloc(n * sizeof *s->scales)))
        return no_memory(c->err);
    int status = c->r->job->method->algorithm == ALGORITHM_AWQ ? search_awq(c, s) : search_smooth(c, s);
    if (status != QUIRE_OK)
        return status;
    multiply_columns(s);
    divide_square(s);
    if (before)
        status = divide_rows(c, before, s->scales);
    return status == QUIRE_OK ? write_divided(c, norm ? norm : bias, s->scales, n) : status;
}

static struct matrix *matrix_of(struct calibrated *c, enum calibration_site site, const char *name)
{
    for (uint32_t i = 0; i < c->sites[site].n; i++)
        if (strstr(c->sites[site].matrices[i].tensor.name, name))
            return &c->sites[site].matrices[i];
    return NULL;
}

static int scale_layer(struct calibrated *c)
{
    const bool is_awq = c->r->job->method->algorithm == ALGORITHM_AWQ;
    struct matrix *up = matrix_of(c, CALIBRATION_GATE_UP, ".up_proj"), *v = matrix_of(c, CALIBRATION_QKV, ".v_proj");
    int status = scale_site(c, CALIBRATION_QKV, "input_layernorm.weight", NULL, NULL);
    if (status == QUIRE_OK)
        status = scale_site(c, CALIBRATION_GATE_UP, "post_attention_layernorm.weight", NULL, NULL);
    if (status == QUIRE_OK && is_awq && up)
        status = scale_site(c, CALIBRATION_DOWN, NULL, up, "mlp.up_proj.bias");
    /* With grouped queries several heads read a head of v, so o has no scales of its own. */
    if (status == QUIRE_OK && is_awq && v && v->tensor.shape[0] == c->sites[CALIBRATION_O].statistics.n_cols)
        status = scale_site(c, CALIBRATION_O, NULL, v, "self_attn.v_proj.bias");
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
    c->r->job->progress(c->r->job->context, c->r->done_weights += m->tensor.shape[0] * m->tensor.shape[1],
                        c->r->n_weights);
    return status;
}

/* What GPTQ, and AWQ for its rounding, needs of a site's inputs. */
struct compensation {
    struct quantizer_gptq gptq;
    struct quantizer_awq ranges;
    float *square; /* owned: the factorization uses up another */
};

static int begin_compensation(struct calibrated *c, struct site *s, struct compensation *x)
{
    const uint64_t n = s->statistics.n_cols;
    const bool is_awq = c->r->job->method->algorithm == ALGORITHM_AWQ;
    struct quantizer_gptq *g = &x->gptq;
    *g = (struct quantizer_gptq){.how = c->r->how,
                                 .n_cols = s->statistics.n_cols,
                                 .inverse = malloc(n * n * sizeof *g->inverse),
                                 .order = malloc(n * sizeof *g->order),
                                 .groups = malloc(n * sizeof *g->groups)};
    x->square = is_awq ? malloc(n * n * sizeof *x->square) : NULL;
    if (!g->inverse || !g->order || !g->groups || (is_awq && !x->square))
        return no_memory(c->err);
    if (is_awq) {
        memcpy(x->square, s->statistics.square, n * n * sizeof *x->square);
        x->ranges = (struct quantizer_awq){&c->r->how, g->n_cols, x->square};
        g->ranges = &x->ranges;
    }
    int status = quantizer_gptq_prepare(g, s->statistics.square, c->r->job->choices->desc_act, c->r->job->choices->damp,
                                        c->err);
    if (status != QUIRE_OK)
        quire_error_prefix(c->err, "layer %u: %s", c->layer, s->matrices[0].tensor.name);
    return status;
}

static void end_compensation(struct compensation *x)
{
    free(x->gptq.inverse);
    free(x->gptq.order);
    free(x->gptq.groups);
    free(x->square);
}

static int quantize_site(struct calibrated *c, enum calibration_site site)
{
    struct site *s = &c->sites[site];
    const bool has_square = c->r->job->method->algorithm != ALGORITHM_SMOOTHQUANT;
    struct compensation compensation = {.square = NULL};
    const float *effective[MAX_MATRICES];
    uint32_t n_rows[MAX_MATRICES];
    int status = has_square ? begin_compensation(c, s, &compensation) : QUIRE_OK;
    for (uint32_t i = 0; status == QUIRE_OK && i < s->n; i++) {
        status = quantize_matrix(c, s, &s->matrices[i], has_square ? &compensation.gptq : NULL);
        effective[i] = s->matrices[i].w;
        n_rows[i] = s->matrices[i].codes.n_rows;
    }
    end_compensation(&compensation);
    return status == QUIRE_OK
               ? calibration_layer_replace(c->layers, site, effective, n_rows, s->n, s->statistics.n_cols, c->err)
               : status;
}

/* Returns whether an earlier run finished the layer, so that its matrices can be read. The scales of the other methods
 * are not in the output, so their layers are computed again. */
static bool is_layer_done(const struct calibrated *c)
{
    bool is_done = c->r->job->method->algorithm == ALGORITHM_GPTQ;
    for (uint32_t i = 0; i < CALIBRATION_N_SITES; i++)
        for (uint32_t j = 0; j < c->sites[i].n; j++)
            is_done = is_done && quantizer_output_has(c->r->output, c->sites[i].matrices[j].unit);
    return is_done;
}

static int reuse_site(struct calibrated *c, enum calibration_site site)
{
    struct site *s = &c->sites[site];
    const float *effective[MAX_MATRICES];
    uint32_t n_rows[MAX_MATRICES];
    int status = QUIRE_OK;
    for (uint32_t i = 0; status == QUIRE_OK && i < s->n; i++) {
        struct matrix *m = &s->matrices[i];
        m->codes.groups = malloc((m->codes.n_cols + 1u) * sizeof *m->codes.groups);
        status = m->codes.groups ? checkpoint_run_read_codes(c->r, m->unit, &m->tensor, &m->codes, c->err)
                                 : no_memory(c->err);
        if (status == QUIRE_OK)
            make_effective(&c->r->how, s, m);
        effective[i] = m->w;
        n_rows[i] = m->codes.n_rows;
        c->r->done_weights += m->tensor.shape[0] * m->tensor.shape[1];
    }
    return status == QUIRE_OK
               ? calibration_layer_replace(c->layers, site, effective, n_rows, s->n, s->statistics.n_cols, c->err)
               : status;
}

static int quantize_layer(struct calibrated *c)
{
    int status = calibration_layer_run(c->layers, observe, c, false, c->err);
    for (uint32_t i = 0; i < CALIBRATION_N_SITES; i++)
        site_statistics_finish(&c->sites[i].statistics);
    if (status == QUIRE_OK && c->r->job->method->algorithm != ALGORITHM_GPTQ)
        status = scale_layer(c);
    for (uint32_t i = 0; status == QUIRE_OK && i < CALIBRATION_N_SITES; i++)
        status = quantize_site(c, (enum calibration_site)i);
    return status;
}

static int run_layer(struct calibrated *c)
{
    int status = load_layer(c);
    const bool is_done = is_layer_done(c);
    if (status == QUIRE_OK)
        status = calibration_layer_begin(c->layers, c->layer, c->err);
    if (status == QUIRE_OK && !is_done)
        status = quantize_layer(c);
    for (uint32_t i = 0; status == QUIRE_OK && is_done && i < CALIBRATION_N_SITES; i++)
        status = reuse_site(c, (enum calibration_site)i);
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
