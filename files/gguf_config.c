#include "files/gguf_made.h"

#include "files/gguf_maker.h"

#include <stdlib.h>
#include <string.h>

/* Makes config.json and generation_config.json. A property in the GGUF file that a config.json cannot express is
 * rejected by its key, so that the model is never computed without it. */

static void set_integer(struct gguf_maker *m, const char *name, const char *key, bool must)
{
    uint64_t value = maker_integer(m, key, must);
    if (must || maker_has(m, key))
        maker_set(m, name, json_integer((json_int_t)value));
}

static void set_sizes(struct gguf_maker *m)
{
    struct gguf_value tokens = {.n = 0};
    set_integer(m, "hidden_size", "embedding_length", true);
    set_integer(m, "num_hidden_layers", "block_count", true);
    set_integer(m, "intermediate_size", "feed_forward_length", !(m->family->reads & GGUF_READS_EXPERTS));
    set_integer(m, "max_position_embeddings", "context_length", true);
    const uint64_t heads = maker_integer(m, "attention.head_count", true), head_dim = maker_head_dim(m);
    maker_set(m, "num_attention_heads", json_integer((json_int_t)heads));
    maker_set(m, "num_key_value_heads",
              json_integer((json_int_t)(maker_has(m, "attention.head_count_kv")
                                            ? maker_integer(m, "attention.head_count_kv", true)
                                            : heads)));
    if (maker_has(m, "attention.value_length") && maker_integer(m, "attention.value_length", false) != head_dim)
        maker_fail(m, QUIRE_UNSUPPORTED, "attention.value_length", "must equal key_length");
    maker_set(m, "head_dim", json_integer((json_int_t)head_dim));
    /* A little more than the share, which rounds down to the count. */
    const uint64_t rotated = maker_integer(m, "rope.dimension_count", false);
    if (maker_has(m, "rope.dimension_count") && head_dim)
        maker_set(m, "partial_rotary_factor",
                  json_real(rotated == head_dim ? 1.0 : ((double)rotated + 1e-6) / (double)head_dim));
    /* The embedding's rows are the truth: vocab_size may be left out, and tokens may be padded. */
    const struct gguf_tensor *embedding = gguf_find_tensor(m->g, "token_embd.weight");
    gguf_find(m->g, "tokenizer.ggml.tokens", &tokens);
    uint64_t vocab = embedding ? embedding->size[1] : tokens.n;
    maker_set(m, "vocab_size", json_integer((json_int_t)(vocab < INT64_MAX ? vocab : INT64_MAX)));
    if (!maker_has(m, "attention.layer_norm_rms_epsilon"))
        maker_fail(m, QUIRE_INVALID, "attention.layer_norm_rms_epsilon", "is missing");
    maker_set(m, "rms_norm_eps", json_real(maker_number(m, "attention.layer_norm_rms_epsilon", 0)));
}

static void set_yarn(struct gguf_maker *m, json_t *scaling)
{
    static const char *const numbers[][2] = {{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                             {"rope.scaling.yarn_beta_slow", "beta_slow"},
                                             {"rope.scaling.yarn_attn_factor", "attention_factor"}};
    if (maker_has(m, "rope.scaling.original_context_length"))
        json_object_set_new(scaling, "original_max_position_embeddings",
                            json_integer((json_int_t)maker_integer(m, "rope.scaling.original_context_length", true)));
    for (size_t i = 0; i < 3; i++) {
        const double value = maker_number(m, numbers[i][0], 1);
        if (maker_has(m, numbers[i][0]) && (i < 2 || value != 1)) /* a file without an attention factor means 1 */
            json_object_set_new(scaling, numbers[i][1], json_real(value));
    }
    if (m->family->reads & GGUF_READS_WHOLE_YARN)
        json_object_set_new(scaling, "truncate", json_false());
}

/* A factor without a type is linear; "none" disables scaling, whatever the factor. */
static void set_rope(struct gguf_maker *m)
{
    const struct gguf_text type = maker_text(m, "rope.scaling.type", "linear");
    const bool yarn = maker_text_is(type, "yarn"), linear = maker_text_is(type, "linear");
    const double factor = maker_number(m, "rope.scaling.factor", maker_number(m, "rope.scale_linear", 0.0));
    maker_set(m, "rope_theta", json_real(maker_number(m, "rope.freq_base", 10000.0)));
    if (!yarn && maker_number(m, "rope.scaling.yarn_attn_factor", 1) != 1)
        maker_fail(m, QUIRE_UNSUPPORTED, "rope.scaling.yarn_attn_factor", "is not supported without YaRN");
    if (m->status != QUIRE_OK || maker_text_is(type, "none") || (linear && factor == 0.0) ||
        ((m->family->reads & GGUF_READS_LONG_ROPE) && maker_text_is(type, "longrope")))
        return;
    if (!yarn && !linear) {
        maker_fail(m, QUIRE_UNSUPPORTED, "rope.scaling.type", "must be none, linear or yarn");
        return;
    }
    json_t *scaling = json_pack("{s:s, s:f}", "rope_type", yarn ? "yarn" : "linear", "factor", factor);
    /* context_length is what the scaling has made of it; config.json's is before a linear one. Where some layers alone are
     * scaled, it is config.json's. */
    if (linear && factor >= 1.0 && !(m->family->reads & GGUF_READS_PATTERN))
        maker_set(m, "max_position_embeddings",
                  json_integer((json_int_t)((double)maker_integer(m, "context_length", true) / factor)));
    if (yarn)
        set_yarn(m, scaling);
    maker_set(m, "rope_scaling", scaling);
}

/* Token ids that a text may end with: what the keys say, and tokens that are there to end a turn under their usual names. */
static json_t *ends(struct gguf_maker *m)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const char *const names[] = {"<|im_end|>",      "<|eot_id|>",    "<|eom_id|>",     "<|endoftext|>",
                                        "<|end_of_text|>", "<end_of_turn>", "<|endofprompt|>"};
    struct gguf_value tokens = {.n = 0}, kinds = {.n = 0};
    json_t *list = json_array();
    for (size_t i = 0; i < 3 && m->status == QUIRE_OK; i++) {
        int64_t id = -1;
        m->status = gguf_i64(m->g, keys[i], &id, m->err);
        if (id >= 0 && id <= INT32_MAX)
            json_array_append_new(list, json_integer((json_int_t)id));
    }
    if (m->status == QUIRE_OK)
        m->status = gguf_array(m->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, m->err);
    if (m->status == QUIRE_OK)
        m->status = gguf_array(m->g, "tokenizer.ggml.token_type", GGUF_I32, &kinds, m->err);
    const uint8_t *at = tokens.data;
    for (uint64_t i = 0; m->status == QUIRE_OK && i < tokens.n && i <= INT32_MAX; i++) {
        struct gguf_text token = gguf_next_string(&at);
        bool is_control = i < kinds.n && kinds.data[4 * i] == 3, known = false;
        for (size_t k = 0; is_control && k < sizeof names / sizeof *names; k++)
            known = known || maker_text_is(token, names[k]);
        for (size_t k = 0; known && k < json_array_size(list); k++)
            known = json_integer_value(json_array_get(list, k)) != (json_int_t)i;
        if (known)
            json_array_append_new(list, json_integer((json_int_t)i));
    }
    return list;
}

