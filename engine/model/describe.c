#include "engine/model/describe.h"

#include "base/encoding/json.h"
#include "base/file.h"
#include "engine/model/architectures/architecture.h"
#include "engine/model/architectures/multimodal.h"
#include "engine/model/experts/experts_config.h"
#include "engine/model/pooling.h"
#include "engine/model/rope_config.h"
#include "files/model_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG "config.json"
#define GENERATION "generation_config.json"
#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define MODULE_NAME "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

/* Bounds that keep every product of two sizes, and (Q + 2 KV) * D, far inside 32 and 64 bits. */
#define MAX_VOCAB (1u << 22)
#define MAX_HIDDEN (1u << 20)
#define MAX_INTERMEDIATE (1u << 24)
#define MAX_HEADS (1u << 14)

static bool has_key(const json_t *object, const char *key)
{
    return json_object_get(object, key) != NULL;
}

/* ---- dtype --------------------------------------------------------------------------- */

static int read_dtype(const json_t *config, struct model_config *model, struct quire_error *err)
{
    const char *name = NULL, *key = "dtype";
    int status = quire_json_string(config, CONFIG, key, &name, err);
    if (status == QUIRE_OK && !name)
        status = quire_json_string(config, CONFIG, key = "torch_dtype", &name, err);
    if (status != QUIRE_OK)
        return status;
    if (name && strncmp(name, "torch.", strlen("torch.")) == 0) /* str() of a dtype, as some exporters write it */
        name += strlen("torch.");
    model->dtype = K_F32;
    model->dtype_stated = name != NULL;
    if (!name || strcmp(name, "float32") == 0)
        return QUIRE_OK;
    if (strcmp(name, "float16") == 0)
        model->dtype = K_F16;
    else if (strcmp(name, "bfloat16") == 0)
        model->dtype = K_BF16;
    else {
        char shown[48];
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          CONFIG ": %s: '%s' is not supported; supported: float32, float16, bfloat16", key,
                          model_shown(name, shown, sizeof shown));
    }
    return QUIRE_OK;
}

/* ---- sizes --------------------------------------------------------------------------- */

static int required_u32(const json_t *config, const char *key, uint32_t max, uint32_t *out, struct quire_error *err)
{
    const json_t *value = json_object_get(config, key);
    if (!value || json_is_null(value))
        return quire_fail(err, QUIRE_INVALID, CONFIG ": %s: is missing", key);
    return quire_json_u32(config, CONFIG, key, 1, max, out, err);
}

static int read_heads(const json_t *config, const struct architecture *arch, uint32_t hidden_size,
                      struct model_attention *a, struct quire_error *err)
{
    int status = required_u32(config, "num_attention_heads", MAX_HEADS, &a->n_q_heads, err);
    if (status != QUIRE_OK)
        return status;
    a->n_kv_heads = arch->default_kv_heads;
    if (a->n_kv_heads == 0 || has_key(config, "num_key_value_heads"))
        a->n_kv_heads = a->n_q_heads; /* null, too, means as many */
    status = quire_json_u32(config, CONFIG, "num_key_value_heads", 1, MAX_HEADS, &a->n_kv_heads, err);
    if (status != QUIRE_OK)
        return status;
    if (a->n_q_heads % a->n_kv_heads != 0)
        return quire_fail(err, QUIRE_INVALID, CONFIG ": num_key_value_heads: %u does not divide num_attention_heads %u",
                          a->n_kv_heads, a->n_q_heads);

    a->k_dim = arch->default_head_dim;
    status = quire_json_u32(config, CONFIG, "head_dim", 1, UINT32_MAX, &a->k_dim, err);
    if (status != QUIRE_OK)
        return status;
    if (a->k_dim == 0) {
        if (hidden_size % a->n_q_heads != 0)
            return quire_fail(err, QUIRE_INVALID,
                              CONFIG ": hidden_size: %u is not a multiple of num_attention_heads"
                                     " %u, and head_dim is missing",
                              hidden_size, a->n_q_heads);
        a->k_dim = hidden_size / a->n_q_heads;
    }
    if (a->k_dim % 16 != 0 || a->k_dim > 256)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          CONFIG ": head_dim: %u is not supported; supported: multiples of 16 up to 256", a->k_dim);
    a->v_dim = a->k_dim;
    a->scale = (float)(1.0 / sqrt((double)a->k_dim));
    return QUIRE_OK;
}

