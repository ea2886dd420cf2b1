#include "engine/model/experts/apart.h"

#include <string.h>

static const struct experts_apart names[] = {
    /* Granite */
    {"block_sparse_moe.input_linear.weight",
     {"block_sparse_moe.experts.*.w1.weight", "block_sparse_moe.experts.*.w3.weight"},
     2,
     false,
     false},
    {"block_sparse_moe.output_linear.weight", {"block_sparse_moe.experts.*.w2.weight"}, 1, false, false},
    /* gpt-oss */
    {"experts.gate_up_proj", {"experts.*.gate_proj.weight", "experts.*.up_proj.weight"}, 2, false, true},
    {"experts.gate_up_proj_bias", {"experts.*.gate_proj.bias", "experts.*.up_proj.bias"}, 2, true, true},
    {"experts.down_proj", {"experts.*.down_proj.weight"}, 1, false, true},
    {"experts.down_proj_bias", {"experts.*.down_proj.bias"}, 1, true, true},
    /* Models whose checkpoints usually have them apart */
    {"experts.gate_proj.weight", {"experts.*.gate_proj.weight"}, 1, false, false},
    {"experts.up_proj.weight", {"experts.*.up_proj.weight"}, 1, false, false},
    {"experts.down_proj.weight", {"experts.*.down_proj.weight"}, 1, false, false},
    {"experts.w1.weight", {"experts.*.w1.weight"}, 1, false, false},
    {"experts.w3.weight", {"experts.*.w3.weight"}, 1, false, false},
    {"experts.w2.weight", {"experts.*.w2.weight"}, 1, false, false},
};

const struct experts_apart *experts_apart_of(const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n_end = strlen(names[i].all);
        if (n > n_end && name[n - n_end - 1] == '.' && strcmp(name + n - n_end, names[i].all) == 0)
            return &names[i];
    }
    return NULL;
}
