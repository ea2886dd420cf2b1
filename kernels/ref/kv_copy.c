/* Copies KV blocks from one arena in host memory to another. */
#include "kernels/args/kv_copy.h"
#include "kernels/ref/ref.h"

#include <string.h>

struct copy {
    const struct k_kv_copy_args *args;
    size_t block_bytes; /* size of K, and also of V */
};

/* Each thread copies its share of the pairs' halves: first every K, then every V. */
static void copy_share(void *context, struct k_piece piece)
{
    const struct copy *c = context;
    const struct k_kv_copy_args *a = c->args;
    uint64_t begin, end;
    k_pool_share(2 * (uint64_t)a->n_pairs, piece, &begin, &end);
    for (uint64_t i = begin; i < end; i++) {
        bool is_v = i >= a->n_pairs;
        const struct k_block_pair *pair = &a->pairs[is_v ? i - a->n_pairs : i];
        unsigned char *to = is_v ? a->to->v_dev : a->to->k_dev;
        const unsigned char *from = is_v ? a->from->v_dev : a->from->k_dev;
        memcpy(to + pair->to * c->block_bytes, from + pair->from * c->block_bytes, c->block_bytes);
    }
}

int ref_kv_copy(struct k_backend *b, const struct k_kv_copy_args *a, struct quire_error *err)
{
    int status = k_check_kv_shape("kv_copy", a->kv, err);
    if (status != QUIRE_OK)
        return status;
    struct copy copy = {.args = a, .block_bytes = (size_t)k_kv_block_bytes(a->kv)};
    host_run(b, 2 * copy.block_bytes * a->n_pairs, copy_share, &copy);
    return QUIRE_OK;
}
