#include "engine/model/describe.h"
#include "engine/model/model.h"
#include "engine/model/quantization/quantization.h"
#include "engine/model/quantization/row_threads.h"
#include "files/model_files.h"
#include "request/spec.h"
#include "tools/quantize/calibrate/layers.h"
#include "tools/quantize/calibrated.h"
#include "tools/quantize/methods/floats.h"
#include "tools/quantize/model_files_copy.h"
#include "tools/quantize/source.h"
#include "tools/quantize/writer/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA_NAME "model.safetensors"
#define MAX_CONFIG_BYTES ((size_t)16 << 20)

/* ---- what is written ---------------------------------------------------------------------------------------------- */

/* AWQ and SmoothQuant divide the norm before a matrix: x += block(norm(x)), or with another norm behind the block. */
static int check_norms(const struct quantizer_job *job, const struct model_config *c, struct quire_error *err)
{
    bool fits = c->n_layers > 0;
    for (uint32_t i = 0; i < c->n_layers; i++)
        for (uint32_t b = 0; b < c->layers[i].n_blocks; b++) {
            const struct model_block *block = &c->layers[i].blocks[b];
            fits = fits && block->norm == NORM_RMS && (block->place == NORM_PRE || block->place == NORM_BOTH);
        }
    if (fits || job->method->algorithm == ALGORITHM_ROUND || job->method->algorithm == ALGORITHM_GPTQ)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_UNSUPPORTED,
                      "config.json: architectures: %s: --method %s needs norms before attention and MLP: use gptq",
                      c->architecture, job->method->name);
}

static int check_plain(const struct quantizer_job *job, enum k_dtype *dtype, struct checkpoint **checkpoint,
                       struct quire_error *err)
{
    struct model_config *config;
    struct sampling_defaults sampling;
    struct checkpoint_tensor t;
    if (model_is_gguf(job->model))
        return quire_fail(
            err, QUIRE_UNSUPPORTED,
            "%.250s: is a GGUF file, and --method %s reads a directory of safetensors: use a gguf- method", job->model,
            job->method->name);
    int status = model_describe(job->model, &config, &sampling, err);
    if (status != QUIRE_OK)
        return status;
    if (config->quantization->layout != QUANTIZATION_NONE)
        status = quire_fail(err, QUIRE_INVALID, "%.250s: is already quantized (%s): use the original checkpoint",
                            job->model, quantization_name(config->quantization));
    if (status == QUIRE_OK)
        status = check_norms(job, config, err);
    model_config_free(config);
    if (status == QUIRE_OK)
        status = checkpoint_open(job->model, checkpoint, err);
    for (size_t i = 0; status == QUIRE_OK && checkpoint_at(*checkpoint, i, &t); i++)
        if (source_is_linear(&t))
            *dtype = t.format.kind;
    return status;
}

static uint64_t n_elements(const struct checkpoint_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

/* The module's name: without ".weight". */
static void module_name(const char *name, char out[TENSOR_LIST_NAME_BYTES])
{
    snprintf(out, TENSOR_LIST_NAME_BYTES, "%s", name);
    char *end = strrchr(out, '.');
    if (end && strcmp(end, ".weight") == 0)
        *end = 0;
}

/* Whether a whole tensor or a part is quantized. */
static bool is_quantized(const struct checkpoint_run *r, const struct checkpoint_tensor *t,
                         const struct experts_apart *apart)
{
    return apart ? !apart->is_bias : !r->has_blocks && source_is_linear(t);
}

static int add_quantized(struct checkpoint_run *r, const struct checkpoint_unit *u, const struct checkpoint_tensor *t,
                         struct quire_error *err)
{
    char module[TENSOR_LIST_NAME_BYTES];
    struct checkpoint_tensor matrix = *t;
    if (u->is_blocks) {
        matrix.shape[0] = t->shape[2];
        matrix.shape[1] = t->shape[1];
    }
    const struct quantizer_matrix_shape m = checkpoint_run_shape(r, &matrix);
    const char *why = quantizer_layout_refuses(&m);
    if (why)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%.100s: tensor '%.150s' [%u, %u]: %s", t->file, t->name, m.n_rows,
                          m.n_cols, why);
    module_name(u->name, module);
    if (u->is_blocks)
        quantizer_layout_add_experts(&m, (uint32_t)t->shape[0], module, &r->list);
    else
        quantizer_layout_add(&m, module, &r->list);
    r->n_weights += n_elements(t);
    r->report->n_quantized++;
    return QUIRE_OK;
}

