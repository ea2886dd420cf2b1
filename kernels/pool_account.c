#include "kernels/pool_account.h"

/* The account holds savings of up to CREDIT_NS, a few time slices. When they are spent, threads are excluded for HOLDS
 * times the uncovered cost of the last wait, at least HOLD_NS. The time doubles if the previous exclusion was recent,
 * up to MAX_HOLD_NS. Afterwards the account restarts with TRIAL_NS, less than a slice, so a failed trial costs one
 * stop, in about a hundredth of the time. */
#define CREDIT_NS 10000000
#define TRIAL_NS 1000000
#define HOLDS 50u
#define HOLD_NS 20000000u
#define MAX_HOLD_NS 1000000000u

void pool_account_open(struct pool_account *a, uint32_t n_threads)
{
    *a = (struct pool_account){
        .n_threads = n_threads, .n_asked = n_threads, .balance_ns = TRIAL_NS, .hold_ns = HOLD_NS};
}

void pool_account_enter(struct pool_account *a, uint64_t saved_ns, uint64_t waited_ns, uint64_t now_ns)
{
    a->balance_ns += (int64_t)saved_ns - (int64_t)waited_ns;
    if (a->balance_ns >= CREDIT_NS) {
        a->balance_ns = CREDIT_NS;
        if (a->n_asked == a->n_threads)
            a->hold_ns = HOLD_NS;
    }
    if (a->balance_ns >= 0 || a->n_asked == 1)
        return;
    a->n_asked -= a->n_asked < 8 ? 1 : a->n_asked / 4;
    uint64_t hold = HOLDS * (uint64_t)-a->balance_ns;
    hold = hold > a->hold_ns ? hold : a->hold_ns;
    hold = hold < MAX_HOLD_NS ? hold : MAX_HOLD_NS;
    a->balance_ns = TRIAL_NS;
    a->hold_until_ns = now_ns + hold;
    a->hold_ns = 2 * hold;
}

void pool_account_try(struct pool_account *a, uint64_t now_ns)
{
    if (now_ns < a->hold_until_ns)
        return;
    uint32_t more = a->n_asked < 6 ? 1 : a->n_asked / 3;
    a->n_asked = a->n_threads - a->n_asked < more ? a->n_threads : a->n_asked + more;
    if (a->balance_ns > TRIAL_NS)
        a->balance_ns = TRIAL_NS;
    a->hold_until_ns = now_ns + HOLD_NS;
}
