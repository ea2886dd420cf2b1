/* Operations that have no file yet. Each is deleted here by what brings it. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/plan.h"

#define TODO(name, args)                                                                                               \
    int cuda_##name(struct k_backend *b, const struct args *a, struct quire_error *err)                               \
    {                                                                                                                  \
        (void)b;                                                                                                       \
        (void)a;                                                                                                       \
        return quire_fail(err, QUIRE_UNSUPPORTED, "backend cuda: no %s yet", #name);                                   \
    }

TODO(attention_plan, k_attention_plan_args)
TODO(attention, k_attention_args)
