/* Calibration samples: tokens of a text file, or of the field "text" of each line of a JSONL file. One thread. */
#ifndef QUIRE_TOOLS_QUANTIZE_SAMPLES_H
#define QUIRE_TOOLS_QUANTIZE_SAMPLES_H

#include "base/status.h"

#include <stdint.h>

struct calibration_samples {
    uint32_t *ids; /* [n, length], owned */
    uint32_t n, length;
};

/* Reads the first n windows of `length` tokens, which follow each other; fewer if the text ends. A name that ends in
 * ".jsonl" is JSONL; its texts are joined by newlines. QUIRE_INVALID: the text is empty, not UTF-8, or has less than one
 * window. */
int calibration_samples_read(const char *path, const char *model, uint32_t n, uint32_t length,
                             struct calibration_samples *out, struct quire_error *err);
void calibration_samples_free(struct calibration_samples *s);

#endif