/* layer: an attention and an MLP. */
static int read_sizes(const json_t *config, const struct architecture *arch, struct model_config *model,
                      struct model_layer *layer, struct quire_error *err)
{
    double eps = arch->default_rms_eps > 0 ? arch->default_rms_eps : 1e-6;
    model->max_position = arch->default_max_position;
    int status = required_u32(config, "vocab_size", MAX_VOCAB, &model->vocab_size, err);
    if (status == QUIRE_OK)
        status = required_u32(config, "hidden_size", MAX_HIDDEN, &model->hidden_size, err);
    if (status == QUIRE_OK)
        status = required_u32(config, "intermediate_size", MAX_INTERMEDIATE, &layer->blocks[1].mlp.inner_size, err);
    if (status == QUIRE_OK)
        status = required_u32(config, "num_hidden_layers", MODEL_MAX_LAYERS, &model->n_layers, err);
    if (status == QUIRE_OK)
        status = read_heads(config, arch, model->hidden_size, &layer->blocks[0].attention, err);
    if (status == QUIRE_OK)
        status = quire_json_u32(config, CONFIG, "max_position_embeddings", 1, MODEL_MAX_POSITIONS, &model->max_position,
                                err);
    if (status == QUIRE_OK)
        status = quire_json_f64(config, CONFIG, arch->encoder ? "layer_norm_eps" : "rms_norm_eps", 0.0, 1.0, &eps, err);
    model->rms_eps = (float)eps;
    return status;
}

/* Decoders that were made into encoders, which embed texts: their attention sees the whole text. */
static int refuse_whole_texts(const json_t *config, struct quire_error *err)
{
    bool is_causal = true, is_whole = false;
    int status = quire_json_bool(config, CONFIG, "is_causal", &is_causal, err);
    if (status == QUIRE_OK)
        status = quire_json_bool(config, CONFIG, "use_bidirectional_attention", &is_whole, err);
    if (status != QUIRE_OK || (is_causal && !is_whole))
        return status;
    return quire_fail(err, QUIRE_UNSUPPORTED, CONFIG ": %s: %s is not supported for a decoder (causal attention is)",
                      is_causal ? "use_bidirectional_attention" : "is_causal", is_causal ? "true" : "false");
}

static int read_activation(const json_t *config, const struct architecture *arch, struct model_mlp *mlp,
                           struct quire_error *err)
{
    const char *key = "hidden_activation", *act = NULL, *only = arch->gemma ? "gelu_pytorch_tanh" : "silu";
    char shown[48];
    int status = arch->gemma ? quire_json_string(config, CONFIG, key, &act, err) : QUIRE_OK;
    if (status == QUIRE_OK && !act)
        status = quire_json_string(config, CONFIG, key = "hidden_act", &act, err);
    if (status != QUIRE_OK)
        return status;
    mlp->activation = arch->gemma ? ACTIVATION_GELU_TANH_MUL : ACTIVATION_SILU_MUL;
    /* The first Gemma's files say "gelu", and the approximation is meant. */
    const bool is_old = arch->gemma && act && strcmp(key, "hidden_act") == 0 && strcmp(act, "gelu") == 0;
    const bool is_swish = !arch->gemma && act && strcmp(act, "swish") == 0; /* another name of SiLU */
    if (!act || strcmp(act, only) == 0 || is_old || is_swish)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_UNSUPPORTED, CONFIG ": %s: '%s' is not supported; supported: %s", key,
                      model_shown(act, shown, sizeof shown), only);
}

/* null: none, 0. */
static int read_softcap(const json_t *config, const char *key, double absent, float *out, struct quire_error *err)
{
    double cap = has_key(config, key) ? 0.0 : absent;
    int status = quire_json_f64(config, CONFIG, key, 1e-3, 1e6, &cap, err);
    *out = (float)cap;
    return status;
}

static int read_gemma(const json_t *config, const struct architecture *arch, struct model_config *model,
                      struct model_attention *a, struct quire_error *err)
{
    double scalar = arch->default_query_scalar;
    model->norms_add_one = true;
    model->factors.embedding = (float)sqrt((double)model->hidden_size);
    if (scalar == 0)
        return QUIRE_OK;
    int status = quire_json_f64(config, CONFIG, "query_pre_attn_scalar", 1e-3, 1e6, &scalar, err);
    if (status == QUIRE_OK && arch->default_softcap > 0) /* Gemma 3 has the field, but its attention does not use it */
        status = read_softcap(config, "attn_logit_softcapping", arch->default_softcap, &a->softcap, err);
    if (status == QUIRE_OK)
        status = read_softcap(config, "final_logit_softcapping", arch->default_logit_softcap,
                              &model->factors.logit_softcap, err);
    a->scale = (float)(1.0 / sqrt(scalar));
    return status;
}

