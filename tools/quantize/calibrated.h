/* The matrices of a method that needs calibration: GPTQ, AWQ, SmoothQuant. */
#ifndef QUIRE_TOOLS_QUANTIZE_CALIBRATED_H
#define QUIRE_TOOLS_QUANTIZE_CALIBRATED_H

#include "tools/quantize/checkpoint_run.h"

/* Writes all matrices of the layers, and the norms before them that the method changes: layer by layer, each with the
 * activations that the quantized layers before it give. The caller's thread. */
int quantizer_calibrated(struct checkpoint_run *r, struct quire_error *err);

#endif
