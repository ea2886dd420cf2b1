#include "engine/model/architectures/multimodal.h"

#include "base/encoding/json.h"
#include "engine/model/rope_config.h"

#include <stdbool.h>
#include <string.h>

#define CONFIG "config.json"
#define TEXT_CONFIG CONFIG ": text_config"

/* A text model, and the sizes that its config class in transformers has for absent fields: text_config lists only
 * what differs from them. */
struct text_model {
    const char *model_type, *architecture;
    uint32_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads;
};

static const struct text_model gemma3 = {"gemma3_text", "Gemma3ForCausalLM", 262208, 2304, 9216, 26, 8};
static const struct text_model llama = {"llama", "LlamaForCausalLM", 32000, 4096, 11008, 32, 32};
static const struct text_model mistral = {"mistral", "MistralForCausalLM", 32000, 4096, 14336, 32, 32};
static const struct text_model qwen2 = {"qwen2_5_vl_text", "Qwen2ForCausalLM", 152064, 8192, 29568, 80, 64};
static const struct text_model qwen3 = {"qwen3_vl_text", "Qwen3ForCausalLM", 151936, 4096, 22016, 32, 32};

#define MAX_TEXTS 2
static const struct multimodal {
    const char *name, *model_type;
    const struct text_model *texts[MAX_TEXTS]; /* the first where text_config has no model_type */
    bool flat; /* old files have the text model's fields beside vision_config */
} multimodals[] = {
    {"Gemma3ForConditionalGeneration", "gemma3", {&gemma3}, false},
    {"Mistral3ForConditionalGeneration", "mistral3", {&mistral}, false},
    {"LlavaForConditionalGeneration", "llava", {&llama, &mistral}, false},
    {"LlavaNextForConditionalGeneration", "llava_next", {&llama, &mistral}, false},
    {"Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", {&qwen2}, true},
    {"Qwen3VLForConditionalGeneration", "qwen3_vl", {&qwen3}, false},
};

static const struct multimodal *find(const json_t *config)
{
    const json_t *list = json_object_get(config, "architectures");
    const char *name = json_string_value(json_array_get(list, 0)),
               *type = json_string_value(json_object_get(config, "model_type"));
    for (size_t i = 0; i < sizeof multimodals / sizeof *multimodals; i++) {
        const struct multimodal *m = &multimodals[i];
        if (json_array_size(list) > 0 ? name && strcmp(name, m->name) == 0 : type && strcmp(type, m->model_type) == 0)
            return m;
    }
    return NULL;
}

static const struct text_model *choose(const struct multimodal *m, const json_t *text)
{
    const char *type = json_string_value(json_object_get(text, "model_type"));
    if (!type || strcmp(type, m->model_type) == 0)
        return m->texts[0];
    for (size_t i = 0; i < MAX_TEXTS && m->texts[i]; i++)
        if (strcmp(type, m->texts[i]->model_type) == 0)
            return m->texts[i];
    return NULL;
}

/* Tokens that are all text have the same position in the three axes of an mrope, so it rotates as a plain RoPE does. */
static int make_rope_plain(json_t *text)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *rope = json_object_get(text, keys[i]);
        if (!json_object_get(rope, "mrope_section"))
            continue;
        json_t *plain = json_copy((json_t *)(uintptr_t)rope);
        const char *type = json_string_value(json_object_get(plain, "type"));
        int failed = json_object_set_new(plain, "rope_type", json_string("default"));
        if (type && strcmp(type, "mrope") == 0)
            failed |= json_object_del(plain, "type");
        failed |= json_object_set_new(text, keys[i], plain);
        if (failed)
            return -1;
    }
    return 0;
}

/* Fields of the whole that also apply to the text part, where that does not set them. */
static const char *const inherited[] = {"dtype",        "torch_dtype",  "quantization_config", "tie_word_embeddings",
                                        "bos_token_id", "eos_token_id", "compression_config"};

/* Tools write null for a field that the whole decides. */
static bool lacks(const json_t *text, const char *key)
{
    const json_t *value = json_object_get(text, key);
    return !value || json_is_null(value);
}

static int complete(const json_t *config, const struct text_model *model, json_t *text)
{
    const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {{"vocab_size", model->vocab_size},
                 {"hidden_size", model->hidden_size},
                 {"intermediate_size", model->intermediate_size},
                 {"num_hidden_layers", model->num_hidden_layers},
                 {"num_attention_heads", model->num_attention_heads}};
    int failed = json_object_set_new(text, "architectures", json_pack("[s]", model->architecture));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (lacks(text, sizes[i].key))
            failed |= json_object_set_new(text, sizes[i].key, json_integer(sizes[i].value));
    for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++) {
        json_t *value = json_object_get(config, inherited[i]);
        if (value && lacks(text, inherited[i]))
            failed |= json_object_set(text, inherited[i], value);
    }
    return failed | make_rope_plain(text);
}

int multimodal_text(const json_t *config, json_t **text, const char **name, struct quire_error *err)
{
    const struct multimodal *m = find(config);
    json_t *own = NULL;
    char shown[64];
    *text = NULL;
    *name = NULL;
    if (!m)
        return QUIRE_OK;
    int status = quire_json_object(config, CONFIG, "text_config", &own, err);
    if (status != QUIRE_OK)
        return status;
    if (!own && !m->flat)
        return quire_fail(err, QUIRE_INVALID, TEXT_CONFIG ": is missing (%s)", m->name);
    const struct text_model *model = choose(m, own ? own : config);
    if (!model)
        return quire_fail(
            err, QUIRE_UNSUPPORTED, TEXT_CONFIG ": model_type: '%s' is not supported in %s; supported: %s%s%s",
            model_shown(json_string_value(json_object_get(own ? own : config, "model_type")), shown, sizeof shown),
            m->name, m->texts[0]->model_type, m->texts[1] ? ", " : "", m->texts[1] ? m->texts[1]->model_type : "");
    json_t *made = json_copy(own ? own : (json_t *)(uintptr_t)config);
    if (!made || complete(config, model, made) != 0) {
        json_decref(made);
        return quire_fail(err, QUIRE_NO_MEMORY, TEXT_CONFIG ": out of memory");
    }
    *text = made;
    *name = m->name;
    return QUIRE_OK;
}