static int read_multipliers(const json_t *config, struct model_config *model, struct model_attention *a,
                            struct quire_error *err)
{
    double of[4] = {1.0, 1.0, 1.0, 1.0};
    static const char *const keys[4] = {"embedding_multiplier", "residual_multiplier", "attention_multiplier",
                                        "logits_scaling"};
    for (size_t i = 0; i < 4; i++) {
        const int status = quire_json_f64(config, CONFIG, keys[i], 1e-6, 1e6, &of[i], err);
        if (status != QUIRE_OK)
            return status;
    }
    model->factors.embedding = (float)of[0];
    model->factors.residual = of[1] == 1.0 ? 0 : (float)of[1];
    model->factors.logits = of[3] == 1.0 ? 0 : (float)(1.0 / of[3]);
    a->scale = (float)of[2];
    return QUIRE_OK;
}

static int read_features(const json_t *config, const struct architecture *arch, struct model_config *model,
                         struct model_layer *layer, struct quire_error *err)
{
    bool attention_bias = arch->attention_bias, qkv_bias = arch->qkv_bias, norms_heads = false;
    int status = refuse_whole_texts(config, err);
    model->tied_embeddings = arch->tied;
    model->fused = arch->fused;
    if (status == QUIRE_OK)
        status = read_activation(config, arch, &layer->blocks[1].mlp, err);
    if (status == QUIRE_OK)
        status = quire_json_bool(config, CONFIG, "tie_word_embeddings", &model->tied_embeddings, err);
    if (status == QUIRE_OK && arch->reads_attention_bias)
        status = quire_json_bool(config, CONFIG, "attention_bias", &attention_bias, err);
    if (status == QUIRE_OK && arch->reads_mlp_bias)
        status = quire_json_bool(config, CONFIG, "mlp_bias", &layer->blocks[1].mlp.bias, err);
    if (status == QUIRE_OK && arch->experts && arch->qkv_bias)
        status = quire_json_bool(config, CONFIG, "qkv_bias", &qkv_bias, err);
    if (status == QUIRE_OK && arch->experts && json_is_number(json_object_get(config, "clip_qkv")))
        return quire_fail(err, QUIRE_UNSUPPORTED, CONFIG ": clip_qkv: is not supported: q, k and v are not clipped");
    if (status == QUIRE_OK && arch->reads_head_norm)
        status = quire_json_bool(config, CONFIG, "use_qk_norm", &norms_heads, err);
    struct model_attention *a = &layer->blocks[0].attention;
    a->q_bias = a->k_bias = a->v_bias = qkv_bias || attention_bias;
    a->o_bias = attention_bias && !arch->no_o_bias;
    a->sinks = arch->sinks;
    if (arch->reads_head_norm && !norms_heads)
        a->head_norm = HEAD_NORM_NONE;
    if (status == QUIRE_OK && arch->gemma)
        status = read_gemma(config, arch, model, a, err);
    return status == QUIRE_OK && arch->reads_multipliers ? read_multipliers(config, model, a, err) : status;
}

/* ---- encoders ------------------------------------------------------------------------- */

#define MAX_SEGMENTS 1024u
#define MAX_LABELS (1u << 16)

/* Rejects settings of a config.json that would make it a different model. */
static int refuse_other_encoders(const json_t *config, struct quire_error *err)
{
    static const struct {
        const char *key, *only;
    } strings[] = {{"hidden_act", "gelu"}, {"position_embedding_type", "absolute"}};
    static const char *const switches[] = {"is_decoder", "add_cross_attention"};
    for (size_t i = 0; i < 2; i++) {
        const char *says = strings[i].only;
        bool on = false;
        char shown[48];
        int status = quire_json_string(config, CONFIG, strings[i].key, &says, err);
        if (status == QUIRE_OK && strcmp(says, strings[i].only) != 0)
            return quire_fail(err, QUIRE_UNSUPPORTED,
                              CONFIG ": %s: '%s' is not supported for an encoder; supported: %s", strings[i].key,
                              model_shown(says, shown, sizeof shown), strings[i].only);
        if (status == QUIRE_OK)
            status = quire_json_bool(config, CONFIG, switches[i], &on, err);
        if (status != QUIRE_OK)
            return status;
        if (on)
            return quire_fail(err, QUIRE_UNSUPPORTED, CONFIG ": %s: is not supported for an encoder", switches[i]);
    }
    return QUIRE_OK;
}

