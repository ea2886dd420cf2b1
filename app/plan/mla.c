#include "app/plan/mla.h"

#include "app/command/command.h"
#include "base/encoding/json.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WHERE "config.json"
#define MAX_SIZE 1000000u

/* Names as in config.json; 0: absent. */
struct mla_config {
    uint32_t hidden_size, num_hidden_layers, num_attention_heads, vocab_size, intermediate_size;
    uint32_t kv_lora_rank, q_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    uint32_t n_routed_experts, num_experts_per_tok, n_shared_experts, moe_intermediate_size, first_k_dense_replace;
    uint32_t max_position_embeddings;
    bool tie_word_embeddings;
};

static int read_config(const json_t *config, struct mla_config *out, struct quire_error *err)
{
    const struct {
        const char *key;
        uint32_t *to;
        uint32_t min;
    } keys[] = {
        {"hidden_size", &out->hidden_size, 1},
        {"num_hidden_layers", &out->num_hidden_layers, 1},
        {"num_attention_heads", &out->num_attention_heads, 1},
        {"vocab_size", &out->vocab_size, 1},
        {"intermediate_size", &out->intermediate_size, 1},
        {"kv_lora_rank", &out->kv_lora_rank, 1},
        {"q_lora_rank", &out->q_lora_rank, 0},
        {"qk_nope_head_dim", &out->qk_nope_head_dim, 1},
        {"qk_rope_head_dim", &out->qk_rope_head_dim, 1},
        {"v_head_dim", &out->v_head_dim, 1},
        {"n_routed_experts", &out->n_routed_experts, 0},
        {"num_experts_per_tok", &out->num_experts_per_tok, 0},
        {"n_shared_experts", &out->n_shared_experts, 0},
        {"moe_intermediate_size", &out->moe_intermediate_size, 0},
        {"first_k_dense_replace", &out->first_k_dense_replace, 0},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const int status = quire_json_u32(config, WHERE, keys[i].key, keys[i].min, MAX_SIZE, keys[i].to, err);
        if (status != QUIRE_OK)
            return status;
        if (keys[i].min && !*keys[i].to)
            return quire_fail(err, QUIRE_INVALID, WHERE ": %s is missing", keys[i].key);
    }
    out->max_position_embeddings = 4096;
    int status = quire_json_u32(config, WHERE, "max_position_embeddings", 1, 1u << 26, &out->max_position_embeddings,
                                err);
    return status == QUIRE_OK ? quire_json_bool(config, WHERE, "tie_word_embeddings", &out->tie_word_embeddings, err)
                              : status;
}

static uint64_t attention_weights(const struct mla_config *c)
{
    const uint64_t h = c->hidden_size, heads = c->num_attention_heads;
    const uint64_t q = heads * (c->qk_nope_head_dim + c->qk_rope_head_dim);
    const uint64_t of_q = c->q_lora_rank ? c->q_lora_rank * (h + q) : h * q;
    return of_q + h * (c->kv_lora_rank + c->qk_rope_head_dim) +
           c->kv_lora_rank * heads * (c->qk_nope_head_dim + c->v_head_dim) + heads * c->v_head_dim * h;
}

/* Of the layers and the head; norms are left out. */
static uint64_t all_weights(const struct mla_config *c)
{
    const uint64_t h = c->hidden_size;
    const uint32_t n_dense = c->n_routed_experts == 0                          ? c->num_hidden_layers
                             : c->first_k_dense_replace < c->num_hidden_layers ? c->first_k_dense_replace
                                                                               : c->num_hidden_layers;
    const uint64_t dense = 3 * h * c->intermediate_size;
    const uint64_t experts = 3 * h * c->moe_intermediate_size * (c->n_routed_experts + c->n_shared_experts) +
                             h * c->n_routed_experts;
    return c->num_hidden_layers * attention_weights(c) + n_dense * dense + (c->num_hidden_layers - n_dense) * experts;
}

/* config.json of DeepSeek-V3 says fp8 in quantization_config. */
static struct k_format format_of(const json_t *config, const struct bare_format *named)
{
    if (named)
        return named->layers;
    return json_object_get(config, "quantization_config") ? bare_format_find("fp8")->layers
                                                          : (struct k_format)K_FORMAT_BF16;
}

