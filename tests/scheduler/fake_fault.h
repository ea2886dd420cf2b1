/* Errors that the fake engine plants, to show that its oracle finds them. */
#ifndef QUIRE_TESTS_SCHEDULER_FAKE_FAULT_H
#define QUIRE_TESTS_SCHEDULER_FAKE_FAULT_H

enum fake_fault {
    FAULT_NONE = 0,
    FAULT_KV,     /* one word of the block store is wrong */
    FAULT_TOKEN,  /* one result differs from the model's */
    FAULT_SKIP,   /* one row is launched but not computed */
    FAULT_RETIRE, /* one sequence is treated as alive after it was retired */
    FAULT_MOVE,   /* one block is not loaded from the host tier */
    FAULT_PIN,    /* one pin is dropped early */
    FAULT_TENANT, /* one prompt is counted for another tenant */
    FAULT_DRAFT,  /* one wrong draft is accepted */
    FAULT_ORDER,  /* one sequence is treated as having arrived before earlier ones */
    N_FAULTS
};

#endif
