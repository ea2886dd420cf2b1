/* Helpers for the tests of the cuda backend's host side: a backend on the emulated GPU, with a check for leaks. */
#ifndef QUIRE_TESTS_CUDA_FIXTURE_H
#define QUIRE_TESTS_CUDA_FIXTURE_H

#include "kernels/cuda/host/memory.h"
#include "kernels/open.h"
#include "tests/simt/control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static inline int try_open(const char *device, enum k_gemm_form form, enum k_dtype dtype, struct k_backend **b,
                           struct quire_error *err)
{
    const char *why = NULL;
    struct k_backend_options options = {.device = device, .form = form, .weight_format = k_format_of(dtype)};
    int status = k_backend_open(&options, b, &why, err);
    if (status == QUIRE_OK)
        assert_true(why && strlen(why) > 0);
    else
        assert_null(*b);
    return status;
}

static inline struct k_backend *open_gpu(void)
{
    struct k_backend *b;
    struct quire_error err;
    int status = try_open("cuda", K_FORM_AUTO, K_BF16, &b, &err);
    if (status != QUIRE_OK)
        print_message("%s\n", err.text);
    assert_int_equal(status, QUIRE_OK);
    return b;
}

static inline void close_gpu(struct k_backend *b)
{
    b->ops->close(b);
    assert_int_equal(simt_faults(), 0);
    assert_int_equal(simt_live(), 0);
}

static inline int set_up(void **state)
{
    (void)state;
    simt_new_device();
    return 0;
}

static inline void ok(int status, const struct quire_error *err)
{
    if (status != QUIRE_OK)
        print_message("%s\n", err->text);
    assert_int_equal(status, QUIRE_OK);
}

static inline void assert_says(const struct quire_error *err, const char *part)
{
    if (!strstr(err->text, part))
        print_message("\"%s\" lacks \"%s\"\n", err->text, part);
    assert_non_null(strstr(err->text, part));
}

static inline void *new_memory(struct k_backend *b, uint64_t bytes, bool on_host)
{
    struct quire_error err;
    void *p;
    ok((on_host ? b->ops->alloc_host : b->ops->alloc)(b, bytes, &p, &err), &err);
    return p;
}

/* Fills bytes so that no two ranges are equal. */
static inline void fill(unsigned char *data, uint64_t bytes, uint64_t seed)
{
    uint64_t x = seed * 2 + 1;
    for (uint64_t i = 0; i < bytes; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data[i] = (unsigned char)(x >> 56);
    }
}

#endif
