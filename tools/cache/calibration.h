/* How often a similar question's answer is correct, at each threshold. Pure; any thread. */
#ifndef QUIRE_TOOLS_CALIBRATION_H
#define QUIRE_TOOLS_CALIBRATION_H

#include "server/similar/guards.h"

#include <stdbool.h>
#include <stddef.h>

#define CALIBRATION_STEPS 1000 /* thresholds are 0, 0.001, … 1 */

struct calibration_pair {
    double similarity; /* cosine */
    bool same;
    enum guard guard; /* the guard that rejects it */
};

struct calibration_point {
    size_t n_answered, n_wrong;
};
struct calibration {
    size_t n_pairs, n_same;
    struct calibration_point points[2][CALIBRATION_STEPS + 1]; /* without guards, with guards */
};

void calibrate(const struct calibration_pair *pairs, size_t n, struct calibration *out);

/* Share of correct answers among those served; 1 if none was served. */
double calibration_precision(const struct calibration_point *p);
/* Share of served answers among pairs with the same answer; 0 if there are no such pairs. */
double calibration_recall(const struct calibration *c, const struct calibration_point *p);

/* Finds the lowest threshold at which answers are served and at least this share is correct. Returns, in steps, the
 * highest threshold that serves as many, as a margin for other questions. -1: no threshold qualifies. */
int calibration_threshold(const struct calibration *c, bool guarded, double precision);

/* Number of answers, none of them wrong, that shows a precision of at least this (below 1) with 95 % confidence. */
size_t calibration_answers_needed(double precision);

#endif
