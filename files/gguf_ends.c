#include "files/gguf_maker.h"

#include <string.h>

#define MAX_ENDS 16u /* as many as a config.json may have here */
enum token_kind { TOKEN_CONTROL = 3, TOKEN_USER = 4 };

/* Tokens that end a turn or a text under their usual names, as llama.cpp collects them (its llama-vocab.cpp). Normal tokens
 * of these names are text. */
static const char *const names[] = {"<|im_end|>",
                                    "<|eot_id|>",
                                    "<|eom_id|>",
                                    "<|endoftext|>",
                                    "<|end_of_text|>",
                                    "<end_of_turn>",
                                    "<|endofprompt|>",
                                    "<|end|>",
                                    "<|return|>",
                                    "<|call|>",
                                    "<|flush|>",
                                    "<|calls|>",
                                    "</s>",
                                    "<EOT>",
                                    "_<EOT>",
                                    "[EOT]",
                                    "[EOS]",
                                    "<eos>",
                                    "<end_of_utterance>",
                                    "<turn|>",
                                    "<|tool_response>",
                                    ("<\xef\xbd\x9c"
                                     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
                                    "[e~[",
                                    "<|fim_pad|>",
                                    "<fim-pad>",
                                    "<fim_pad>",
                                    "<|fim_repo|>",
                                    "<|repo_name|>",
                                    "<fim-repo>",
                                    "<REPO>",
                                    "<reponame>",
                                    "<|file_sep|>"};
#define N_NAMES (sizeof names / sizeof *names)

struct found {
    json_t *list;
    int64_t end; /* the id of <|end|>; -1 if it does not exist */
    bool has_return, has_call, has_flush;
};

static void add(json_t *list, int64_t id)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == id)
            return;
    if (id >= 0 && id <= INT32_MAX && json_array_size(list) < MAX_ENDS)
        json_array_append_new(list, json_integer(id));
}

static void take_token(struct found *f, struct gguf_text token, int64_t id)
{
    size_t i = 0;
    while (i < N_NAMES && !maker_text_is(token, names[i]))
        i++;
    if (i == N_NAMES)
        return;
    add(f->list, id);
    if (maker_text_is(token, "<|end|>"))
        f->end = id;
    f->has_return |= maker_text_is(token, "<|return|>");
    f->has_call |= maker_text_is(token, "<|call|>") || maker_text_is(token, "<|calls|>");
    f->has_flush |= maker_text_is(token, "<|flush|>");
}

/* <|end|> separates messages in the format of gpt-oss. */
static void drop_end(const struct found *f)
{
    if (f->end < 0 || !f->has_call || !(f->has_return || f->has_flush))
        return;
    for (size_t i = 0; i < json_array_size(f->list); i++)
        if (json_integer_value(json_array_get(f->list, i)) == f->end)
            json_array_remove(f->list, i);
}

json_t *gguf_ends(struct gguf_maker *m)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id",     "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id",     "tokenizer.ggml.fim_pad_token_id",
                                       "tokenizer.ggml.fim_rep_token_id", "tokenizer.ggml.fim_sep_token_id"};
    struct gguf_value tokens = {.n = 0}, kinds = {.n = 0};
    struct found f = {.list = json_array(), .end = -1};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && m->status == QUIRE_OK; i++) {
        int64_t id = -1;
        m->status = gguf_i64(m->g, keys[i], &id, m->err);
        add(f.list, id);
    }
    if (m->status == QUIRE_OK)
        m->status = gguf_array(m->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, m->err);
    if (m->status == QUIRE_OK)
        m->status = gguf_array(m->g, "tokenizer.ggml.token_type", GGUF_I32, &kinds, m->err);
    const uint8_t *at = tokens.data;
    for (uint64_t i = 0; m->status == QUIRE_OK && i < tokens.n && i <= INT32_MAX; i++) {
        const struct gguf_text token = gguf_next_string(&at);
        const uint8_t kind = i < kinds.n ? kinds.data[4 * i] : 0;
        if (kind == TOKEN_CONTROL || kind == TOKEN_USER)
            take_token(&f, token, (int64_t)i);
    }
    drop_end(&f);
    return f.list;
}