static void add_plain(struct checkpoint_run *r, const struct checkpoint_unit *u, const struct checkpoint_tensor *t)
{
    char module[TENSOR_LIST_NAME_BYTES];
    module_name(u->name, module);
    tensor_list_add(&r->list, u->name, "", t->dtype, t->n_bytes, t->n_dims, t->shape);
    r->report->n_copied++;
    if (t->n_dims == 2 && !strstr(t->name, "embed") && strcmp(module, "lm_head") != 0) /* which is there */
        json_array_append_new(r->ignored, json_string(module));
}

/* unit: without name and items. */
static int add_unit(struct checkpoint_run *r, const struct checkpoint_unit *unit, struct quire_error *err)
{
    struct checkpoint_unit *u = &r->units[r->n_units];
    struct source_part p = {.apart = unit->apart, .expert = unit->expert, .part = unit->part};
    struct checkpoint_tensor t;
    *u = *unit;
    u->first_item = r->list.n;
    checkpoint_at(r->checkpoint, u->source, &p.tensor);
    const bool fits = u->apart ? source_part_name(&p, u->name, sizeof u->name)
                               : (size_t)snprintf(u->name, sizeof u->name, "%s", p.tensor.name) < sizeof u->name;
    if (!fits)
        return quire_fail(err, QUIRE_INVALID, "%.100s: tensor '%.150s': its name is too long", p.tensor.file,
                          p.tensor.name);
    checkpoint_run_tensor(r, r->n_units++, &t);
    r->report->source_bytes += t.n_bytes;
    int status = QUIRE_OK;
    if (u->is_quantized)
        status = add_quantized(r, u, &t, err);
    else
        add_plain(r, u, &t);
    u->n_items = r->list.n - u->first_item;
    return status;
}

/* The units of a tensor: itself, or the parts of its experts. */
static int add_units(struct checkpoint_run *r, uint32_t i, const struct checkpoint_tensor *t, struct quire_error *err)
{
    const struct experts_apart *apart = source_experts(t);
    struct checkpoint_unit unit = {.source = i, .is_quantized = is_quantized(r, t, apart)};
    int status = QUIRE_OK;
    unit.is_blocks = r->has_blocks && unit.is_quantized;
    if (!apart || r->has_blocks)
        return add_unit(r, &unit, err);
    unit.apart = apart;
    for (; status == QUIRE_OK && unit.expert < t->shape[0]; unit.expert++)
        for (unit.part = 0; status == QUIRE_OK && unit.part < apart->n_parts; unit.part++)
            status = add_unit(r, &unit, err);
    return status;
}

/* Returns the number of units at most, and looks which form of MXFP4 it is. */
static uint64_t count_units(struct checkpoint_run *r)
{
    struct checkpoint_tensor t;
    uint64_t n = 0;
    for (size_t i = 0; checkpoint_at(r->checkpoint, i, &t); i++) {
        const struct experts_apart *apart = source_experts(&t);
        n += apart ? t.shape[0] * apart->n_parts : 1;
        r->has_blocks |= apart && apart->in_turn && r->job->method->layout == LAYOUT_MXFP4;
    }
    return n;
}

static int list_units(struct checkpoint_run *r, struct quire_error *err)
{
    struct checkpoint_tensor t;
    r->units = calloc(count_units(r) + 1, sizeof *r->units);
    r->ignored = json_pack("[s]", "lm_head");
    int status = r->units && r->ignored ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (size_t i = 0; status == QUIRE_OK && checkpoint_at(r->checkpoint, i, &t); i++)
        status = add_units(r, (uint32_t)i, &t, err);
    if (status == QUIRE_OK && r->report->n_quantized == 0)
        status = quire_fail(err, QUIRE_UNSUPPORTED,
                            "%.250s: has no linear layers that can be quantized (*_proj.weight)", r->job->model);
    if (status == QUIRE_OK && r->list.failed)
        status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    r->report->bytes = r->list.n_bytes;
    return status == QUIRE_OK ? tensor_list_header(&r->list, &r->header, err) : status;
}

