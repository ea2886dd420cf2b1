#include "kernels/kernels.h"
#include "kernels/pool.h"

#include <string.h>

/* ref and cpu keep attention's partials on their threads' own scratch; sampling needs a copy of one
 * row of logits for each thread. */
static int plan_host(const struct k_plan_dims *dims, struct k_plan_bytes *out)
{
    uint64_t n_threads = dims->n_threads ? dims->n_threads : k_default_threads();
    *out = (struct k_plan_bytes){
        .attention = 0,
        .sample = n_threads * dims->n_vocab * sizeof(float),
    };
    return QUIRE_OK;
}

int k_plan_workspace(const char *backend_name, const struct k_plan_dims *dims,
                     struct k_plan_bytes *out, struct quire_error *err)
{
    if (strcmp(backend_name, "ref") == 0 || strcmp(backend_name, "cpu") == 0)
        return plan_host(dims, out);
    return quire_fail(err, QUIRE_UNSUPPORTED, "backend %s: this build cannot plan its memory",
                      backend_name);
}
