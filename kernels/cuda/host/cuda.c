/* The backend table, open and close. */
#include "kernels/cuda/host/cublaslt.h"
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/host/graph.h"
#include "kernels/cuda/host/group.h"
#include "kernels/cuda/host/memory.h"
#include "kernels/cuda/host/open.h"
#include "kernels/cuda/host/operations.h"
#include "kernels/cuda/gemm_launch.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/planners.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table --------------------------------------------------------------------------------- */

/* A step is only the queued work: there are no workers to wake. */
static int cuda_step(struct k_backend *b, struct quire_error *err)
{
    return cuda_alive(b, err);
}

static void cuda_close(struct k_backend *b)
{
    struct cuda_backend *c = cuda_of(b);
    cuda_leave(b);
    cuda_alive(b, NULL);
    cuda_drop_recording(b);
    if (c->stream)
        cudaStreamSynchronize(c->stream);
    cublaslt_close(c->lt);
    cuda_gemm_hopper_close(c->hopper);
    cudaFree(c->arrivals_dev);
    cuda_memory_close(c);
    if (c->stream)
        cudaStreamDestroy(c->stream);
    cudaGetLastError(); /* clears errors of a dead backend's last calls */
    free(c);
}

static const struct k_kernel *cuda_kernel_at(enum k_operation operation, uint32_t i)
{
    if (operation == K_OP_GEMM || operation == K_OP_GEMM_GATED)
        return cuda_gemm_kernel_at(i);
    if (operation == K_OP_MOE_GEMM || operation == K_OP_MOE_GEMM_GATED)
        return cuda_moe_kernel_at(i);
    return operation == K_OP_ATTENTION ? cuda_attention_kernel_at(i) : NULL;
}

#define ENTRY(NAME, name, text) .name = cuda_##name,
#define WITHOUT_GRAPHS \
    .planner = &cuda_planner, .close = cuda_close, .memory = cuda_memory, .alloc = cuda_alloc, \
    .alloc_host = cuda_alloc_host, .free = cuda_free, .weight_create = cuda_weight_create, \
    .weight_destroy = cuda_weight_destroy, .supports = cuda_supports, .kernel_at = cuda_kernel_at, .join = cuda_join, \
    .leave = cuda_leave, .step_begin = cuda_step, .step_end = cuda_step, .copy_in = cuda_copy_in, \
    .copy_out = cuda_group_copy_out, .fence = cuda_fence, .wait = cuda_group_wait, K_OPERATIONS(ENTRY)
static const struct k_backend_ops cuda_ops = {
    WITHOUT_GRAPHS.graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
};
const struct k_backend_ops cuda_ops_without_graphs = {WITHOUT_GRAPHS};

/* ---- opening ----------------------------------------------------------------------------------- */

static enum k_gemm_form form_of(const struct k_backend_options *options)
{
    if (options->form != K_FORM_AUTO)
        return options->form;
    if (k_format_is_quantized(options->weight_format))
        return options->weight_format.packing == K_PACKING_PLANES ? K_FORM_LANE : K_FORM_INT8;
    return options->weight_format.kind == K_F32 ? K_FORM_LANE : K_FORM_MMA;
}

static int open_stream(struct cuda_backend *c, struct quire_error *err)
{
    cudaError_t error = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (error != cudaSuccess)
        return quire_fail(err, QUIRE_UNSUPPORTED, "GPU %d: cannot create a stream: %s", c->device,
                          cudaGetErrorString(error));
    return QUIRE_OK;
}

static int open_arrivals(struct cuda_backend *c, struct quire_error *err)
{
    const uint64_t bytes = CUDA_GEMM_ARRIVALS * sizeof *c->arrivals_dev;
    void *dev;
    int status = cuda_alloc(&c->base, bytes, &dev, err);
    if (status != QUIRE_OK)
        return status;
    c->arrivals_dev = dev;
    return cuda_check(&c->base, cudaMemsetAsync(dev, 0, bytes, c->stream), "clearing counters", err);
}

/* Opens the GEMM kernels of Hopper for the form that has them. The description names the kinds that failed their
 * trial. */
static int open_hopper(struct cuda_backend *c, struct quire_error *err)
{
    const struct cuda_gemm_means gpu = {c->n_sms, c->shared_bytes, (uint32_t)c->compute_capability, c->arrivals_dev,
                                        NULL};
    if (c->base.form != K_FORM_MMA)
        return QUIRE_OK;
    cudaError_t error = cuda_gemm_hopper_open(c->stream, &gpu, &c->hopper);
    const size_t n = strlen(c->description);
    snprintf(c->description + n, sizeof c->description - n, "%s", cuda_gemm_hopper_refusals(c->hopper));
    return cuda_check(&c->base, error, "testing the GEMM kernels", err);
}

int quire_cuda_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                    struct quire_error *err)
{
    *out = NULL;
    struct cuda_backend *c = calloc(1, sizeof *c);
    if (!c)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    c->base = (struct k_backend){.ops = &cuda_ops,
                                 .description = c->description,
                                 .n_threads = 1,
                                 .placement = c->placement,
                                 .form = form_of(options)};
    int status = QUIRE_OK;
    if (c->base.form != K_FORM_LANE && c->base.form != K_FORM_MMA && c->base.form != K_FORM_INT8)
        status = quire_fail(err, QUIRE_UNSUPPORTED, "a GPU supports the GEMM forms lane, mma and int8, not %s",
                            k_form_name(c->base.form));
    if (status == QUIRE_OK)
        status = cuda_device_open(c, options, err);
    cuda_set_thread_device(status == QUIRE_OK ? c->device : -1);
    if (status != QUIRE_OK) {
        free(c);
        return status;
    }
    status = open_stream(c, err);
    if (status == QUIRE_OK)
        status = cuda_memory_open(c, err);
    if (status == QUIRE_OK)
        status = open_arrivals(c, err);
    if (status == QUIRE_OK)
        status = open_hopper(c, err);
    if (status == QUIRE_OK && options->not_invariant && c->base.form == K_FORM_MMA) {
        status = cublaslt_open(&c->lt, err);
        c->base.gemm_library = status == QUIRE_OK ? cublaslt_version(c->lt) : NULL;
    }
    if (status != QUIRE_OK) {
        cuda_close(&c->base);
        return status;
    }
    *why = "cuda: requested";
    *out = &c->base;
    return QUIRE_OK;
}

const char quire_cuda_version[] = QUIRE_VERSION;
