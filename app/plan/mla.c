#include "app/plan/mla.h"

#include "app/command/command.h"
#include "base/encoding/json.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WHERE "config.json"
#define MAX_SIZE 1000000u
#define MAX_WIDTH 4096u /* of heads, of experts, and of each head: their products are columns */
#define MAX_PARAMETERS 1e15

/* Names as in config.json; 0: absent. */
struct mla_config {
    uint32_t hidden_size, num_hidden_layers, num_attention_heads, vocab_size, intermediate_size;
    uint32_t kv_lora_rank, q_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    uint32_t n_routed_experts, num_experts_per_tok, n_shared_experts, moe_intermediate_size, first_k_dense_replace;
    uint32_t max_position_embeddings;
    bool tie_word_embeddings, attention_bias;
};

static int read_config(const json_t *config, struct mla_config *out, struct quire_error *err)
{
    const struct {
        const char *key;
        uint32_t *to;
        uint32_t min, max;
    } keys[] = {
        {"hidden_size", &out->hidden_size, 1, MAX_SIZE},
        {"num_hidden_layers", &out->num_hidden_layers, 1, MAX_WIDTH},
        {"num_attention_heads", &out->num_attention_heads, 1, MAX_WIDTH},
        {"vocab_size", &out->vocab_size, 1, MAX_SIZE},
        {"intermediate_size", &out->intermediate_size, 1, MAX_SIZE},
        {"kv_lora_rank", &out->kv_lora_rank, 1, MAX_SIZE},
        {"q_lora_rank", &out->q_lora_rank, 0, MAX_SIZE},
        {"qk_nope_head_dim", &out->qk_nope_head_dim, 1, MAX_WIDTH},
        {"qk_rope_head_dim", &out->qk_rope_head_dim, 1, MAX_WIDTH},
        {"v_head_dim", &out->v_head_dim, 1, MAX_WIDTH},
        {"n_routed_experts", &out->n_routed_experts, 0, MAX_WIDTH},
        {"num_experts_per_tok", &out->num_experts_per_tok, 0, MAX_WIDTH},
        {"n_shared_experts", &out->n_shared_experts, 0, MAX_WIDTH},
        {"moe_intermediate_size", &out->moe_intermediate_size, 0, MAX_SIZE},
        {"first_k_dense_replace", &out->first_k_dense_replace, 0, MAX_SIZE},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const int status = quire_json_u32(config, WHERE, keys[i].key, keys[i].min, keys[i].max, keys[i].to, err);
        if (status != QUIRE_OK)
            return status;
        if (keys[i].min && !*keys[i].to)
            return quire_fail(err, QUIRE_INVALID, WHERE ": %s is missing", keys[i].key);
    }
    out->max_position_embeddings = 4096;
    int status = quire_json_u32(config, WHERE, "max_position_embeddings", 1, 1u << 26, &out->max_position_embeddings,
                                err);
    if (status == QUIRE_OK)
        status = quire_json_bool(config, WHERE, "attention_bias", &out->attention_bias, err);
    return status == QUIRE_OK ? quire_json_bool(config, WHERE, "tie_word_embeddings", &out->tie_word_embeddings, err)
                              : status;
}

struct mla_sizes {
    const struct bare_format *format;
    uint64_t parameters, weight_bytes, token_kv_bytes;
    double magnitude; /* parameters, where the integer may have wrapped */
};

static void add_matrices(struct mla_sizes *s, uint64_t count, uint64_t n_rows, uint32_t n_cols)
{
    s->parameters += count * n_rows * n_cols;
    s->magnitude += (double)count * (double)n_rows * n_cols;
    s->weight_bytes += bare_matrix_bytes(s->format, count, n_rows, n_cols);
}

/* Tables, routers, norms and biases, which stay in 16 bits. */
static void add_plain(struct mla_sizes *s, uint64_t count, uint64_t n)
{
    s->parameters += count * n;
    s->magnitude += (double)count * (double)n;
    s->weight_bytes += 2 * count * n;
}

static void add_mlps(struct mla_sizes *s, const struct mla_config *c, uint64_t count, uint32_t width)
{
    add_matrices(s, 2 * count, width, c->hidden_size);
    add_matrices(s, count, c->hidden_size, width);
}

static void add_attention(struct mla_sizes *s, const struct mla_config *c)
{
    const uint32_t n = c->num_hidden_layers, h = c->hidden_size, heads = c->num_attention_heads;
    const uint32_t q = heads * (c->qk_nope_head_dim + c->qk_rope_head_dim);
    const uint32_t latent = c->kv_lora_rank + c->qk_rope_head_dim;
    if (c->q_lora_rank)
        add_matrices(s, n, c->q_lora_rank, h);
    add_matrices(s, n, q, c->q_lora_rank ? c->q_lora_rank : h);
    add_matrices(s, n, latent, h);
    add_matrices(s, n, (uint64_t)heads * (c->qk_nope_head_dim + c->v_head_dim), c->kv_lora_rank);
    add_matrices(s, n, h, heads * c->v_head_dim);
    add_plain(s, n, (uint64_t)c->q_lora_rank + c->kv_lora_rank); /* norms */
    if (c->attention_bias)
        add_plain(s, n, (uint64_t)c->q_lora_rank + latent + h);
}