/* How many logits: id2label's, else num_labels', else 2 as the config class has it. */
static int read_labels(const json_t *config, struct model_config *model, struct quire_error *err)
{
    json_t *labels = NULL;
    model->outputs.n_labels = 2;
    int status = quire_json_object(config, CONFIG, "id2label", &labels, err);
    if (status == QUIRE_OK)
        status = quire_json_u32(config, CONFIG, "num_labels", 1, MAX_LABELS, &model->outputs.n_labels, err);
    if (status != QUIRE_OK || !labels)
        return status;
    if (json_object_size(labels) == 0 || json_object_size(labels) > MAX_LABELS)
        return quire_fail(err, QUIRE_INVALID, CONFIG ": id2label: must have 1 to %u labels", MAX_LABELS);
    model->outputs.n_labels = (uint32_t)json_object_size(labels);
    return QUIRE_OK;
}

static int read_encoder(const json_t *config, const struct architecture *arch, struct model_config *model,
                        struct model_layer *layer, struct quire_error *err)
{
    uint32_t padding = arch->roberta ? 1 : 0;
    const struct model_rope none = {.kind = MODEL_ROPE_NONE,
                                    .dim = layer->blocks[0].attention.k_dim,
                                    .theta = 10000.0,
                                    .factor = 1.0,
                                    .attention_factor = 1.0};
    int status = refuse_other_encoders(config, err);
    if (status == QUIRE_OK)
        status = model_make_layers(model, layer, &none, err);
    if (status != QUIRE_OK)
        return status;
    struct model_encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder)
        return quire_fail(err, QUIRE_NO_MEMORY, "model description: out of memory");
    model->encoder = encoder;
    encoder->roberta = arch->roberta;
    model->tied_embeddings = true; /* there is no head that has logits of tokens */
    model->final_norm = NORM_LAYER;
    encoder->n_segments = 2;
    status = quire_json_u32(config, CONFIG, "type_vocab_size", 0, MAX_SEGMENTS, &encoder->n_segments, err);
    if (status == QUIRE_OK)
        status = quire_json_u32(config, CONFIG, "pad_token_id", 0, MAX_VOCAB, &padding, err);
    if (status != QUIRE_OK)
        return status;
    encoder->n_positions = model->max_position;
    encoder->first_position = arch->roberta ? padding + 1 : 0;
    if (encoder->first_position >= encoder->n_positions)
        return quire_fail(err, QUIRE_INVALID, CONFIG ": pad_token_id: %u leaves no position of %u", padding,
                          encoder->n_positions);
    model->max_position -= encoder->first_position;
    model->outputs.kind = OUTPUT_VECTOR;
    model->outputs.pooling = POOLING_MEAN;
    model->outputs.vector_size = model->hidden_size;
    if (!arch->classifier)
        return QUIRE_OK;
    status = read_labels(config, model, err);
    model->outputs.kind = OUTPUT_SCORES;
    model->outputs.pooling = POOLING_CLS;
    model->outputs.vector_size = model->outputs.n_labels;
    return status;
}

/* ---- windows ------------------------------------------------------------------------- */

/* sliding_window: absent means the config class' default; null means no window, 0 in *out. */
static int read_window(const json_t *config, const struct architecture *arch, uint32_t *out, struct quire_error *err)
{
    *out = has_key(config, "sliding_window") ? 0 : arch->default_window ? arch->default_window : 4096;
    return quire_json_u32(config, CONFIG, "sliding_window", 1, INT32_MAX, out, err);
}

static uint32_t window_of(const struct model_config *model, uint32_t layer)
{
    return model->layers[layer].blocks[0].attention.window;
}

