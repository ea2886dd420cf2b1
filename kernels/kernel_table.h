/* The kernels of one operation as a table, and the choice among its rows. A backend has a table for each operation that
 * it computes with several kernels; `kernel_at` of kernels/backend.h lists the rows. A new kernel for one architecture
 * is one new row (docs/internals/kernels.md).
 *
 * The bits of a result depend on the form alone: every row of one form computes the same bits. kernels_test forces
 * each row in turn on every case that it takes and compares them. So the choice is only about speed.
 *
 * The first row of the form that the machine has and that takes the arguments runs. If that row estimates its clocks,
 * it competes with all rows that have the same `clocks` function, because only those estimates have one unit: the one
 * with the fewest clocks runs, and the first of several equal ones.
 *
 * Rows are constant. A choice belongs to a backend, so one thread uses it, the engine's. Nothing here allocates. */
#ifndef QUIRE_KERNELS_KERNEL_TABLE_H
#define QUIRE_KERNELS_KERNEL_TABLE_H

#include "kernels/gemm_form.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define K_FORM_BIT(form) (1u << (form))
#define K_KERNEL_NEVER UINT64_MAX /* clocks of a row that takes the arguments and is never the fastest */

/* `call` is the backend's struct of the arguments and of the device. */
struct k_kernel {
    const char *name; /* unique in its table */
    uint32_t forms; /* K_FORM_BIT of each form whose bits the kernel computes */
    uint32_t arch; /* the lowest architecture that has it, in the backend's numbers; 0: all */
    uint32_t variant; /* for the functions of rows that share them */
    bool (*takes)(const struct k_kernel *kernel, const void *call);
    uint64_t (*clocks)(const struct k_kernel *kernel, const void *call); /* NULL: none; the row's position decides */
};

/* A backend's rows start with a struct k_kernel and may continue with members of their own. */
struct k_kernel_table {
    const void *rows;
    uint32_t n_rows;
    size_t row_bytes;
};
#define K_KERNEL_TABLE(array) {(array), sizeof(array) / sizeof(array)[0], sizeof(array)[0]}

/* The state of the choices of one backend, for tests and tuners. */
struct k_kernel_choice {
    /* NULL, or a row that runs wherever its form, the machine and the arguments allow it; elsewhere the table
     * decides. */
    const struct k_kernel *only;
    const struct k_kernel *last; /* the row that was chosen last; NULL: none yet */
    uint64_t n_only; /* how often `only` was chosen */
};

/* Returns row i, or NULL past the last. */
const struct k_kernel *k_kernel_at(const struct k_kernel_table *table, uint32_t i);

/* Returns the row at position `from` or later that runs, and sets *from to the position after it: where to continue if
 * the kernel could not be launched. NULL: no row takes the arguments. */
const struct k_kernel *k_kernel_choose(const struct k_kernel_table *table, struct k_kernel_choice *choice,
                                       enum k_gemm_form form, uint32_t arch, const void *call, uint32_t *from);

#endif
