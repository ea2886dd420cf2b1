/* The first CUDA error makes the backend dead: see state.h. */
#include "kernels/cuda/host/state.h"

#include <stdio.h>

int cuda_die(struct k_backend *b, const char *what, const char *error, struct quire_error *err)
{
    struct cuda_backend *c = cuda_of(b);
    if (!c->dead) {
        c->dead = true;
        quire_fail(&c->death, QUIRE_INTERNAL,
                   "backend cuda: %s: %s; the GPU's state is lost and the engine must be restarted", what, error);
    }
    return quire_fail(err, QUIRE_INTERNAL, "%s", c->death.text);
}

int cuda_check(struct k_backend *b, cudaError_t error, const char *what, struct quire_error *err)
{
    char text[256];
    if (error == cudaSuccess)
        return QUIRE_OK;
    snprintf(text, sizeof text, "%s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    return cuda_die(b, what, text, err);
}

/* The GPU that this thread's CUDA calls use. */
static _Thread_local int device_of_thread = -1;

void cuda_set_thread_device(int device)
{
    device_of_thread = device;
}

int cuda_alive(struct k_backend *b, struct quire_error *err)
{
    struct cuda_backend *c = cuda_of(b);
    if (c->dead)
        return quire_fail(err, QUIRE_INTERNAL, "%s", c->death.text);
    if (device_of_thread == c->device)
        return QUIRE_OK;
    int status = cuda_check(b, cudaSetDevice(c->device), "choosing the GPU for a thread", err);
    if (status == QUIRE_OK)
        device_of_thread = c->device;
    return status;
}

void cuda_drop_recording(struct k_backend *b)
{
    struct cuda_backend *c = cuda_of(b);
    cudaGraph_t graph = NULL;
    if (!c->is_recording)
        return;
    c->is_recording = false;
    cudaStreamEndCapture(c->stream, &graph);
    if (graph)
        cudaGraphDestroy(graph);
    cudaGetLastError(); /* clears the error of a broken capture */
}

int cuda_eager(struct k_backend *b, const char *operation, struct quire_error *err)
{
    int status = cuda_alive(b, err);
    if (status != QUIRE_OK || !cuda_of(b)->is_recording)
        return status;
    cuda_drop_recording(b);
    return quire_fail(err, QUIRE_INVALID, "%s: cannot be recorded in a graph; the recording is dropped", operation);
}
