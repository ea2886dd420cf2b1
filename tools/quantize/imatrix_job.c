/* `--method imatrix`: the sums of llama.cpp's importance matrix, in the GGUF form that llama-imatrix writes. */
#include "tools/quantize/calibrate/layers.h"
#include "tools/quantize/calibrate/samples.h"
#include "tools/quantize/gguf/pairs.h"
#include "tools/quantize/job.h"
#include "tools/quantize/writer/output.h"
#include "tools/quantize/writer/tensor_list.h"

#include "files/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGNMENT 32u

/* The inputs of one site of a layer. */
struct sums {
    uint32_t n_cols, n_matrices; /* n_cols 0: the layer has no such site */
    double *squares; /* [n_matrices, n_cols], owned */
    uint64_t *counts; /* [n_matrices]: rows, owned */
};

struct imatrix_run {
    const struct quantizer_job *job;
    struct calibration_layers *layers;
    struct calibration_samples samples;
    uint32_t layer, n_layers;
    struct sums *sums; /* [n_layers, CALIBRATION_N_SITES], owned */
    struct tensor_list list;
    struct gguf_pairs pairs;
    struct buffer head, data;
    int status; /* of the observer */
};

/* GGUF's names of a site's matrices. Those that a model stacks into one have a name of their own; a reader looks for the
 * names that its file has. */
static const struct {
    enum calibration_site site;
    bool is_expert;
    const char *name;
} names[] = {{CALIBRATION_QKV, false, "attn_q"},
             {CALIBRATION_QKV, false, "attn_k"},
             {CALIBRATION_QKV, false, "attn_v"},
             {CALIBRATION_QKV, false, "attn_qkv"},
             {CALIBRATION_O, false, "attn_output"},
             {CALIBRATION_GATE_UP, false, "ffn_gate"},
             {CALIBRATION_GATE_UP, false, "ffn_up"},
             {CALIBRATION_DOWN, false, "ffn_down"},
             {CALIBRATION_GATE_UP, true, "ffn_gate_exps"},
             {CALIBRATION_GATE_UP, true, "ffn_up_exps"},
             {CALIBRATION_DOWN, true, "ffn_down_exps"},
             {CALIBRATION_SHARED_GATE_UP, false, "ffn_gate_shexp"},
             {CALIBRATION_SHARED_GATE_UP, false, "ffn_up_shexp"},
             {CALIBRATION_SHARED_DOWN, false, "ffn_down_shexp"}};

static int no_memory(struct quire_error *err)
{
    return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

/* ---- sums --------------------------------------------------------------------------------------------------------- */

static void add_row(struct sums *s, uint32_t matrix, const float *x)
{
    double *to = s->squares + (uint64_t)matrix * s->n_cols;
    for (uint32_t i = 0; i < s->n_cols; i++)
        to[i] += (double)x[i] * (double)x[i];
    s->counts[matrix]++;
}

static void observe(void *context, const struct calibration_rows *x)
{
    struct imatrix_run *r = context;
    struct sums *s = &r->sums[(uint64_t)r->layer * CALIBRATION_N_SITES + x->site];
    if (s->n_cols == 0) {
        s->n_matrices = x->experts ? calibration_n_experts(r->layers, r->layer) : 1;
        s->squares = calloc((uint64_t)s->n_matrices * x->n_cols + 1, sizeof *s->squares);
        s->counts = calloc(s->n_matrices + 1u, sizeof *s->counts);
        s->n_cols = x->n_cols;
    }
    if (!s->squares || !s->counts) {
        r->status = QUIRE_NO_MEMORY;
        return;
    }
    const uint32_t n = x->experts ? x->n_tokens * x->n_used : x->n_tokens;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = x->experts && !x->per_choice ? i / x->n_used : i;
        if (!x->experts || x->experts[i] < s->n_matrices)
            add_row(s, x->experts ? x->experts[i] : 0, x->x + (uint64_t)row * x->n_cols);
    }
}

static int run_layers(struct imatrix_run *r, struct quire_error *err)
{
    int status = QUIRE_OK;
    for (; status == QUIRE_OK && r->layer < r->n_layers; r->layer++) {
        status = calibration_layer_begin(r->layers, r->layer, err);
        if (status == QUIRE_OK)
            status = calibration_layer_run(r->layers, observe, r, true, err);
        if (status == QUIRE_OK && (status = r->status) != QUIRE_OK)
            status = no_memory(err);
        calibration_layer_end(r->layers);
        r->job->progress(r->job->context, "layers", r->layer + 1, r->n_layers);
    }
    return status;
}

/* ---- the file ----------------------------------------------------------------------------------------------------- */

static void add_tensor(struct imatrix_run *r, const char *name, const char *suffix, const float *values,
                       const uint64_t shape[2])
{
    static const uint8_t zeros[ALIGNMENT];
    const uint64_t n = shape[0] * shape[1] * sizeof *values;
    tensor_list_add(&r->list, name, suffix, "F32", n, 2, shape);
    buffer_append(&r->data, values, n);
    buffer_append(&r->data, zeros, (ALIGNMENT - n % ALIGNMENT) % ALIGNMENT);
}

