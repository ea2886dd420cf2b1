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

TODO(embed, k_embed_args)
TODO(rmsnorm, k_rmsnorm_args)
TODO(rope_angles, k_rope_angles_args)
TODO(rope_kv, k_rope_kv_args)
TODO(silu_mul, k_silu_mul_args)
TODO(gather, k_gather_args)
TODO(kv_copy, k_kv_copy_args)
TODO(place_tokens, k_place_tokens_args)
TODO(attention_plan, k_attention_plan_args)
TODO(attention, k_attention_args)
TODO(sample, k_sample_args)
