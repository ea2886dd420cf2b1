/* How often a similar question's answer would be right, at each threshold. Pure. */
#ifndef QUIRE_TOOLS_CALIBRATION_H
#define QUIRE_TOOLS_CALIBRATION_H

#include "server/similar/guards.h"

#include <stdbool.h>
#include <stddef.h>

#define CALIBRATION_STEPS 1000 /* thresholds are 0, 0.001, … 1 */

struct calibration_pair {
    double similarity; /* cosine */
    bool same;
    enum guard guard; /* that turns it down */
};

struct calibration_point {
    size_t n_answered, n_wrong;
};
struct calibration {
    size_t n_pairs, n_same;
    struct calibration_point points[2][CALIBRATION_STEPS + 1]; /* without guards, with */
};

void calibrate(const struct calibration_pair *pairs, size_t n, struct calibration *out);

/* Of what was answered, the share that was right; 1 where nothing was. */
double calibration_precision(const struct calibration_point *p);
/* Of those that ask the same, the share that was answered; 0 where there are none. */
double calibration_recall(const struct calibration *c, const struct calibration_point *p);

/* Of the lowest threshold at which something is answered and at least this share of it is right, the highest that
 * answers as much, for what was not among the pairs; in steps. -1: there is none. */
int calibration_threshold(const struct calibration *c, bool guarded, double precision);

#endif
