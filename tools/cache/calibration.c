#include "tools/cache/calibration.h"

#include <math.h>
#include <string.h>

/* The highest threshold that the pair reaches, with the same comparison as in the cache; -1: none. */
static int step_of(double similarity)
{
    int step = -1;
    if (similarity >= 0)
        step = similarity >= 1 ? CALIBRATION_STEPS : (int)(similarity * CALIBRATION_STEPS);
    while (step < CALIBRATION_STEPS && similarity >= (step + 1) / (double)CALIBRATION_STEPS)
        step++;
    while (step >= 0 && !(similarity >= step / (double)CALIBRATION_STEPS))
        step--;
    return step;
}

void calibrate(const struct calibration_pair *pairs, size_t n, struct calibration *out)
{
    memset(out, 0, sizeof *out);
    out->n_pairs = n;
    for (size_t i = 0; i < n; i++) {
        int step = step_of(pairs[i].similarity);
        out->n_same += pairs[i].same;
        for (int guarded = 0; guarded < 2 && step >= 0; guarded++) {
            if (guarded && pairs[i].guard != GUARD_NONE)
                continue;
            out->points[guarded][step].n_answered++;
            out->points[guarded][step].n_wrong += !pairs[i].same;
        }
    }
    for (int guarded = 0; guarded < 2; guarded++)
        for (int step = CALIBRATION_STEPS; step-- > 0;) {
            out->points[guarded][step].n_answered += out->points[guarded][step + 1].n_answered;
            out->points[guarded][step].n_wrong += out->points[guarded][step + 1].n_wrong;
        }
}

double calibration_precision(const struct calibration_point *p)
{
    return p->n_answered ? (double)(p->n_answered - p->n_wrong) / (double)p->n_answered : 1;
}

double calibration_recall(const struct calibration *c, const struct calibration_point *p)
{
    return c->n_same ? (double)(p->n_answered - p->n_wrong) / (double)c->n_same : 0;
}

int calibration_threshold(const struct calibration *c, bool guarded, double precision)
{
    const struct calibration_point *p = c->points[guarded];
    int step = 0;
    while (step <= CALIBRATION_STEPS && (p[step].n_answered == 0 || calibration_precision(&p[step]) < precision))
        step++;
    if (step > CALIBRATION_STEPS)
        return -1;
    while (step < CALIBRATION_STEPS && p[step + 1].n_answered == p[step].n_answered)
        step++;
    return step;
}

size_t calibration_answers_needed(double precision)
{
    return precision > 0 ? (size_t)ceil(log(0.05) / log(precision)) : 0;
}
