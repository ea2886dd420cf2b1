/* The choice among the rows of a table of kernels (kernels/kernel_table.h). */
#include "kernels/kernel_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

struct call {
    uint32_t n_tokens;
    uint64_t clocks[8]; /* by variant */
};

static bool takes_all(const struct k_kernel *kernel, const void *call)
{
    (void)kernel, (void)call;
    return true;
}

static bool takes_few(const struct k_kernel *kernel, const void *call)
{
    (void)kernel;
    return ((const struct call *)call)->n_tokens <= 8;
}

static uint64_t clocks(const struct k_kernel *kernel, const void *call)
{
    return ((const struct call *)call)->clocks[kernel->variant];
}

static uint64_t clocks_in_another_unit(const struct k_kernel *kernel, const void *call)
{
    (void)kernel, (void)call;
    return 0;
}

/* Rows may be longer than a struct k_kernel. */
struct row {
    struct k_kernel kernel;
    uint64_t own[3];
};
#define LANE K_FORM_BIT(K_FORM_LANE)
#define MMA K_FORM_BIT(K_FORM_MMA)
static const struct row rows[] = {
    {{"few", LANE, 1, 0, takes_few, NULL}, {0}},
    {{"a", LANE, 1, 0, takes_all, clocks}, {0}},
    {{"other unit", LANE, 1, 0, takes_all, clocks_in_another_unit}, {0}},
    {{"b", LANE, 1, 1, takes_all, clocks}, {0}},
    {{"new", LANE, 2, 2, takes_all, clocks}, {0}},
    {{"mma", MMA, 1, 3, takes_all, clocks}, {0}},
};
static const struct k_kernel_table table = K_KERNEL_TABLE(rows);

static const char *chosen(struct k_kernel_choice *choice, enum k_gemm_form form, uint32_t arch, const struct call *call,
                          uint32_t *from)
{
    const struct k_kernel *kernel = k_kernel_choose(&table, choice, form, arch, call, from);
    assert_ptr_equal(kernel, choice->last);
    return kernel ? kernel->name : "none";
}

static const char *first(enum k_gemm_form form, uint32_t arch, struct call call)
{
    struct k_kernel_choice choice = {0};
    uint32_t from = 0;
    return chosen(&choice, form, arch, &call, &from);
}

static void test_order_and_clocks(void **state)
{
    (void)state;
    assert_string_equal(first(K_FORM_LANE, 2, (struct call){8, {9, 9, 0}}), "few"); /* without clocks: at once */
    assert_string_equal(first(K_FORM_LANE, 1, (struct call){9, {5, 4, 0}}), "b");
    assert_string_equal(first(K_FORM_LANE, 1, (struct call){9, {4, 4, 0}}), "a"); /* equal: the first */
    assert_string_equal(first(K_FORM_LANE, 1, (struct call){9, {K_KERNEL_NEVER, K_KERNEL_NEVER}}), "a");
    assert_string_equal(first(K_FORM_LANE, 2, (struct call){9, {4, 5, 3}}), "new");
    assert_string_equal(first(K_FORM_MMA, 2, (struct call){9, {0, 0, 0, 7}}), "mma");
    assert_string_equal(first(K_FORM_MMA, 0, (struct call){9, {0}}), "none");
    assert_string_equal(first(K_FORM_TILE, 2, (struct call){9, {0}}), "none");
}

static void test_the_next_row(void **state)
{
    (void)state;
    struct k_kernel_choice choice = {0};
    const struct call call = {1, {5, 4, 9}};
    uint32_t from = 0;
    assert_string_equal(chosen(&choice, K_FORM_LANE, 2, &call, &from), "few");
    assert_string_equal(chosen(&choice, K_FORM_LANE, 2, &call, &from), "b");
    assert_string_equal(chosen(&choice, K_FORM_LANE, 2, &call, &from), "new");
    assert_string_equal(chosen(&choice, K_FORM_LANE, 2, &call, &from), "none");
}

static void test_a_forced_row(void **state)
{
    (void)state;
    struct k_kernel_choice choice = {.only = k_kernel_at(&table, 4)};
    struct call call = {1, {5, 4, 9}};
    uint32_t from = 0;
    assert_string_equal(chosen(&choice, K_FORM_LANE, 2, &call, &from), "new");
    assert_int_equal(choice.n_only, 1);
    from = 0;
    assert_string_equal(chosen(&choice, K_FORM_LANE, 1, &call, &from), "few"); /* the machine lacks it */
    from = 0;
    assert_string_equal(chosen(&choice, K_FORM_MMA, 2, &call, &from), "mma"); /* another form */
    choice.only = k_kernel_at(&table, 0);
    call.n_tokens = 9;
    from = 0;
    assert_string_equal(chosen(&choice, K_FORM_LANE, 1, &call, &from), "b"); /* it does not take the call */
    const struct k_kernel foreign = {"foreign", LANE, 0, 0, takes_all, NULL};
    choice.only = &foreign; /* a row of another operation's table */
    from = 0;
    assert_string_equal(chosen(&choice, K_FORM_LANE, 1, &call, &from), "b");
    assert_int_equal(choice.n_only, 1);
    assert_null(k_kernel_at(&table, 6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_clocks),
        cmocka_unit_test(test_the_next_row),
        cmocka_unit_test(test_a_forced_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