/* If the architecture reads layer_types, it decides. Otherwise it must agree with the architecture. */
static int apply_layer_types(const json_t *types, const struct architecture *arch, uint32_t window,
                             struct model_config *model, struct quire_error *err)
{
    if (json_array_size(types) != model->n_layers)
        return quire_fail(err, QUIRE_INVALID, CONFIG ": layer_types: has %zu entries, but num_hidden_layers is %u",
                          json_array_size(types), model->n_layers);
    for (uint32_t i = 0; i < model->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type)
            return quire_fail(err, QUIRE_INVALID, CONFIG ": layer_types: must hold strings");
        bool sliding = strcmp(type, "sliding_attention") == 0;
        if (!sliding && strcmp(type, "full_attention") != 0 && strcmp(type, "attention") != 0) {
            char shown[48];
            return quire_fail(err, QUIRE_UNSUPPORTED,
                              CONFIG ": layer_types: '%s' is not supported (full_attention and"
                                     " sliding_attention are)",
                              model_shown(type, shown, sizeof shown));
        }
        if (sliding && window == 0)
            return quire_fail(err, QUIRE_INVALID,
                              CONFIG ": layer_types: layer %u is sliding_attention, but"
                                     " sliding_window is not set or not used",
                              i);
        uint32_t says = sliding ? window : 0;
        if (arch->window < WINDOW_UPPER_LAYERS && says != window_of(model, i))
            return quire_fail(err, QUIRE_UNSUPPORTED, CONFIG ": layer_types: layer %u as %s is not supported for %s", i,
                              sliding ? "sliding_attention" : "full_attention", arch->name);
        model_set_window(model, i, says);
    }
    return QUIRE_OK;
}

/* layer_types, else all layers slide but each pattern-th. */
static int read_pattern(const json_t *config, const struct architecture *arch, struct model_config *model,
                        struct quire_error *err)
{
    json_t *types = NULL;
    uint32_t window = 0, pattern = arch->window_pattern;
    int status = read_window(config, arch, &window, err);
    if (status == QUIRE_OK)
        status = quire_json_u32(config, CONFIG, "sliding_window_pattern", 1, INT32_MAX, &pattern, err);
    if (status == QUIRE_OK)
        status = quire_json_array(config, CONFIG, "layer_types", &types, err);
    for (uint32_t i = 0; status == QUIRE_OK && i < model->n_layers; i++)
        model_set_window(model, i, (i + 1) % pattern != 0 ? window : 0);
    return status == QUIRE_OK && types ? apply_layer_types(types, arch, window, model, err) : status;
}

static int read_windows(const json_t *config, const struct architecture *arch, struct model_config *model,
                        struct quire_error *err)
{
    json_t *types = NULL;
    bool use = arch->window == WINDOW_EVERY_LAYER ||
               (arch->window == WINDOW_EVERY_LAYER_OR_NONE && has_key(config, "sliding_window"));
    uint32_t window = 0, first = use ? 0 : 28;
    int status = QUIRE_OK;
    if (arch->window == WINDOW_PATTERN)
        return read_pattern(config, arch, model, err);
    if (arch->window >= WINDOW_UPPER_LAYERS) {
        status = quire_json_bool(config, CONFIG, "use_sliding_window", &use, err);
        if (status == QUIRE_OK && use && arch->window == WINDOW_REFUSED)
            return quire_fail(err, QUIRE_UNSUPPORTED, CONFIG ": use_sliding_window: true is not supported for %s",
                              arch->name);
        if (status == QUIRE_OK)
            status = quire_json_u32(config, CONFIG, "max_window_layers", 0, INT32_MAX, &first, err);
    }
    if (status == QUIRE_OK && use)
        status = read_window(config, arch, &window, err);
    if (status == QUIRE_OK)
        status = quire_json_array(config, CONFIG, "layer_types", &types, err);
    if (status != QUIRE_OK)
        return status;
    if (arch->window == WINDOW_LAYER_TYPES && window && !types)
        return quire_fail(err, QUIRE_INVALID, CONFIG ": layer_types: is missing, but use_sliding_window is true");
    for (uint32_t i = 0; i < model->n_layers; i++)
        model_set_window(model, i, i >= first ? window : 0);
    return types ? apply_layer_types(types, arch, window, model, err) : QUIRE_OK;
}

static int read_decoder(const json_t *config, const struct architecture *arch, struct model_config *model,
                        struct model_layer *layer, struct quire_error *err)
{
    struct model_rope rope = {.dim = layer->blocks[0].attention.k_dim};
    int status = read_features(config, arch, model, layer, err);
    if (status == QUIRE_OK)
        status = model_make_layers(model, layer, &rope, err);
    if (status == QUIRE_OK && arch->experts)
        status = model_experts_config(config, arch->experts, model, err);
    if (status == QUIRE_OK)
        status = read_windows(config, arch, model, err);
    if (status == QUIRE_OK)
        status = quire_json_u32(config, CONFIG, "num_nextn_predict_layers", 0, MODEL_MAX_LAYERS, &model->n_next_layers,
                                err);
    return status == QUIRE_OK ? model_ropes_config(config, &arch->rope, model, err) : status;
}

/* ---- tokens and sampling ------------------------------------------------------------- */