/* The two tensors of each of a site's matrices. */
static int add_site(struct imatrix_run *r, uint32_t layer, enum calibration_site site, struct quire_error *err)
{
    const struct sums *s = &r->sums[(uint64_t)layer * CALIBRATION_N_SITES + site];
    const uint64_t n = (uint64_t)s->n_matrices * s->n_cols, shape[2] = {s->n_matrices, s->n_cols},
                   counts_shape[2] = {s->n_matrices, 1};
    const bool is_expert = s->n_matrices > 1;
    if (n == 0)
        return QUIRE_OK;
    float *squares = malloc(n * sizeof *squares), *counts = malloc(s->n_matrices * sizeof *counts);
    if (!squares || !counts) {
        free(squares);
        free(counts);
        return no_memory(err);
    }
    for (uint64_t i = 0; i < n; i++)
        squares[i] = (float)s->squares[i];
    for (uint32_t i = 0; i < s->n_matrices; i++)
        counts[i] = (float)s->counts[i];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        if (names[i].site != site || names[i].is_expert != is_expert)
            continue;
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, names[i].name);
        add_tensor(r, name, ".in_sum2", squares, shape);
        add_tensor(r, name, ".counts", counts, counts_shape);
    }
    free(squares);
    free(counts);
    return QUIRE_OK;
}

static int make_file(struct imatrix_run *r, struct quire_error *err)
{
    const char *text = r->job->choices->calibration;
    int status = QUIRE_OK;
    r->list.alignment = ALIGNMENT;
    for (uint32_t l = 0; l < r->n_layers; l++)
        for (uint32_t k = 0; status == QUIRE_OK && k < CALIBRATION_N_SITES; k++)
            status = add_site(r, l, (enum calibration_site)k, err);
    gguf_pairs_text(&r->pairs, "general.type", "imatrix", strlen("imatrix"));
    gguf_pairs_array(&r->pairs, "imatrix.datasets", GGUF_STRING, 1);
    gguf_pairs_add_text(&r->pairs, text, strlen(text));
    gguf_pairs_u32(&r->pairs, "imatrix.chunk_count", r->samples.n);
    gguf_pairs_u32(&r->pairs, "imatrix.chunk_size", r->samples.length);
    if (status == QUIRE_OK)
        status = gguf_pairs_head(&r->pairs, &r->list, NULL, ALIGNMENT, &r->head, err);
    return status == QUIRE_OK && (r->list.failed || r->data.failed) ? no_memory(err) : status;
}

static int write_file(struct imatrix_run *r, struct quire_error *err)
{
    const struct key256 sums = quire_sha256(r->data.data, r->data.n);
    const struct quantizer_inputs inputs = {.head = r->head.data, .n_head = r->head.n};
    const struct quantizer_output_plan plan = {.path = r->job->out,
                                               .identity = quantizer_job_identity(r->job, &sums, &inputs),
                                               .n_bytes = r->head.n + r->data.n,
                                               .n_units = 1};
    struct quantizer_output *output = NULL;
    int status = quantizer_output_open(&plan, &output, err);
    if (status == QUIRE_OK)
        status = quantizer_output_write(output, 0, r->head.data, r->head.n, err);
    if (status == QUIRE_OK)
        status = quantizer_output_write(output, r->head.n, r->data.data, r->data.n, err);
    if (status == QUIRE_OK)
        status = quantizer_output_done(output, 0, err);
    if (status == QUIRE_OK)
        status = quantizer_output_finish(output, err);
    quantizer_output_close(output, false);
    return status;
}

/* ---- the run ------------------------------------------------------------------------------------------------------ */

static int open_run(struct imatrix_run *r, struct quire_error *err)
{
    const struct quantizer_choices *c = r->job->choices;
    const struct quantizer_method *m = r->job->method;
    if (access(r->job->out, F_OK) == 0) /* before the work, not only when the file is written */
        return quire_fail(err, QUIRE_INVALID, "%s: exists: name another output, or delete it", r->job->out);
    int status = calibration_samples_read(c->calibration, r->job->model, c->is_set.samples ? c->samples : m->samples,
                                          c->is_set.length ? c->length : m->length, &r->samples, err);
    if (status != QUIRE_OK)
        return status;
    const struct calibration_input input = {r->job->model, r->samples.ids, r->samples.n, r->samples.length,
                                            r->job->n_threads};
    status = calibration_layers_open(&input, &r->layers, err);
    if (status != QUIRE_OK)
        return status;
    r->n_layers = calibration_n_layers(r->layers);
    r->sums = calloc((uint64_t)r->n_layers * CALIBRATION_N_SITES + 1, sizeof *r->sums);
    return r->sums ? QUIRE_OK : no_memory(err);
}

int quantizer_run_imatrix(const struct quantizer_job *job, struct quantizer_report *report, struct quire_error *err)
{
    struct imatrix_run r = {.job = job};
    *report = (struct quantizer_report){0};
    int status = open_run(&r, err);
    if (status == QUIRE_OK)
        status = run_layers(&r, err);
    if (status == QUIRE_OK)
        status = make_file(&r, err);
    if (status == QUIRE_OK)
        status = write_file(&r, err);
    report->n_quantized = r.n_layers;
    for (uint64_t i = 0; r.sums && i < (uint64_t)r.n_layers * CALIBRATION_N_SITES; i++) {
        free(r.sums[i].squares);
        free(r.sums[i].counts);
    }
    free(r.sums);
    calibration_layers_close(r.layers);
    calibration_samples_free(&r.samples);
    tensor_list_free(&r.list);
    buffer_free(&r.pairs.bytes);
    buffer_free(&r.head);
    buffer_free(&r.data);
    return status;
}
