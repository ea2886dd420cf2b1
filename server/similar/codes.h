/* From vectors to the codes that scan.h compares. Pure; any thread. */
#ifndef QUIRE_SIMILAR_CODES_H
#define QUIRE_SIMILAR_CODES_H

#include "server/similar/scan.h"

/* Turns a vector by a fixed orthogonal matrix: signs, Hadamard's matrix on blocks of 64, and an order in which each stage
 * has as much of every block. So a vector's length is spread evenly over the stages, whatever its embedder put where. out:
 * n_stages · SCAN_DIMS numbers. */
void codes_turn(const float *vector, uint32_t n_dims, uint32_t n_stages, float *out);

/* The codes of a turned vector into row `row` of a block of `capacity` rows: stage by stage, in tiles. rest: capacity
 * numbers for each stage. */
void codes_put(const float *turned, uint32_t n_stages, uint32_t row, uint32_t capacity, uint8_t *codes, float *rest,
               float *scale);

/* The same of a question. codes: n_stages · SCAN_DIMS, which steps[] point into. */
void codes_of_query(const float *turned, uint32_t n_stages, int8_t *codes, struct scan_step *steps);
#endif
