/* Kernels with one fault each, and correct versions of them, for faults_test.cc. */
#ifndef QUIRE_TESTS_SIMT_FAULTS_H
#define QUIRE_TESTS_SIMT_FAULTS_H

struct fault_case {
    const char *name;
    const char *kind; /* the emulator's name of the fault, "A|B" if it depends on the order of threads; nullptr:
                       * correct */
    void (*run)();
};

extern const struct fault_case fault_cases[];
extern const int n_fault_cases;

#endif
