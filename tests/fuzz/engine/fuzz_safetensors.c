/* A safetensors image. Every accepted tensor lies inside the input and is used, known, ignored or rejected. */
#include "../fuzz.h"

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/describe.h"

#include "engine/model/weights.h"

#include <stdlib.h>
#include <string.h>

static void check_unused(const struct checkpoint *st)
{
    static const char config[] = "{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":100,\"hidden_size\":16,"
                                 "\"intermediate_size\":16,\"num_hidden_layers\":2,\"num_attention_heads\":1,"
                                 "\"tie_word_embeddings\":true,\"num_nextn_predict_layers\":1}";
    static struct model_config *model;
    static struct checkpoint_facts facts;
    static struct sampling_defaults sampling;
    struct quire_error err;
    struct weights_unused strict, ignored;
    struct checkpoint_tensor t;
    size_t n = 0, n_unused = 0;
    if (!model && model_describe_json(config, strlen(config), NULL, 0, &model, &sampling, &err) != QUIRE_OK)
        abort();
    const struct model_desc desc = {.config = model, .facts = &facts};
    while (checkpoint_at(st, n, &t))
        n++;
    if (weights_unused(st, &desc, true, &ignored, &err) != QUIRE_OK)
        abort();
    for (uint32_t i = 0; i < ignored.n; i++)
        n_unused += ignored.of[i].n;
    if (n_unused > n)
        abort();
    err.text[0] = '\0';
    if (weights_unused(st, &desc, false, &strict, &err) == QUIRE_OK ? memcmp(&strict, &ignored, sizeof strict) != 0
                                                                    : !err.text[0] || strchr(err.text, '\n'))
        abort();
}

static void check(const struct checkpoint *st, const char *name, const uint8_t *data, size_t n)
{
    struct checkpoint_tensor t;
    struct quire_error err;
    if (checkpoint_find(st, name, &t, &err) != QUIRE_OK)
        return;
    const uint8_t *begin = t.data;
    if (begin < data || begin > data + n || t.n_bytes > (size_t)(data + n - begin))
        abort();
    uint64_t n_elements = 1;
    for (uint32_t i = 0; i < t.n_dims; i++)
        n_elements *= t.shape[i];
    if (k_format_bytes(t.format, n_elements) != t.n_bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct checkpoint *st;
    struct quire_error err;
    if (checkpoint_open_memory(data, n, &st, &err) != QUIRE_OK)
        return 0;
    if (checkpoint_total_bytes(st) > n || checkpoint_n_files(st) != 1)
        abort();
    check(st, "a", data, n);
    check(st, "b", data, n);
    check(st, "model.norm.weight", data, n);
    check_unused(st);
    checkpoint_digest(st, false); /* reads every tensor */
    checkpoint_close(st);
    return 0;
}