static int add_eos(const json_t *value, const char *where, struct model_config *model, struct quire_error *err)
{
    if (!json_is_integer(value))
        return quire_fail(err, QUIRE_INVALID, "%s: eos_token_id: must be an integer or a list of integers", where);
    json_int_t id = json_integer_value(value);
    if (id == -1) /* how some exporters write "none" */
        return QUIRE_OK;
    if (id < 0 || id >= model->vocab_size)
        return quire_fail(err, QUIRE_INVALID, "%s: eos_token_id: must be between 0 and vocab_size - 1 (%u), got %lld",
                          where, model->vocab_size - 1, (long long)id);
    for (uint32_t i = 0; i < model->tokens.n_eos; i++)
        if (model->tokens.eos[i] == (uint32_t)id)
            return QUIRE_OK;
    if (model->tokens.n_eos == MODEL_MAX_EOS)
        return quire_fail(err, QUIRE_UNSUPPORTED, "%s: eos_token_id: more than %d ids", where, MODEL_MAX_EOS);
    model->tokens.eos[model->tokens.n_eos++] = (uint32_t)id;
    return QUIRE_OK;
}

/* Replaces eos and bos by the values in object. A field that object lacks stays unchanged. */
static int read_token_ids(const json_t *object, const char *where, struct model_config *model, struct quire_error *err)
{
    const json_t *eos = json_object_get(object, "eos_token_id");
    if (eos && !json_is_null(eos)) {
        model->tokens.n_eos = 0;
        size_t i;
        json_t *item;
        if (!json_is_array(eos)) {
            int status = add_eos(eos, where, model, err);
            if (status != QUIRE_OK)
                return status;
        }
        json_array_foreach(eos, i, item)
        {
            int status = add_eos(item, where, model, err);
            if (status != QUIRE_OK)
                return status;
        }
    }
    /* −1 is how some exporters write "none". */
    return quire_json_i64(object, where, "bos_token_id", -1, (int64_t)model->vocab_size - 1, &model->tokens.bos, err);
}

static int read_config_tokens(const json_t *config, const struct architecture *arch, struct model_config *model,
                              struct quire_error *err)
{
    model->tokens.n_eos = 0;
    model->tokens.bos = has_key(config, "bos_token_id") ? -1 : arch->default_bos;
    if (model->tokens.bos >= model->vocab_size)
        model->tokens.bos = -1;
    if (!has_key(config, "eos_token_id") && arch->default_eos >= 0 && arch->default_eos < model->vocab_size)
        model->tokens.eos[model->tokens.n_eos++] = (uint32_t)arch->default_eos;
    return read_token_ids(config, CONFIG, model, err);
}

static int read_default(const json_t *generation, const char *key, double min, double max, bool *has, double *out,
                        struct quire_error *err)
{
    const json_t *value = json_object_get(generation, key);
    *has = value && !json_is_null(value);
    return quire_json_f64(generation, GENERATION, key, min, max, out, err);
}

static int read_generation(const json_t *generation, struct model_config *model, struct sampling_defaults *s,
                           struct quire_error *err)
{
    int64_t top_k = 0;
    int status = read_token_ids(generation, GENERATION, model, err);
    if (status == QUIRE_OK)
        status = read_default(generation, "temperature", 0.0, 1000.0, &s->has_temperature, &s->temperature, err);
    if (status == QUIRE_OK)
        status = read_default(generation, "top_p", 0.0, 1.0, &s->has_top_p, &s->top_p, err);
    if (status == QUIRE_OK)
        status = read_default(generation, "min_p", 0.0, 1.0, &s->has_min_p, &s->min_p, err);
    if (status == QUIRE_OK)
        status = read_default(generation, "repetition_penalty", 1e-3, 1e3, &s->has_repetition_penalty,
                              &s->repetition_penalty, err);
    if (status == QUIRE_OK)
        status = quire_json_i64(generation, GENERATION, "top_k", -1, UINT32_MAX, &top_k, err);
    if (status == QUIRE_OK) {
        const json_t *value = json_object_get(generation, "top_k");
        s->has_top_k = value && !json_is_null(value);
        s->top_k = top_k < 0 ? 0 : (uint32_t)top_k; /* −1 and 0 both mean off */
    }
    return status;
}

/* ---- the whole ----------------------------------------------------------------------- */

static int read_all(const json_t *config, const json_t *generation, struct model_config *model,
                    struct sampling_defaults *sampling, struct quire_error *err)
{
    const struct architecture *arch = NULL;
    memset(sampling, 0, sizeof *sampling);
    if (!json_is_object(config))
        return quire_fail(err, QUIRE_INVALID, CONFIG ": must be a JSON object");
    if (generation && !json_is_object(generation))
        return quire_fail(err, QUIRE_INVALID, GENERATION ": must be a JSON object");

