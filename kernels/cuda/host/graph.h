/* Recorded steps: members of the backend table. One thread, the engine's. */
#ifndef QUIRE_KERNELS_CUDA_GRAPH_H
#define QUIRE_KERNELS_CUDA_GRAPH_H

#include "kernels/cuda/host/state.h"

int cuda_graph_begin(struct k_backend *b, struct quire_error *err);
int cuda_graph_end(struct k_backend *b, struct k_graph **out, struct quire_error *err);
int cuda_graph_launch(struct k_backend *b, struct k_graph *graph, struct quire_error *err);
void cuda_graph_destroy(struct k_backend *b, struct k_graph *graph);

#endif
