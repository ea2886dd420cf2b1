/* quire sim without its command line. */
#include "tests/sim/sim_test.h"

#include "base/hash.h"

int main(void)
{
    if (quire_hash_init() != 0)
        return 1;
    return run_sim_workload_tests() + run_sim_watch_tests() + run_sim_run_tests();
}