    int status = architecture_find(config, &arch, err);
    if (status != QUIRE_OK)
        return status;
    struct model_layer layer = arch->encoder ? model_encoder_layer()
                                             : model_decoder_layer(arch->norm_place, arch->head_norm);
    snprintf(model->architecture, sizeof model->architecture, "%s", arch->name);
    status = quantization_read(config, model->quantization, err);
    if (status == QUIRE_OK)
        status = read_dtype(config, model, err);
    if (status == QUIRE_OK)
        status = read_sizes(config, arch, model, &layer, err);
    if (status == QUIRE_OK)
        status = (arch->encoder ? read_encoder : read_decoder)(config, arch, model, &layer, err);
    if (status == QUIRE_OK)
        status = read_config_tokens(config, arch, model, err);
    if (status == QUIRE_OK && generation)
        status = read_generation(generation, model, sampling, err);
    return status;
}

/* text: of a multimodal config, as a config.json of its own; else NULL. */
static int read_part(const json_t *config, const json_t *text, const json_t *generation, struct model_config *model,
                     struct sampling_defaults *sampling, struct quire_error *err)
{
    const int status = read_all(text ? text : config, generation, model, sampling, err);
    if (status == QUIRE_OK || !text || !err)
        return status;
    const struct quire_error made = *err;
    return quire_fail(err, status, "text_config, as a %.400s", made.text);
}

static int describe(const json_t *config, const json_t *generation, struct model_config **out,
                    struct sampling_defaults *sampling, struct quire_error *err)
{
    struct model_config *model = calloc(1, sizeof *model);
    *out = NULL;
    if (model)
        model->quantization = calloc(1, sizeof *model->quantization);
    if (!model || !model->quantization) {
        model_config_free(model);
        return quire_fail(err, QUIRE_NO_MEMORY, "model description: out of memory");
    }
    json_t *text = NULL;
    const char *whole = NULL;
    int status = multimodal_text(config, &text, &whole, err);
    if (status == QUIRE_OK)
        status = read_part(config, text, generation, model, sampling, err);
    json_decref(text);
    snprintf(model->multimodal, sizeof model->multimodal, "%s", whole ? whole : "");
    if (status == QUIRE_OK)
        *out = model;
    else
        model_config_free(model);
    return status;
}

int model_describe_json(const char *config, size_t n_config, const char *generation, size_t n_generation,
                        struct model_config **out, struct sampling_defaults *sampling, struct quire_error *err)
{
    json_t *config_json = NULL, *generation_json = NULL;
    *out = NULL;
    int status = quire_json_parse_python(config, n_config, CONFIG, &config_json, err);
    if (status == QUIRE_OK && generation)
        status = quire_json_parse_python(generation, n_generation, GENERATION, &generation_json, err);
    if (status == QUIRE_OK)
        status = describe(config_json, generation_json, out, sampling, err);
    json_decref(config_json);
    json_decref(generation_json);
    return status;
}

/* *out stays NULL where an optional file does not exist. */
static int read_json(const char *model, const char *name, bool optional, json_t **out, struct quire_error *err)
{
    struct buffer text = {0};
    *out = NULL;
    int status = model_file_read(model, name, MAX_CONFIG_BYTES, &text, err);
    if (status == QUIRE_OK)
        status = quire_json_parse_python(text.data, text.n, name, out, err);
    else if (status == QUIRE_NOT_FOUND && optional)
        status = QUIRE_OK;
    buffer_free(&text);
    return status;
}

#define MODULE_FILE_BYTES 96
/* The file in one of the model's folders, whose name modules.json has. */
static int read_module(const char *dir, const char *folder, char name[MODULE_FILE_BYTES], json_t **out,
                       struct quire_error *err)
{
    if (folder[0] == '\0' || strlen(folder) >= MODEL_FOLDER_BYTES || strspn(folder, MODULE_NAME) != strlen(folder))
        return quire_fail(err, QUIRE_INVALID, "modules.json: path: must be the name of a folder of the model");
    snprintf(name, MODULE_FILE_BYTES, "%s/" CONFIG, folder);
    return read_json(dir, name, false, out, err);
}

