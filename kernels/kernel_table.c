#include "kernels/kernel_table.h"

const struct k_kernel *k_kernel_at(const struct k_kernel_table *table, uint32_t i)
{
    const unsigned char *rows = table->rows;
    return i < table->n_rows ? (const struct k_kernel *)(const void *)(rows + i * table->row_bytes) : NULL;
}

/* What a choice is made for. */
struct asked {
    enum k_gemm_form form;
    uint32_t arch;
    const void *call;
};

static bool takes(const struct k_kernel *kernel, const struct asked *asked)
{
    return (kernel->forms & K_FORM_BIT(asked->form)) && kernel->arch <= asked->arch &&
           kernel->takes(kernel, asked->call);
}

/* Returns the position of the row that the table chooses, or n_rows. */
static uint32_t fastest(const struct k_kernel_table *table, uint32_t from, const struct asked *asked)
{
    uint32_t best = from;
    while (best < table->n_rows && !takes(k_kernel_at(table, best), asked))
        best++;
    const struct k_kernel *first = k_kernel_at(table, best);
    if (!first || !first->clocks)
        return best;
    uint64_t fewest = first->clocks(first, asked->call);
    for (uint32_t i = best + 1; i < table->n_rows; i++) {
        const struct k_kernel *kernel = k_kernel_at(table, i);
        if (kernel->clocks != first->clocks || !takes(kernel, asked))
            continue;
        const uint64_t clocks = kernel->clocks(kernel, asked->call);
        if (clocks < fewest) {
            fewest = clocks;
            best = i;
        }
    }
    return best;
}

static uint32_t position_of(const struct k_kernel_table *table, const struct k_kernel *kernel)
{
    uint32_t i = 0;
    while (i < table->n_rows && k_kernel_at(table, i) != kernel)
        i++;
    return i;
}

const struct k_kernel *k_kernel_choose(const struct k_kernel_table *table, struct k_kernel_choice *choice,
                                       enum k_gemm_form form, uint32_t arch, const void *call, uint32_t *from)
{
    const struct asked asked = {form, arch, call};
    uint32_t i = table->n_rows;
    if (choice->only)
        i = position_of(table, choice->only);
    const bool is_forced = i < table->n_rows && i >= *from && takes(choice->only, &asked);
    if (!is_forced)
        i = fastest(table, *from, &asked);
    *from = i + 1;
    choice->n_only += is_forced;
    choice->last = k_kernel_at(table, i);
    return choice->last;
}
