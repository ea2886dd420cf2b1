/* Recorded steps, by capturing the stream. Captures only this thread's calls (thread-local mode), so other backends of
 * the process can continue. */
#include "kernels/cuda/host/graph.h"

#include <stdlib.h>

struct k_graph {
    cudaGraphExec_t exec;
};

int cuda_graph_begin(struct k_backend *b, struct quire_error *err)
{
    struct cuda_backend *c = cuda_of(b);
    int status = cuda_eager(b, "graph_begin", err);
    if (status == QUIRE_OK)
        status = cuda_check(b, cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal), "graph_begin", err);
    c->is_recording = c->is_recording || status == QUIRE_OK;
    return status;
}

int cuda_graph_end(struct k_backend *b, struct k_graph **out, struct quire_error *err)
{
    struct cuda_backend *c = cuda_of(b);
    cudaGraph_t recorded = NULL;
    *out = NULL;
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK)
        return status;
    if (!c->is_recording)
        return quire_fail(err, QUIRE_INVALID, "graph_end: nothing is being recorded");
    struct k_graph *graph = calloc(1, sizeof *graph);
    if (!graph) {
        cuda_drop_recording(b);
        return quire_fail(err, QUIRE_NO_MEMORY, "graph_end: out of memory");
    }
    c->is_recording = false;
    cudaError_t error = cudaStreamEndCapture(c->stream, &recorded);
    if (error == cudaSuccess)
        error = cudaGraphInstantiate(&graph->exec, recorded, 0);
    if (error == cudaSuccess) /* now instead of with the first step */
        error = cudaGraphUpload(graph->exec, c->stream);
    if (recorded)
        cudaGraphDestroy(recorded);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* a shortage is not fatal to the backend */
        status = quire_fail(err, QUIRE_NO_MEMORY, "graph_end: the GPU has no memory for the graph");
    } else {
        status = cuda_check(b, error, "graph_end", err);
    }
    if (status != QUIRE_OK) {
        cuda_graph_destroy(b, graph);
        return status;
    }
    *out = graph;
    return QUIRE_OK;
}

int cuda_graph_launch(struct k_backend *b, struct k_graph *graph, struct quire_error *err)
{
    int status = cuda_eager(b, "graph_launch", err);
    if (status == QUIRE_OK)
        status = cuda_check(b, cudaGraphLaunch(graph->exec, cuda_of(b)->stream), "graph_launch", err);
    return status;
}

void cuda_graph_destroy(struct k_backend *b, struct k_graph *graph)
{
    if (!graph)
        return;
    cuda_alive(b, NULL);
    if (graph->exec)
        cudaGraphExecDestroy(graph->exec);
    free(graph);
}