int model_describe_vector(const char *model_dir, struct model_config *model, struct quire_error *err)
{
    json_t *modules = NULL, *pooling = NULL, *dense = NULL, *limits = NULL;
    struct pooling_folders folders = {NULL, NULL};
    char pooling_file[MODULE_FILE_BYTES] = "", dense_file[MODULE_FILE_BYTES] = "";
    int status = read_json(model_dir, "modules.json", true, &modules, err);
    if (status == QUIRE_OK)
        status = pooling_modules(modules, model, &folders, err);
    if (status == QUIRE_OK && folders.pooling)
        status = read_module(model_dir, folders.pooling, pooling_file, &pooling, err);
    if (status == QUIRE_OK && folders.dense)
        status = read_module(model_dir, folders.dense, dense_file, &dense, err);
    if (status == QUIRE_OK)
        status = read_json(model_dir, "sentence_bert_config.json", true, &limits, err);
    if (status == QUIRE_OK)
        status = pooling_config(pooling, pooling_file, limits, model, err);
    if (status == QUIRE_OK)
        status = pooling_dense(dense, dense_file, model, err);
    if (status == QUIRE_OK && dense)
        snprintf(model->outputs.dense.folder, sizeof model->outputs.dense.folder, "%s", folders.dense);
    json_decref(modules);
    json_decref(pooling);
    json_decref(dense);
    json_decref(limits);
    return status;
}

#define POOLING "pooling's config.json"
#define DENSE "Dense's config.json"
static int parse_optional(const char *text, const char *where, json_t **out, struct quire_error *err)
{
    return text ? quire_json_parse_python(text, strlen(text), where, out, err) : QUIRE_OK;
}

int model_describe_vector_json(const char *modules, const char *pooling, const char *dense, const char *limits,
                               struct model_config *model, struct quire_error *err)
{
    json_t *modules_json = NULL, *pooling_json = NULL, *dense_json = NULL, *limits_json = NULL;
    struct pooling_folders folders;
    int status = parse_optional(modules, "modules.json", &modules_json, err);
    if (status == QUIRE_OK)
        status = parse_optional(pooling, POOLING, &pooling_json, err);
    if (status == QUIRE_OK)
        status = parse_optional(dense, DENSE, &dense_json, err);
    if (status == QUIRE_OK)
        status = parse_optional(limits, "sentence_bert_config.json", &limits_json, err);
    if (status == QUIRE_OK)
        status = pooling_modules(modules_json, model, &folders, err);
    if (status == QUIRE_OK)
        status = pooling_config(pooling_json, POOLING, limits_json, model, err);
    if (status == QUIRE_OK)
        status = pooling_dense(dense_json, DENSE, model, err);
    json_decref(modules_json);
    json_decref(pooling_json);
    json_decref(dense_json);
    json_decref(limits_json);
    return status;
}

/* A GGUF file's user has no config.json to look into. */
static int name_file(const char *model, int status, struct quire_error *err)
{
    const char *slash = strrchr(model, '/');
    if (status == QUIRE_OK || !err || !model_is_gguf(model))
        return status;
    const struct quire_error made = *err;
    return quire_fail(err, status, "%.100s: its keys, as a %.300s", slash ? slash + 1 : model, made.text);
}

/* GGUF has one set of names for experts, and norms' weights as they are used. */
static void take_gguf(struct model_config *model)
{
    model->norms_add_one = false;
    for (uint32_t l = 0; l < model->n_layers; l++)
        for (uint32_t i = 0; i < model->layers[l].n_blocks; i++) {
            struct model_experts *e = &model->layers[l].blocks[i].experts;
            if (model->layers[l].blocks[i].kind == BLOCK_EXPERTS)
                e->names = e->names == EXPERTS_TRANSPOSED ? EXPERTS_GATE_PROJ_BIAS : EXPERTS_GATE_PROJ;
        }
}

int model_describe(const char *model_dir, struct model_config **out, struct sampling_defaults *sampling,
                   struct quire_error *err)
{
    json_t *config = NULL, *generation = NULL;
    *out = NULL;
    int status = read_json(model_dir, CONFIG, false, &config, err);
    if (status == QUIRE_OK)
        status = read_json(model_dir, GENERATION, true, &generation, err);
    if (status == QUIRE_OK)
        status = name_file(model_dir, describe(config, generation, out, sampling, err), err);
    if (status == QUIRE_OK && model_is_gguf(model_dir))
        take_gguf(*out);
    json_decref(config);
    json_decref(generation);
    if (status == QUIRE_OK && (*out)->encoder)
        status = model_describe_vector(model_dir, *out, err);
    if (status != QUIRE_OK) {
        model_config_free(*out);
        *out = NULL;
    }
    return status;
}
