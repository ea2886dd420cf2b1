/* Whether two arms differ by more than noise, at any time and however often someone looks. Pure.
 *
 * Estimate: the difference D of the arms' means over requests (sum / number, a ratio).
 *
 * Noise: the variance V of D by the delete-one jackknife over the 256 buckets of units, for which requests of one user need not
 * be independent: sum over buckets of ((s_b - m n_b) / (N - n_b))^2 × (B - 1) / B for an arm with mean m, N requests, and n_b
 * requests with sum s_b in bucket b. V is the larger of two estimates: each arm around its own mean, and both arms around the
 * common mean with one variance for a request. The second one is right if the arms are equal, also where a small arm has
 * seen no error or no slow request yet; the first one if only their means are equal.
 *
 * Test: the mixture sequential probability ratio test (mSPRT) of Johari, Koomen, Pekelis, Walsh, "Peeking at A/B Tests", KDD
 * 2017 (doi 10.1145/3097983.3097992), and "Always Valid Inference", Operations Research 70(3), 2022: for a normal prior of
 * the true difference with standard deviation t, the likelihood ratio against "no difference" is
 *
 *     L(t) = sqrt(V / (V + t^2)) exp(D^2 t^2 / (2 V (V + t^2)))
 *
 * L here is the mean of L(t) over t = 2, 5, 10, 20, 50 and 100 % of the common mean. p = 1 / L is valid at every time: if the
 * arms are equal, the chance that p ever falls to a or below is at most a, for estimates whose increments are normal and
 * independent. Five looks stay below it for any dependence: p <= 0.05 needs |D| > 3 sqrt(V).
 */
#ifndef QUIRE_GATEWAY_COMPARE_H
#define QUIRE_GATEWAY_COMPARE_H

#include "server/gateway/experiment/trial.h"

/* Below these, the estimates are not normal enough, and no p is computed. */
#define COMPARE_MIN_REQUESTS 100
#define COMPARE_MIN_BUCKETS 16 /* N^2 / sum of n_b^2, for each arm */

struct compare_arm {
    double n, mean, deviation; /* of requests */
    double n_buckets; /* N^2 / sum of n_b^2: 1 if one user makes all requests */
};

struct compare_result {
    struct compare_arm control, arm;
    bool is_valid; /* the rest is set */
    double difference; /* arm - control */
    double error;  /* sqrt(V) */
    double p;
    double low, high; /* contains the true difference with 1 - alpha, at every time */
};

/* alpha: in (0, 1). */
void compare_sums(const struct trial_sums *control, const struct trial_sums *arm, double alpha,
                  struct compare_result *out);

#endif