static uint64_t bytes_of(struct k_format format, uint64_t n)
{
    /* In rows of 7,168 and other multiples of 256. */
    const uint64_t rows = (n + 255) / 256;
    uint64_t bytes = rows * k_format_bytes(format, 256);
    if (format.packing == K_PACKING_PLANES && format.group)
        bytes += rows * (256 / format.group) * k_dtype_bytes(format.scale);
    return bytes;
}

struct mla_sizes {
    uint64_t parameters, weight_bytes, token_kv_bytes;
    const char *format;
};

static void print_table(const char *given, const struct mla_config *c, const struct mla_sizes *s,
                        const struct bare_list *contexts, const struct bare_list *batches)
{
    printf("%s: multi-head latent attention, from config.json by formula. Quire cannot serve this model.\n\n", given);
    printf("  %" PRIu64 " parameters without norms; weights %s: %s\n", s->parameters, s->format,
           quire_size(s->weight_bytes).text);
    printf("  KV: %u numbers of 16 bits a token in each of %u layers (kv_lora_rank + qk_rope_head_dim): %s a token\n\n",
           c->kv_lora_rank + c->qk_rope_head_dim, c->num_hidden_layers, quire_size(s->token_kv_bytes).text);
    printf("  %10s %8s %12s %12s\n", "context", "batch", "KV cache", "total");
    for (uint32_t i = 0; i < contexts->n; i++)
        for (uint32_t j = 0; j < batches->n; j++) {
            const uint64_t kv = s->token_kv_bytes * contexts->items[i] * batches->items[j];
            printf("  %10u %8u %12s %12s\n", contexts->items[i], batches->items[j], quire_size(kv).text,
                   quire_size(kv + s->weight_bytes).text);
        }
    printf("\n  The total leaves activations out.\n");
}

static int print_json(const char *given, const struct mla_sizes *s, const struct bare_list *contexts,
                      const struct bare_list *batches)
{
    json_t *cases = json_array();
    for (uint32_t i = 0; i < contexts->n; i++)
        for (uint32_t j = 0; j < batches->n; j++) {
            const uint64_t kv = s->token_kv_bytes * contexts->items[i] * batches->items[j];
            json_array_append_new(cases, json_pack("{s:I, s:I, s:I, s:I}", "context", (json_int_t)contexts->items[i],
                                                   "batch", (json_int_t)batches->items[j], "kv_bytes", (json_int_t)kv,
                                                   "total_bytes", (json_int_t)(kv + s->weight_bytes)));
        }
    return command_print_json(json_pack("{s:s, s:b, s:s, s:s, s:I, s:I, s:I, s:o}", "model", given, "servable", 0,
                                        "attention", "MLA", "weights", s->format, "parameters",
                                        (json_int_t)s->parameters, "weight_bytes", (json_int_t)s->weight_bytes,
                                        "kv_token_bytes", (json_int_t)s->token_kv_bytes, "cases", cases));
}

bool mla_command(const char *given, const char *config, size_t n_config, const char *weights,
                 const struct bare_flags *flags, bool json, int *code, struct quire_error *err)
{
    json_t *root = NULL;
    struct mla_config c = {0};
    if (quire_json_parse_python(config, n_config, WHERE, &root, err) != QUIRE_OK || !json_is_object(root) ||
        !json_object_get(root, "kv_lora_rank")) {
        json_decref(root);
        return false;
    }
    const struct bare_format *named = weights ? bare_format_find(weights) : NULL;
    const struct k_format format = format_of(root, named);
    const int status = read_config(root, &c, err);
    json_decref(root);
    if (status != QUIRE_OK) {
        *code = command_fail(1, err->text);
        return true;
    }
    const uint64_t table = (uint64_t)c.vocab_size * c.hidden_size, of_layers = all_weights(&c);
    const uint64_t tables = c.tie_word_embeddings ? table : 2 * table;
    const struct mla_sizes s = {.parameters = of_layers + tables,
                                .weight_bytes = bytes_of(format, of_layers) + 2 * tables,
                                .token_kv_bytes = UINT64_C(2) * c.num_hidden_layers *
                                                  (c.kv_lora_rank + c.qk_rope_head_dim),
                                .format = named ? named->name : k_format_name(format)};
    const struct bare_list contexts = flags->contexts.n ? flags->contexts
                                                        : (struct bare_list){1, {c.max_position_embeddings}};
    const struct bare_list batches = flags->batches.n ? flags->batches : (struct bare_list){1, {1}};
    *code = 0;
    if (json)
        *code = print_json(given, &s, &contexts, &batches);
    else
        print_table(given, &c, &s, &contexts, &batches);
    return true;
}
