/* The arm of a user or a request in an experiment. Pure: the same name, arms, weights and unit give the same arm in every
 * process, and others can compute it.
 *
 * Weighted rendezvous hashing: for each arm,
 *
 *     h = the first 8 bytes of SHA-256("EXPERIMENT\nARM\nUNIT"), big-endian
 *     u = (h / 2^11, rounded down, + 0.5) / 2^53         in (0, 1)
 *     score = -ln(u) / weight                            the smallest one wins; of two equal ones, the first
 *
 * An arm with weight w gets w of the sum of all weights. A unit moves only to an arm whose weight grew against the others, or
 * from one whose weight shrank: no other assignment moves fewer. The experiment's name is hashed, so that experiments do not
 * share their split.
 *
 * The bucket of a unit is the first byte of SHA-256("EXPERIMENT\n\nUNIT"): it does not depend on the arm.
 */
#ifndef QUIRE_GATEWAY_ASSIGN_H
#define QUIRE_GATEWAY_ASSIGN_H

#include "server/gateway/file/experiment.h"

#include <stddef.h>
#include <stdint.h>

#define ASSIGN_BUCKETS 256

/* name: of the experiment. unit: n bytes. Returns the index of the arm. */
uint32_t assign_arm(const struct gateway_experiment *e, const char *name, const char *unit, size_t n);
uint32_t assign_bucket(const char *name, const char *unit, size_t n);

#endif