/* Equal to the parameters of the classes in transformers: the routers' corrections, which train otherwise, are left out. */
static void add_all(struct mla_sizes *s, const struct mla_config *c)
{
    const uint32_t n = c->num_hidden_layers, h = c->hidden_size;
    const uint32_t n_dense = c->n_routed_experts == 0 || c->first_k_dense_replace > n ? n : c->first_k_dense_replace;
    const uint32_t shared = c->n_shared_experts * c->moe_intermediate_size;
    add_attention(s, c);
    add_mlps(s, c, n_dense, c->intermediate_size);
    add_mlps(s, c, (uint64_t)(n - n_dense) * c->n_routed_experts, c->moe_intermediate_size);
    if (shared)
        add_mlps(s, c, n - n_dense, shared);
    add_plain(s, n - n_dense, (uint64_t)c->n_routed_experts * h);
    add_plain(s, 1, (uint64_t)h * (2 * (uint64_t)n + 1)); /* norms */
    add_plain(s, c->tie_word_embeddings ? 1 : 2, (uint64_t)c->vocab_size * h);
    s->token_kv_bytes = UINT64_C(2) * n * (c->kv_lora_rank + c->qk_rope_head_dim);
}

static void print_table(const char *given, const struct mla_config *c, const struct mla_sizes *s,
                        const struct bare_list *contexts, const struct bare_list *batches)
{
    printf("%s: multi-head latent attention, from config.json by formula. Quire cannot serve this model.\n\n", given);
    printf("  %" PRIu64 " parameters without layers that predict further tokens (MTP); weights %s: %s\n", s->parameters,
           s->format->name, quire_size(s->weight_bytes).text);
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
    return command_print_json(json_pack("{s:o, s:b, s:s, s:s, s:I, s:I, s:I, s:o}", "model", command_json_text(given),
                                        "servable", 0, "attention", "MLA", "weights", s->format->name, "parameters",
                                        (json_int_t)s->parameters, "weight_bytes", (json_int_t)s->weight_bytes,
                                        "kv_token_bytes", (json_int_t)s->token_kv_bytes, "cases", cases));
}

#define MAX_BYTES 1e18 /* of the KV cache and the weights: an integer of JSON holds 9.2e18 */

/* The lists of the options, with their defaults. */
static int choose_cases(const struct mla_config *c, const struct mla_sizes *s, struct bare_flags *flags,
                        struct quire_error *err)
{
    if (!flags->contexts.n)
        flags->contexts = (struct bare_list){1, {c->max_position_embeddings}};
    if (!flags->batches.n)
        flags->batches = (struct bare_list){1, {1}};
    for (uint32_t i = 0; i < flags->contexts.n; i++)
        for (uint32_t j = 0; j < flags->batches.n; j++)
            if ((double)s->token_kv_bytes * flags->contexts.items[i] * flags->batches.items[j] > MAX_BYTES)
                return quire_fail(err, QUIRE_INVALID,
                                  "--batches: %u sequences of %u tokens have more than %g bytes of KV",
                                  flags->batches.items[j], flags->contexts.items[i], MAX_BYTES);
    return QUIRE_OK;
}

static int read_sizes(const json_t *root, struct mla_config *c, struct mla_sizes *s, struct quire_error *err)
{
    const int status = read_config(root, c, err);
    if (status != QUIRE_OK)
        return status;
    add_all(s, c);
    return s->magnitude <= MAX_PARAMETERS
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INVALID, WHERE ": describes %.3g parameters; at most %g", s->magnitude,
                            MAX_PARAMETERS);
}

bool mla_command(const char *given, const char *config, size_t n_config, const char *weights,
                 const struct bare_flags *flags, bool json, int *code, struct quire_error *err)
{
    json_t *root = NULL;
    struct mla_config c = {0};
    struct bare_format stated;
    struct bare_flags cases = *flags;
    if (quire_json_parse_python(config, n_config, WHERE, &root, err) != QUIRE_OK || !json_is_object(root) ||
        !json_object_get(root, "kv_lora_rank")) {
        json_decref(root);
        return false;
    }
    struct mla_sizes s = {.format = weights ? bare_format_find(weights) : &stated};
    int status = weights ? QUIRE_OK : bare_format_stated(config, n_config, &stated, err);
    if (status == QUIRE_OK)
        status = read_sizes(root, &c, &s, err);
    if (status == QUIRE_OK)
        status = choose_cases(&c, &s, &cases, err);
    json_decref(root);
    *code = 0;
    if (status != QUIRE_OK)
        *code = command_fail(1, err->text);
    else if (json)
        *code = print_json(given, &s, &cases.contexts, &cases.batches);
    else
        print_table(given, &c, &s, &cases.contexts, &cases.batches);
    return true;
}