static void set_tokens(struct gguf_maker *m)
{
    int64_t bos = -1; /* as some files write "none" */
    maker_set(m, "eos_token_id", ends(m));
    if (m->status == QUIRE_OK)
        m->status = gguf_i64(m->g, "tokenizer.ggml.bos_token_id", &bos, m->err);
    maker_set(m, "bos_token_id", bos >= 0 && bos <= INT32_MAX ? json_integer((json_int_t)bos) : json_null());
}

static int finish(struct gguf_maker *m, struct buffer *out)
{
    char *text = m->status == QUIRE_OK ? json_dumps(m->json, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    if (m->status == QUIRE_OK && (!text || buffer_append(out, text, strlen(text)) != QUIRE_OK))
        m->status = quire_fail(m->err, QUIRE_NO_MEMORY, "%s: out of memory", gguf_name(m->g));
    free(text);
    json_decref(m->json);
    return m->status;
}

int gguf_make_config(const struct gguf *g, struct buffer *out, struct quire_error *err)
{
    struct gguf_maker m = {.g = g, .json = json_object(), .err = err, .status = QUIRE_OK};
    m.status = gguf_family_find(g, &m.family, err);
    if (m.status == QUIRE_OK) {
        gguf_refuse_others(&m);
        maker_set(&m, "architectures", json_pack("[s]", m.family->transformers));
        maker_set(&m, "model_type", json_string(m.family->model_type));
        set_sizes(&m);
        set_rope(&m);
        set_tokens(&m);
        gguf_family_config(&m);
        maker_set(&m, "tie_word_embeddings", json_boolean(!maker_has_tensor(&m, "output.weight")));
        maker_set(&m, "attention_bias", json_boolean(maker_has_tensor(&m, "blk.0.attn_q.bias")));
        maker_set(&m, "mlp_bias", json_boolean(maker_has_tensor(&m, "blk.0.ffn_up.bias")));
    }
    return finish(&m, out);
}

int gguf_make_generation(const struct gguf *g, struct buffer *out, struct quire_error *err)
{
    static const char *const numbers[][2] = {{"general.sampling.temp", "temperature"},
                                             {"general.sampling.top_p", "top_p"},
                                             {"general.sampling.min_p", "min_p"},
                                             {"general.sampling.penalty_repeat", "repetition_penalty"}};
    struct gguf_maker m = {.g = g, .json = json_object(), .err = err, .status = QUIRE_OK};
    struct gguf_value ignored;
    for (size_t i = 0; i < 4 && m.status == QUIRE_OK; i++) {
        double value = 0;
        m.status = gguf_f64(g, numbers[i][0], &value, err);
        if (gguf_find(g, numbers[i][0], &ignored))
            maker_set(&m, numbers[i][1], json_real(value));
    }
    int64_t top_k = 0; /* -1 and 0: all */
    if (m.status == QUIRE_OK)
        m.status = gguf_i64(g, "general.sampling.top_k", &top_k, err);
    if (gguf_find(g, "general.sampling.top_k", &ignored))
        maker_set(&m, "top_k", json_integer((json_int_t)(top_k > 0 && top_k <= INT32_MAX ? top_k : 0)));
    return finish(&m, out);
}
