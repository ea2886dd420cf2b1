/* The inputs and the computations of quire bench. */
#include "tests/tools/bench_test.h"

int main(void)
{
    return run_metrics_tests() + run_sse_tests() + run_workload_tests() + run_inputs_tests() + run_cost_file_tests() +
           run_cost_fit_tests() + run_bench_pairs_tests();
}
