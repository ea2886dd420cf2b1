/* Replaces CUDA's header of this name, for g++. */
#ifndef QUIRE_SIMT_CUDA_FP16_H
#define QUIRE_SIMT_CUDA_FP16_H

#include "tests/simt/device/half_pairs.h"

#endif