static int make_config(struct checkpoint_run *r, struct quire_error *err)
{
    struct buffer text = {0};
    const struct quantizer_config config = {.layout = r->job->method->layout,
                                            .method = r->job->method->name,
                                            .how = &r->how,
                                            .fp8 = r->job->method->fp8,
                                            .desc_act = r->job->choices->desc_act,
                                            .damp = r->job->choices->damp,
                                            .int8_inputs = r->job->method->algorithm == ALGORITHM_SMOOTHQUANT,
                                            .experts_only = r->has_blocks,
                                            .ignored = r->ignored};
    int status = model_file_read(r->job->model, "config.json", MAX_CONFIG_BYTES, &text, err);
    if (status == QUIRE_OK)
        status = quantizer_config_text(&config, text.data, text.n, &r->config, err);
    buffer_free(&text);
    return status;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------ */

struct rounding {
    enum quantizer_layout layout;
    const struct quantizer_integers *how;
    const float *w;
    struct quantizer_codes *codes;
};

static void round_mxfp4(const float *w, uint32_t first, uint32_t last, struct quantizer_codes *codes)
{
    for (uint64_t g = (uint64_t)first * codes->n_groups; g < (uint64_t)last * codes->n_groups; g++) {
        const float *group = w + g * QUANTIZER_MXFP4_GROUP;
        float most = 0;
        for (uint32_t i = 0; i < QUANTIZER_MXFP4_GROUP; i++)
            most = fabsf(group[i]) > most ? fabsf(group[i]) : most;
        codes->scales[g] = quantizer_mxfp4_scale(most);
        quantizer_mxfp4_round(codes->scales[g], group, QUANTIZER_MXFP4_GROUP, codes->codes + g * QUANTIZER_MXFP4_GROUP);
    }
}

static void round_rows(void *context, uint32_t share, uint32_t first, uint32_t last)
{
    const struct rounding *x = context;
    (void)share;
    if (x->layout == LAYOUT_MXFP4)
        round_mxfp4(x->w, first, last, x->codes);
    else
        quantizer_round(x->how, x->w, first, last, x->codes);
}

static void round_matrix(const struct checkpoint_run *r, const float *w, struct quantizer_codes *codes)
{
    const uint64_t n = (uint64_t)codes->n_rows * codes->n_cols;
    if (r->job->method->layout == LAYOUT_FP8) {
        float most = 0;
        for (uint64_t i = 0; i < n; i++)
            most = fabsf(w[i]) > most ? fabsf(w[i]) : most;
        codes->scales[0] = quantizer_fp8_scale(r->job->method->fp8, most);
        quantizer_fp8_round(r->job->method->fp8, codes->scales[0], w, n, codes->codes);
        return;
    }
    struct rounding x = {r->job->method->layout, &r->how, w, codes};
    row_threads_run(codes->n_rows, 1, n * 4, r->job->n_threads, round_rows, &x);
}

/* Arrays for a matrix. Free both, also after a failure. */
static int alloc_matrix(const struct checkpoint_run *r, const struct checkpoint_tensor *t, float **w,
                        struct quantizer_codes *codes, struct quire_error *err)
{
    *w = malloc((t->shape[0] * t->shape[1] + 1) * sizeof **w);
    int status = checkpoint_run_alloc_codes(r, t, codes, err);
    return status == QUIRE_OK && !*w ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory") : status;
}

static int quantize(struct checkpoint_run *r, uint32_t unit, const struct checkpoint_tensor *t, struct quire_error *err)
{
    struct quantizer_codes codes;
    float *w;
    int status = alloc_matrix(r, t, &w, &codes, err);
    if (status == QUIRE_OK)
        status = checkpoint_run_load(r, unit, w, err);
    if (status == QUIRE_OK) {
        round_matrix(r, w, &codes);
        status = checkpoint_run_write_codes(r, unit, t, &codes, err);
    }
    free(w);
    checkpoint_run_free_codes(&codes);
    return status;
}

/* Rounds all experts of a tensor, whose rows stay in the file's order. t: the tensor. */
static int quantize_blocks(struct checkpoint_run *r, uint32_t unit, const struct checkpoint_tensor *t,
                           struct quire_error *err)
{
    struct experts_apart whole = *source_experts(t);
    struct source_part p = {.tensor = *t, .apart = &whole};
    struct checkpoint_tensor matrix = *t;
    struct quantizer_codes codes;
    float *w;
    whole.n_parts = 1;
    matrix.n_dims = 2;
    matrix.shape[0] = t->shape[2];
    int status = alloc_matrix(r, &matrix, &w, &codes, err);
    for (; status == QUIRE_OK && p.expert < t->shape[0]; p.expert++) {
        status = source_part_load(&p, r->job->n_threads, w, err);
        if (status != QUIRE_OK)
            break;
        round_matrix(r, w, &codes);
        status = checkpoint_run_write_expert(r, unit, &matrix, &codes, p.expert, (uint32_t)t->shape[0], err);
    }
    free(w);
    checkpoint_run_free_codes(&codes);
    return status == QUIRE_OK ? quantizer_output_done(r->output, unit, err) : status;
}

static int write_plain(struct checkpoint_run *r, uint32_t unit, const struct checkpoint_tensor *t,
                       struct quire_error *err)
{
    const struct checkpoint_unit *u = &r->units[unit];
    if (!u->apart)
        return checkpoint_run_write_plain(r, unit, t->data, err);
    struct source_part p = {.apart = u->apart, .expert = u->expert, .part = u->part};
    uint8_t *bias = malloc(t->n_bytes + 1);
    if (!bias)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    checkpoint_at(r->checkpoint, u->source, &p.tensor);
    source_part_bias(&p, bias);
    int status = checkpoint_run_write_plain(r, unit, bias, err);
    free(bias);
    return status;
}

static int write_unit(struct checkpoint_run *r, uint32_t i, struct quire_error *err)
{
    struct checkpoint_tensor t;
    const struct checkpoint_unit *u = &r->units[i];
    int status = QUIRE_OK;
    checkpoint_run_tensor(r, i, &t);
    if (!quantizer_output_has(r->output, i))
        status = (u->is_blocks ? quantize_blocks : u->is_quantized ? quantize : write_plain)(r, i, &t, err);
    if (u->is_quantized && r->job->method->algorithm == ALGORITHM_ROUND)
        r->job->progress(r->job->context, "weights", r->done_weights += n_elements(&t), r->n_weights);
    checkpoint_drop_pages(r->checkpoint);
    return status;
}

/* ---- the run ------------------------------------------------------------------------------------------------------ */

static int write_all(struct checkpoint_run *r, struct quire_error *err)
{
    const struct key256 source = checkpoint_digest(r->checkpoint, false);
    struct quantizer_inputs inputs = {.head = r->header.data, .n_head = r->header.n, .ids = r->samples.ids};
    enum k_gemm_form form = K_FORM_LANE;
    int status = r->job->method->algorithm == ALGORITHM_ROUND ? QUIRE_OK : calibration_form(&form, err);
    inputs.n_ids = (uint64_t)r->samples.n * r->samples.length;
    inputs.form = form;
    const struct quantizer_output_plan plan = {.path = r->job->out,
                                               .data_name = DATA_NAME,
                                               .identity = quantizer_job_identity(r->job, &source, &inputs),
                                               .n_bytes = r->header.n + r->list.n_bytes,
                                               .n_units = r->n_units};
    if (status == QUIRE_OK)
        status = quantizer_output_open(&plan, &r->output, err);
    if (status == QUIRE_OK)
        status = model_files_copy(r->job->model, r->output, err);
    if (status == QUIRE_OK)
        status = quantizer_output_file(r->output, "config.json", r->config.data, r->config.n, err);
    if (status == QUIRE_OK)
        status = quantizer_output_write(r->output, 0, r->header.data, r->header.n, err);
    if (status == QUIRE_OK && r->job->method->algorithm != ALGORITHM_ROUND)
        status = quantizer_calibrated(r, err);
    for (uint32_t i = 0; status == QUIRE_OK && i < r->n_units; i++)
        status = write_unit(r, i, err);
    return status == QUIRE_OK ? quantizer_job_finish(r->job, r->output, err) : status;
}

int quantizer_run_checkpoint(const struct quantizer_job *job, struct quantizer_report *report, struct quire_error *err)
{
    struct checkpoint_run r = {.job = job, .report = report, .how = job->how};
    enum k_dtype dtype = K_F32;
    *report = (struct quantizer_report){0};
    int status = check_plain(job, &dtype, &r.checkpoint, err);
    if (status == QUIRE_OK) {
        if (job->method->layout == LAYOUT_PACKED || job->method->layout == LAYOUT_INTS)
            r.how.scale = dtype;
        status = list_units(&r, err);
    }
    if (status == QUIRE_OK)
        status = make_config(&r, err);
    if (status == QUIRE_OK && job->method->algorithm != ALGORITHM_ROUND)
        status = calibration_samples_read(job->choices->calibration, job->model,
                                          job->choices->is_set.samples ? job->choices->samples : job->method->samples,
                                          job->choices->is_set.length ? job->choices->length : job->method->length,
                                          &r.samples, err);
    if (status == QUIRE_OK)
        status = write_all(&r, err);
    quantizer_output_close(r.output, false);
    tensor_list_free(&r.list);
    buffer_free(&r.header);
    buffer_free(&r.config);
    calibration_samples_free(&r.samples);
    json_decref(r.ignored);
    checkpoint_close(r.checkpoint);
    free(r.units);
    return status;
}
