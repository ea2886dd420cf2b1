#include "tiny_model.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HIDDEN 32u
#define LAYERS 2u
#define INNER 48u
#define Q_ROWS 32u  /* 2 heads of 16 */
#define KV_ROWS 16u /* 1 head */

struct writer {
    const struct tiny_spec *spec;
    char header[8192];
    size_t n_header;
    float *data;
    size_t n_data; /* floats */
    uint64_t state;
};

static void fail(const char *what)
{
    perror(what);
    abort();
}

/* Roughly normal, of deviation 1: the sum of four uniforms, scaled. */
static float noise(struct writer *w)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        w->state = w->state * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(w->state >> 40) * 0x1p-24f - 0.5f;
    }
    return sum * 1.7320508f;
}

static void add(struct writer *w, const char *name, uint32_t rows, uint32_t cols, float spread, float mean)
{
    if (w->spec->omit && strcmp(name, w->spec->omit) == 0)
        return;
    uint32_t listed = rows + (w->spec->break_shape && strcmp(name, w->spec->break_shape) == 0);
    size_t n = (size_t)listed * (cols ? cols : 1), begin = w->n_data * sizeof(float);
    w->data = realloc(w->data, (w->n_data + n) * sizeof(float));
    if (!w->data)
        fail("memory");
    for (size_t i = 0; i < n; i++)
        w->data[w->n_data++] = mean + spread * noise(w);
    char shape[32];
    if (cols)
        snprintf(shape, sizeof shape, "%u,%u", listed, cols);
    else
        snprintf(shape, sizeof shape, "%u", listed);
    w->n_header += (size_t)snprintf(w->header + w->n_header, sizeof w->header - w->n_header,
                                    "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                                    w->n_header > 1 ? "," : "", name, shape, begin, w->n_data * sizeof(float));
}

static void add_layer(struct writer *w, uint32_t layer)
{
    static const struct {
        const char *part;
        uint32_t rows, cols;
    } parts[] = {
        {"self_attn.q_proj", Q_ROWS, HIDDEN},    {"self_attn.k_proj", KV_ROWS, HIDDEN},
        {"self_attn.v_proj", KV_ROWS, HIDDEN},   {"self_attn.o_proj", HIDDEN, Q_ROWS},
        {"mlp.gate_proj", INNER, HIDDEN},        {"mlp.up_proj", INNER, HIDDEN},
        {"mlp.down_proj", HIDDEN, INNER},        {"input_layernorm", HIDDEN, 0},
        {"post_attention_layernorm", HIDDEN, 0},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[128];
        snprintf(name, sizeof name, "%slayers.%u.%s.weight", w->spec->prefix, layer, parts[i].part);
        bool norm = parts[i].cols == 0;
        add(w, name, parts[i].rows, parts[i].cols, norm ? 0.1f : 1.2f / sqrtf((float)parts[i].cols), norm ? 1 : 0);
    }
}

static void write_file(const char *dir, const char *name, const void *a, size_t n_a, const void *b, size_t n_b)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(a, 1, n_a, file) != n_a || (n_b && fwrite(b, 1, n_b, file) != n_b) || fclose(file) != 0)
        fail(path);
}

static void write_weights(struct writer *w, const char *dir)
{
    w->header[w->n_header++] = '}';
    while (w->n_header % 8)
        w->header[w->n_header++] = ' ';
    unsigned char head[8 + sizeof w->header];
    for (int i = 0; i < 8; i++)
        head[i] = (unsigned char)((uint64_t)w->n_header >> (8 * i));
    memcpy(head + 8, w->header, w->n_header);
    write_file(dir, "model.safetensors", head, 8 + w->n_header, w->data, w->n_data * sizeof(float));
}

void tiny_model_write(const struct tiny_spec *spec, struct tiny_model *out)
{
    static const char format[] =
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"dtype\":\"float32\","
        "\"vocab_size\":%u,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":16,"
        "\"max_position_embeddings\":256,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false,"
        "\"bos_token_id\":0,\"eos_token_id\":1}";
    char config[sizeof format + 16];
    const uint32_t n_vocab = spec->n_vocab ? spec->n_vocab : TINY_VOCAB;
    size_t n_config = (size_t)snprintf(config, sizeof config, format, n_vocab);
    struct writer *w = calloc(1, sizeof *w);
    if (!w)
        fail("memory");
    snprintf(out->dir, sizeof out->dir, "/tmp/quire-tiny-XXXXXX");
    if (!mkdtemp(out->dir))
        fail(out->dir);
    w->spec = spec;
    w->state = spec->seed * 0x9E3779B97F4A7C15u + 12345;
    w->header[w->n_header++] = '{';
    char name[64];
    snprintf(name, sizeof name, "%sembed_tokens.weight", spec->prefix);
    add(w, name, n_vocab, HIDDEN, 1, 0);
    if (spec->nan_token >= 0)
        w->data[(size_t)spec->nan_token * HIDDEN + 3] = NAN;
    for (uint32_t i = 0; i < LAYERS; i++)
        add_layer(w, i);
    snprintf(name, sizeof name, "%snorm.weight", spec->prefix);
    add(w, name, HIDDEN, 0, 0.1f, 1);
    add(w, "lm_head.weight", n_vocab, HIDDEN, 2.0f / sqrtf(HIDDEN), 0);
    write_weights(w, out->dir);
    write_file(out->dir, "config.json", config, n_config, NULL, 0);
    if (spec->tokenizer)
        write_file(out->dir, "tokenizer.json", spec->tokenizer, strlen(spec->tokenizer), NULL, 0);
    free(w->data);
    free(w);
}

void tiny_model_plain(uint64_t seed, struct tiny_model *out)
{
    tiny_model_write(&(struct tiny_spec){.seed = seed, .nan_token = -1, .prefix = "model."}, out);
}

void tiny_model_remove(const struct tiny_model *m)
{
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", m->dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", m->dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/tokenizer.json", m->dir);
    unlink(path);
    rmdir(m->dir);
}
