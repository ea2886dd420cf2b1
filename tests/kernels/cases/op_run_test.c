/* Runs cases on a backend that fails at one call after another, or that writes where it must not. Each run must return
 * the failure with a message and free all memory of the backend. */
#include "kernels/args/rows.h"
#include "kernels/cases/op_run.h"
#include "kernels/open.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct k_backend_ops *real;
static uint32_t calls_left; /* the call after these fails */
static int n_live; /* allocations and weights */

static int may_call(struct quire_error *err)
{
    return calls_left-- > 0 ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "the backend is full");
}

static int failing_alloc(struct k_backend *b, uint64_t bytes, void **dev, struct quire_error *err)
{
    int status = may_call(err);
    if (status == QUIRE_OK)
        status = real->alloc(b, bytes, dev, err);
    n_live += status == QUIRE_OK;
    return status;
}

static int failing_alloc_host(struct k_backend *b, uint64_t bytes, void **host, struct quire_error *err)
{
    int status = may_call(err);
    if (status == QUIRE_OK)
        status = real->alloc_host(b, bytes, host, err);
    n_live += status == QUIRE_OK;
    return status;
}

static void counted_free(struct k_backend *b, void *dev)
{
    n_live -= dev != NULL;
    real->free(b, dev);
}

static int failing_weight_create(struct k_backend *b, const struct k_weight_view *parts, uint32_t n_experts,
                                 uint32_t n_parts, struct k_weight **out, struct quire_error *err)
{
    int status = may_call(err);
    if (status == QUIRE_OK)
        status = real->weight_create(b, parts, n_experts, n_parts, out, err);
    n_live += status == QUIRE_OK;
    return status;
}

static void counted_weight_destroy(struct k_backend *b, struct k_weight *w)
{
    n_live -= 1;
    real->weight_destroy(b, w);
}

static int failing_copy_in(struct k_backend *b, void *dst, const void *src, uint64_t bytes, struct quire_error *err)
{
    int status = may_call(err);
    return status == QUIRE_OK ? real->copy_in(b, dst, src, bytes, err) : status;
}

static int failing_copy_out(struct k_backend *b, void *dst, const void *src, uint64_t bytes, struct quire_error *err)
{
    int status = may_call(err);
    return status == QUIRE_OK ? real->copy_out(b, dst, src, bytes, err) : status;
}

/* Writes one byte in front of its output. */
static int overrunning_gather(struct k_backend *b, const struct k_gather_args *a, struct quire_error *err)
{
    ((unsigned char *)a->out_dev)[-1] ^= 1;
    return real->gather(b, a, err);
}

static struct k_backend *open_failing(struct k_backend_ops *ops)
{
    const struct k_backend_options options = {.device = "ref", .n_threads = 1, .form = K_FORM_LANE};
    struct k_backend *b;
    const char *why;
    struct quire_error err;
    assert_int_equal(k_backend_open(&options, &b, &why, &err), QUIRE_OK);
    real = b->ops;
    *ops = *real;
    ops->alloc = failing_alloc;
    ops->alloc_host = failing_alloc_host;
    ops->free = counted_free;
    ops->weight_create = failing_weight_create;
    ops->weight_destroy = counted_weight_destroy;
    ops->copy_in = failing_copy_in;
    ops->copy_out = failing_copy_out;
    b->ops = ops;
    return b;
}

static void close_failing(struct k_backend *b)
{
    b->ops = real;
    real->close(b);
}

static const struct op_case *first_case(enum k_operation op)
{
    for (size_t i = 0; i < op_n_test_cases; i++)
        if (op_test_cases[i].op == op && op_test_cases[i].form == K_FORM_LANE)
            return &op_test_cases[i];
    return NULL;
}

static void test_every_failure_is_returned(void **state)
{
    static const enum k_operation operations[] = {K_OP_EMBED,      K_OP_RMSNORM, K_OP_GEMM,     K_OP_ROPE_KV,
                                                  K_OP_ATTENTION,  K_OP_POOL,    K_OP_GATHER,   K_OP_SAMPLE,
                                                  K_OP_GEMM_GATED, K_OP_KV_COPY, K_OP_LAYERNORM};
    struct k_backend_ops ops;
    (void)state;
    struct k_backend *b = open_failing(&ops);
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        const struct op_case *c = first_case(operations[i]);
        struct quire_error err;
        struct op_data d;
        struct op_output out;
        int status = QUIRE_NO_MEMORY;
        uint32_t n_failures = 0;
        assert_non_null(c);
        assert_int_equal(op_data_make(c, &d, &err), QUIRE_OK);
        for (uint32_t n = 0; status != QUIRE_OK && n < 10000; n++) {
            calls_left = n;
            status = op_run(b, c, &d, &(struct op_variant){0}, &out, &err);
            assert_int_equal(n_live, 0);
            if (status == QUIRE_OK)
                break;
            assert_int_equal(status, QUIRE_NO_MEMORY);
            assert_string_equal(err.text, "the backend is full");
            assert_int_equal(out.n_outputs, 0);
            n_failures++;
        }
        assert_int_equal(status, QUIRE_OK);
        assert_true(n_failures > 3);
        op_output_free(&out);
        op_data_free(&d);
    }
    close_failing(b);
}

static void test_an_overrun_is_returned(void **state)
{
    struct k_backend_ops ops;
    struct quire_error err;
    struct op_data d;
    struct op_output out;
    const struct op_case *c = first_case(K_OP_GATHER);
    (void)state;
    struct k_backend *b = open_failing(&ops);
    ops.gather = overrunning_gather;
    calls_left = UINT32_MAX;
    assert_int_equal(op_data_make(c, &d, &err), QUIRE_OK);
    assert_int_equal(op_run(b, c, &d, &(struct op_variant){0}, &out, &err), QUIRE_INTERNAL);
    assert_non_null(strstr(err.text, "a guard was overwritten"));
    assert_int_equal(out.n_outputs, 0);
    assert_int_equal(n_live, 0);
    op_data_free(&d);
    close_failing(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failure_is_returned),
        cmocka_unit_test(test_an_overrun_is_returned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
