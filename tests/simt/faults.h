/* Kernels with a fault each and their right twins, for faults_test.cc. */
#ifndef QUIRE_TESTS_SIMT_FAULTS_H
#define QUIRE_TESTS_SIMT_FAULTS_H

struct fault_case {
    const char *name;
    const char *kind; /* what the emulator calls it, "A|B" where that depends on the order of threads; nullptr: right */
    void (*run)();
};

extern const struct fault_case fault_cases[];
extern const int n_fault_cases;

#endif
