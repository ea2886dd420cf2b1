#include "engine/checkpoint/checkpoint_table.h"

#include "files/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------ */

/* A tensor's name in GGUF and in transformers, both without prefix and suffix. */
struct name_pair {
    const char *gguf, *ours;
    const char *arch; /* of this architecture alone; NULL: of all. The first that fits counts */
    bool is_whole; /* ours has no suffix */
};
static const struct name_pair beside[] = {{"token_embd", "model.embed_tokens", NULL, false},
                                          {"output_norm", "model.norm", NULL, false},
                                          {"output", "lm_head", NULL, false}};
static const struct name_pair of_layers[] = {
    {"attn_norm", "input_layernorm", NULL, false},
    {"attn_q", "self_attn.q_proj", NULL, false},
    {"attn_k", "self_attn.k_proj", NULL, false},
    {"attn_v", "self_attn.v_proj", NULL, false},
    {"attn_qkv", "self_attn.qkv_proj", NULL, false},
    {"attn_output", "self_attn.o_proj", NULL, false},
    {"attn_q_norm", "self_attn.q_norm", NULL, false},
    {"attn_k_norm", "self_attn.k_norm", NULL, false},
    {"ffn_norm", "pre_feedforward_layernorm", "gemma2", false},
    {"ffn_norm", "pre_feedforward_layernorm", "gemma3", false},
    {"ffn_norm", "post_attention_layernorm", NULL, false},
    {"post_attention_norm", "post_attention_layernorm", NULL, false},
    {"post_ffw_norm", "post_feedforward_layernorm", NULL, false},
    {"ffn_gate", "mlp.gate_proj", NULL, false},
    {"ffn_up", "mlp.gate_up_proj", "phi3", false},
    {"ffn_up", "mlp.up_proj", NULL, false},
    {"ffn_down", "mlp.down_proj", NULL, false},
    {"ffn_gate_inp", "mlp.gate", NULL, false},
    {"ffn_gate_exps", "mlp.experts.gate_proj", NULL, false},
    {"ffn_up_exps", "mlp.experts.up_proj", NULL, false},
    {"ffn_down_exps", "mlp.experts.down_proj", NULL, false},
    {"attn_sinks", "self_attn.sinks", NULL, true},
    {"exp_probs_b", "mlp.gate.e_score_correction_bias", NULL, true},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", NULL, false},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj", "qwen2moe", false},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj", "qwen2moe", false},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj", "qwen2moe", false},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj", NULL, false},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj", NULL, false},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj", NULL, false},
};
/* Files of before 2024 have an expert's number behind these. */
static const struct name_pair of_experts[] = {
    {"ffn_gate", "gate_proj", NULL, false}, {"ffn_up", "up_proj", NULL, false}, {"ffn_down", "down_proj", NULL, false}};
/* Architectures whose converter puts the rows of q and k where RoPE turns neighbours; the others leave them. */
static const char *const interleaved[] = {"llama", "granite", "granitemoe", "smollm3"};

static bool is_arch(struct gguf_text arch, const char *what)
{
    return arch.n == strlen(what) && memcmp(arch.data, what, arch.n) == 0;
}

static const struct name_pair *find_name(const struct name_pair *pairs, size_t n_pairs, struct gguf_text arch,
                                         const char *text, size_t n)
{
    for (size_t i = 0; i < n_pairs; i++)
        if (strlen(pairs[i].gguf) == n && memcmp(pairs[i].gguf, text, n) == 0 &&
            (!pairs[i].arch || is_arch(arch, pairs[i].arch)))
            return &pairs[i];
    return NULL;
}

/* "model.layers.3.mlp.experts.7.up_proj" of "ffn_up.7", n bytes; NULL: it is no such name, or there is no memory. */
static char *expert_name(unsigned layer, struct gguf_text arch, const char *name, size_t n)
{
    const char *dot = memchr(name, '.', n);
    unsigned expert = 0;
    int used = 0;
    char *out;
    const struct name_pair *found = dot ? find_name(of_experts, sizeof of_experts / sizeof *of_experts, arch, name,
                                                    (size_t)(dot - name))
                                        : NULL;
    if (!found || sscanf(dot + 1, "%5u%n", &expert, &used) != 1 || dot + 1 + used != name + n)
        return NULL;
    return asprintf(&out, "model.layers.%u.mlp.experts.%u.%s%s", layer, expert, found->ours, name + n) < 0 ? NULL : out;
}

/* "model.layers.3.self_attn.q_proj.weight" of "blk.3.attn_q.weight". A name that the table does not list stays
 * unchanged. */
static char *our_name(const char *gguf, struct gguf_text arch)
{
    const char *end = strrchr(gguf, '.'), *name = gguf;
    const struct name_pair *found;
    unsigned layer = 0;
    int used = 0;
    char *out;
    const bool of_layer = sscanf(gguf, "blk.%5u.%n", &layer, &used) == 1 && used > 0;
    if (of_layer)
        name = gguf + used;
    if (!end || end < name)
        return strdup(gguf);
    const size_t n = (size_t)(end - name);
    if (of_layer && (out = expert_name(layer, arch, name, n)))
        return out;
    found = of_layer ? find_name(of_layers, sizeof of_layers / sizeof *of_layers, arch, name, n)
                     : find_name(beside, sizeof beside / sizeof *beside, arch, name, n);
    if (!found)
        return strdup(gguf);
    if (found->is_whole)
        end = "";
    if (of_layer ? asprintf(&out, "model.layers.%u.%s%s", layer, found->ours, end) < 0
                 : asprintf(&out, "%s%s", found->ours, end) < 0)
        return NULL;
    return out;
}

static struct gguf_text arch_of(const struct gguf *g)
{
    struct gguf_text arch = {"", 0};
    return gguf_string(g, "general.architecture", &arch, NULL) == QUIRE_OK ? arch : (struct gguf_text){"", 0};
}

static bool is_interleaved(struct gguf_text arch, const char *ours)
{
    if (!strstr(ours, ".self_attn.q_proj.") && !strstr(ours, ".self_attn.k_proj."))
        return false;
    for (size_t i = 0; i < sizeof interleaved / sizeof *interleaved; i++)
        if (is_arch(arch, interleaved[i]))
            return true;
    return false;
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

static int add_tensor(struct checkpoint_table *table, const struct gguf *g, struct gguf_text arch,
                      const struct gguf_tensor *t, uint32_t file, struct quire_error *err)
{
    char *name = our_name(t->name, arch);
    struct checkpoint_entry *entry = name ? checkpoint_table_append(table, name) : NULL;
    free(name);
    if (!entry)
        return quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", gguf_name(g));
    entry->file = file;
    entry->dtype_name = gguf_type_name(t->type);
    entry->usable = format_of(t->type, &entry->format);
    entry->interleaved = is_interleaved(arch, entry->name);
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
    const struct gguf_text arch = arch_of(first);
    int status = QUIRE_OK;
    for (size_t i = 0; status == QUIRE_OK && i < gguf_n_tensors(g); i++)
        status = add_tensor(table, g, arch, gguf_tensor(g, i), file, err);
    return status;
}
