/* Replaces CUDA's header of this name, for g++: the runtime's functions, the language of kernels, and launches. */
#ifndef QUIRE_SIMT_CUDA_RUNTIME_H
#define QUIRE_SIMT_CUDA_RUNTIME_H

#include "tests/simt/simt.h"

#endif
