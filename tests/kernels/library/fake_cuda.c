/* A substitute for libquire_cuda.so in cuda_library_test. FAKE_OPENS: it opens; otherwise it finds no driver.
 * FAKE_EMPTY: it is not a Quire library. */
#include "kernels/cuda/host/open.h"
#include "kernels/planner.h"

#if !defined(FAKE_EMPTY)
const char quire_cuda_version[] = FAKE_VERSION;

static void fake_close(struct k_backend *b)
{
    (void)b;
}

int quire_cuda_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                    struct quire_error *err)
{
    static const struct k_planner planner = {.name = "cuda"};
    static const struct k_backend_ops ops = {.planner = &planner, .close = fake_close};
    static struct k_backend backend = {.ops = &ops, .n_threads = 1, .placement = "none", .form = K_FORM_LANE};
    (void)options;
    (void)err;
#if defined(FAKE_OPENS)
    *out = &backend;
    *why = "cuda: requested";
    return QUIRE_OK;
#else
    (void)why;
    (void)backend;
    *out = NULL;
    return quire_fail(err, QUIRE_UNSUPPORTED, "no NVIDIA driver on this machine");
#endif
}
#endif
