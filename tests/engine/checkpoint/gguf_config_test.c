/* The config.json that is made of a GGUF file's keys: tokens that end an answer, and layers with a window. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buffer.h"
#include "files/gguf_made.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* ---- an image of keys ------------------------------------------------------------------------------------ */

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };

struct image {
    struct buffer keys;
    uint64_t n;
};

static void put_u32(struct buffer *b, uint32_t v)
{
    buffer_append(b, &v, sizeof v);
}

static void put_u64(struct buffer *b, uint64_t v)
{
    buffer_append(b, &v, sizeof v);
}

static void put_text(struct buffer *b, const char *text)
{
    put_u64(b, strlen(text));
    buffer_append(b, text, strlen(text));
}

static void put_key(struct image *m, const char *key, uint32_t kind)
{
    put_text(&m->keys, key);
    put_u32(&m->keys, kind);
    m->n++;
}

static void put_number(struct image *m, const char *key, uint32_t value)
{
    put_key(m, key, U32);
    put_u32(&m->keys, value);
}

static void put_sizes(struct image *m, const char *arch)
{
    static const char *const keys[] = {"context_length", "embedding_length", "block_count", "feed_forward_length",
                                       "attention.head_count"};
    static const uint32_t values[] = {64, 64, 6, 32, 4};
    char key[80];
    put_key(m, "general.architecture", STRING);
    put_text(&m->keys, arch);
    for (size_t i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, keys[i]);
        put_number(m, key, values[i]);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    put_key(m, key, F32);
    put_u32(&m->keys, 0x358637bd);
}

static json_t *config_of(struct image *m)
{
    struct buffer whole = {0}, text = {0};
    struct gguf *g;
    struct quire_error err;
    buffer_append(&whole, "GGUF", 4);
    put_u32(&whole, 3);
    put_u64(&whole, 0);
    put_u64(&whole, m->n);
    buffer_append(&whole, m->keys.data, m->keys.n);
    if (gguf_open_memory(whole.data, whole.n, "m.gguf", &g, &err) != QUIRE_OK ||
        gguf_make_config(g, &text, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    json_t *config = json_loadb(text.data, text.n, 0, NULL);
    assert_non_null(config);
    gguf_close(g);
    buffer_free(&text);
    buffer_free(&whole);
    buffer_free(&m->keys);
    return config;
}

/* ---- ends ------------------------------------------------------------------------------------------------ */

/* eos: a key's value. want: the ids in the order of the list. */
static void check_ends(const char *const *tokens, uint32_t n, uint32_t kind, uint32_t eos, const char *want)
{
    struct image m = {.n = 0};
    char got[128] = "";
    put_sizes(&m, "llama");
    put_number(&m, "tokenizer.ggml.eos_token_id", eos);
    put_key(&m, "tokenizer.ggml.tokens", ARRAY);
    put_u32(&m.keys, STRING);
    put_u64(&m.keys, n);
    for (uint32_t i = 0; i < n; i++)
        put_text(&m.keys, tokens[i]);
    put_key(&m, "tokenizer.ggml.token_type", ARRAY);
    put_u32(&m.keys, I32);
    put_u64(&m.keys, n);
    for (uint32_t i = 0; i < n; i++)
        put_u32(&m.keys, kind);
    json_t *config = config_of(&m);
    const json_t *list = json_object_get(config, "eos_token_id");
    for (size_t i = 0; i < json_array_size(list); i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "",
                 (int)json_integer_value(json_array_get(list, i)));
    assert_string_equal(got, want);
    json_decref(config);
}

static void tokens_that_end_an_answer(void **state)
{
    (void)state;
    static const char *const usual[] = {"a", "<|end|>", "<EOT>", "[EOS]", "<|im_end|>", "</s>", "<end_of_turn>"};
    check_ends(usual, 7, 3, 0, "0 1 2 3 4 5 6");
    check_ends(usual, 7, 4, 5, "5 1 2 3 4 6");
    check_ends(usual, 7, 1, 5, "5"); /* text that looks so */
    static const char *const messages[] = {"<|start|>", "<|end|>", "<|return|>", "<|call|>", "<|message|>"};
    check_ends(messages, 5, 3, 2, "2 3");
    check_ends(messages, 3, 3, 2, "2 1"); /* without calls it is an end */
    check_ends(messages, 5, 3, 1, "2 3");
    static const char *many[20];
    for (size_t i = 0; i < 20; i++)
        many[i] = "<|eot_id|>";
    check_ends(many, 20, 3, 19, "19 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14"); /* at most 16 */
}

/* ---- windows --------------------------------------------------------------------------------------------- */

static void check_windows(struct image *m, const char *want)
{
    char got[16] = "";
    json_t *config = config_of(m);
    const json_t *types = json_object_get(config, "layer_types");
    assert_int_equal(json_array_size(types), 6);
    for (size_t i = 0; i < 6; i++)
        got[i] = json_string_value(json_array_get(types, i))[0];
    assert_string_equal(got, want);
    json_decref(config);
}

static void layers_with_a_window(void **state)
{
    (void)state;
    static const uint8_t flags[6] = {1, 0, 0, 1, 1, 0};
    struct image of_arch = {.n = 0}, period = {.n = 0}, listed = {.n = 0}, none = {.n = 0}, second = {.n = 0};
    put_sizes(&of_arch, "gemma3");
    put_number(&of_arch, "gemma3.attention.sliding_window", 8);
    check_windows(&of_arch, "sssssf");
    put_sizes(&period, "gemma3");
    put_number(&period, "gemma3.attention.sliding_window", 8);
    put_number(&period, "gemma3.attention.sliding_window_pattern", 3);
    check_windows(&period, "ssfssf");
    put_sizes(&listed, "olmo2");
    put_number(&listed, "olmo2.attention.sliding_window", 8);
    put_key(&listed, "olmo2.attention.sliding_window_pattern", ARRAY);
    put_u32(&listed.keys, BOOL);
    put_u64(&listed.keys, 6);
    buffer_append(&listed.keys, flags, 6);
    check_windows(&listed, "sffssf");
    put_sizes(&none, "gemma3");
    check_windows(&none, "ffffff");
    put_sizes(&second, "gemma2"); /* its window has a default */
    check_windows(&second, "sfsfsf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_that_end_an_answer),
                                       cmocka_unit_test(layers_with_a_window)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
