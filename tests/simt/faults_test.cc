/* Checks that the emulator finds each fault of faults.cu, and no fault in the correct kernels, in any order of
 * threads. */
#include <stdio.h>

#include "tests/simt/faults.h"
#include "tests/simt/simt.h"

static bool has_kind(const std::vector<std::string> &faults, const std::string &kinds)
{
    for (const std::string &f : faults)
        if (("|" + kinds + "|").find("|" + f.substr(0, f.find(' ')) + "|") != std::string::npos)
            return true;
    return false;
}

int main()
{
    static const char *const order_names[] = {"forward", "reverse", "random"};
    int n_bad = 0;
    for (simt::order = simt::ORDER_FORWARD; simt::order <= simt::ORDER_RANDOM; simt::order++) {
        for (int i = 0; i < n_fault_cases; i++) {
            const fault_case &c = fault_cases[i];
            c.run();
            std::vector<std::string> faults = simt::take_faults();
            bool is_right = c.kind ? has_kind(faults, c.kind) : faults.empty();
            printf("%-4s %-7s %-52s %s\n", is_right ? "ok" : "FAIL", order_names[simt::order], c.name,
                   c.kind ? c.kind : "no fault");
            for (size_t k = 0; !is_right && k < faults.size() && k < 5; k++)
                printf("     %s\n", faults[k].c_str());
            n_bad += !is_right;
        }
    }
    printf("%d cases, %d not as expected\n", 3 * n_fault_cases, n_bad);
    return n_bad != 0;
}
