#include "engine/checkpoint/checkpoint_table.h"

#include "files/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------ */

/* A tensor's name in GGUF and in transformers, both without prefix and suffix. */
struct name_pair {
    const char *gguf, *ours;
};
static const struct name_pair beside[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
static const struct name_pair of_layers[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

static const char *find_name(const struct name_pair *pairs, size_t n_pairs, const char *text, size_t n)
{
    for (size_t i = 0; i < n_pairs; i++)
        if (strlen(pairs[i].gguf) == n && memcmp(pairs[i].gguf, text, n) == 0)
            return pairs[i].ours;
    return NULL;
}

/* "model.layers.3.self_attn.q_proj.weight" of "blk.3.attn_q.weight". A name that the table does not list stays
 * unchanged. */
static char *our_name(const char *gguf)
{
    const char *end = strrchr(gguf, '.'), *name = gguf, *found;
    unsigned layer = 0;
    int used = 0;
    char *out;
    const bool of_layer = sscanf(gguf, "blk.%5u.%n", &layer, &used) == 1 && used > 0;
    if (of_layer)
        name = gguf + used;
    if (!end || end < name)
        return strdup(gguf);
    found = of_layer ? find_name(of_layers, sizeof of_layers / sizeof *of_layers, name, (size_t)(end - name))
                     : find_name(beside, sizeof beside / sizeof *beside, name, (size_t)(end - name));
    if (!found)
        return strdup(gguf);
    if (of_layer ? asprintf(&out, "model.layers.%u.%s%s", layer, found, end) < 0
                 : asprintf(&out, "%s%s", found, end) < 0)
        return NULL;
    return out;
}

static bool is_llama(const struct gguf *g)
{
    struct gguf_text arch = {"", 0};
    return gguf_string(g, "general.architecture", &arch, NULL) == QUIRE_OK && arch.n == 5 &&
           memcmp(arch.data, "llama", 5) == 0;
}

/* llama's converter puts the rows of q and k where RoPE turns neighbours; the others leave them. */
static bool is_interleaved(const struct gguf *first, const char *ours)
{
    if (!is_llama(first))
        return false;
    return strstr(ours, ".self_attn.q_proj.") || strstr(ours, ".self_attn.k_proj.");
}

/* ---- formats ---------------------------------------------------------------------------------------- */

static bool format_of(uint32_t type, struct k_format *out)
{
    static const struct {
        uint32_t type;
        enum k_packing packing;
    } blocks[] = {{2, K_PACKING_Q4_0},  {3, K_PACKING_Q4_1},  {6, K_PACKING_Q5_0},    {7, K_PACKING_Q5_1},
                  {8, K_PACKING_Q8_0},  {10, K_PACKING_Q2_K}, {11, K_PACKING_Q3_K},   {12, K_PACKING_Q4_K},
                  {13, K_PACKING_Q5_K}, {14, K_PACKING_Q6_K}, {20, K_PACKING_IQ4_NL}, {23, K_PACKING_IQ4_XS},
                  {39, K_PACKING_MXFP4}};
    static const struct {
        uint32_t type;
        enum k_dtype dtype;
    } plain[] = {{0, K_F32}, {1, K_F16}, {30, K_BF16}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (plain[i].type == type) {
            *out = k_format_of(plain[i].dtype);
            return true;
        }
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (blocks[i].type == type) {
            *out = k_format_of_blocks(blocks[i].packing);
            return true;
        }
    return false;
}

/* ---- the table -------------------------------------------------------------------------------------- */

static int add_tensor(struct checkpoint_table *table, const struct gguf *g, const struct gguf *first,
                      const struct gguf_tensor *t, uint32_t file, struct quire_error *err)
{
    char *name = our_name(t->name);
    struct checkpoint_entry *entry = name ? checkpoint_table_append(table, name) : NULL;
    free(name);
    if (!entry)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", gguf_name(g));
    entry->file = file;
    entry->dtype_name = gguf_type_name(t->type);
    entry->usable = format_of(t->type, &entry->format);
    entry->interleaved = is_interleaved(first, entry->name);
    /* Rows first, as everywhere else. */
    entry->n_dims = t->n_dims;
    for (uint32_t i = 0; i < t->n_dims; i++)
        entry->shape[i] = t->size[t->n_dims - 1 - i];
    entry->begin = t->begin;
    entry->end = t->begin + t->n_bytes;
    entry->data = t->data;
    return QUIRE_OK;
}

int checkpoint_add_gguf(struct checkpoint_table *table, const struct gguf *g, const struct gguf *first, uint32_t file,
                        struct quire_error *err)
{
    int status = QUIRE_OK;
    for (size_t i = 0; status == QUIRE_OK && i < gguf_n_tensors(g); i++)
        status = add_tensor(table, g, first, gguf_tensor(g, i), file, err);
    return status;
}
