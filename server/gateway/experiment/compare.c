#include "server/gateway/experiment/compare.h"

#include <math.h>

#define MAX_Z 1e6
#define N_STEPS 200

static const double effects[] = {0.02, 0.05, 0.1, 0.2, 0.5, 1};
#define N_EFFECTS (sizeof effects / sizeof *effects)

static struct compare_arm describe(const struct trial_sums *s)
{
    struct compare_arm a = {.n = (double)s->all.n};
    double squares = 0;
    if (s->all.n == 0)
        return a;
    a.mean = (double)s->all.sum / a.n;
    const double spread = (double)s->squares - (double)s->all.sum * a.mean;
    a.deviation = s->all.n > 1 && spread > 0 ? sqrt(spread / (a.n - 1)) : 0;
    for (size_t b = 0; b < ASSIGN_BUCKETS; b++)
        squares += (double)s->buckets[b].n * (double)s->buckets[b].n;
    a.n_buckets = squares > 0 ? a.n * a.n / squares : 0;
    return a;
}

/* Variance of the mean, with deviations from m. No bucket has all requests. */
static double jackknife(const struct trial_sums *s, double m)
{
    double sum = 0, n_buckets = 0;
    for (size_t b = 0; b < ASSIGN_BUCKETS; b++) {
        const struct trial_cell *c = &s->buckets[b];
        if (c->n == 0)
            continue;
        const double d = ((double)c->sum - m * (double)c->n) / (double)(s->all.n - c->n);
        sum += d * d;
        n_buckets++;
    }
    return sum * (n_buckets - 1) / n_buckets;
}

static double common_mean(const struct trial_sums *a, const struct trial_sums *b)
{
    return ((double)a->all.sum + (double)b->all.sum) / ((double)a->all.n + (double)b->all.n);
}

/* V of the header. */
static double variance(const struct trial_sums *a, const struct trial_sums *b)
{
    const double n = (double)a->all.n, m = (double)b->all.n, common = common_mean(a, b);
    const double own = jackknife(a, (double)a->all.sum / n) + jackknife(b, (double)b->all.sum / m);
    const double request = (n * n * jackknife(a, common) + m * m * jackknife(b, common)) / (n + m);
    return fmax(own, request * (1 / n + 1 / m));
}

/* ln L for D = z sqrt(v). */
static double log_ratio(double z, double v, double scale)
{
    double logs[N_EFFECTS], most = -INFINITY, sum = 0;
    for (size_t i = 0; i < N_EFFECTS; i++) {
        const double t = effects[i] * scale, part = t * t / (v + t * t);
        logs[i] = 0.5 * log1p(-part) + 0.5 * z * z * part;
        most = fmax(most, logs[i]);
    }
    for (size_t i = 0; i < N_EFFECTS; i++)
        sum += exp(logs[i] - most);
    return most + log(sum / N_EFFECTS);
}

/* The z at which L is 1 / alpha: L grows with z. */
static double threshold(double alpha, double v, double scale)
{
    double low = 0, high = MAX_Z;
    for (int i = 0; i < N_STEPS; i++) {
        const double z = 0.5 * (low + high);
        if (log_ratio(z, v, scale) < -log(alpha))
            low = z;
        else
            high = z;
    }
    return high;
}

void compare_sums(const struct trial_sums *control, const struct trial_sums *arm, double alpha,
                  struct compare_result *out)
{
    *out = (struct compare_result){.control = describe(control), .arm = describe(arm), .p = 1};
    const struct compare_arm *c = &out->control, *a = &out->arm;
    if (c->n < COMPARE_MIN_REQUESTS || a->n < COMPARE_MIN_REQUESTS || c->n_buckets < COMPARE_MIN_BUCKETS ||
        a->n_buckets < COMPARE_MIN_BUCKETS)
        return;
    const double v = variance(control, arm), scale = fabs(common_mean(control, arm));
    out->is_valid = true;
    out->difference = a->mean - c->mean;
    out->low = out->high = out->difference;
    if (!(v > 0)) /* every value is the same: the arms cannot differ */
        return;
    out->error = sqrt(v);
    out->p = fmin(1, exp(-log_ratio(fabs(out->difference) / out->error, v, scale)));
    const double half = threshold(alpha, v, scale) * out->error;
    out->low = out->difference - half;
    out->high = out->difference + half;
}
