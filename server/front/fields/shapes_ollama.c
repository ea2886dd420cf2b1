/* Ollama's bodies, which server/front/ollama/ reads. */
#include "server/front/fields/field_shape.h"

/* ---- options ---- */

/* The last is known with the value that penalizes all tokens, as this server does. */
static const struct field_row option_rows[] = {
    FIELD("temperature"),
    FIELD("top_k"),
    FIELD("top_p"),
    FIELD("min_p"),
    FIELD("num_predict"),
    FIELD("seed"),
    FIELD("stop"),
    FIELD("repeat_penalty"),
    FIELD("presence_penalty"),
    FIELD("frequency_penalty"),
    FIELD_ONLY("repeat_last_n", "-1"),
};
static const struct field_table option_table = FIELD_TABLE(option_rows);

/* They concern the machine or the context, or only their neutral value is accepted. */
static const struct field_row quiet_option_rows[] = {
    FIELD("num_ctx"),          FIELD("num_keep"),     FIELD("num_batch"),  FIELD("num_gpu"),
    FIELD("main_gpu"),         FIELD("num_thread"),   FIELD("low_vram"),   FIELD("f16_kv"),
    FIELD("use_mmap"),         FIELD("use_mlock"),    FIELD("vocab_only"), FIELD("numa"),
    FIELD("num_gqa"),          FIELD("typical_p"),    FIELD("tfs_z"),      FIELD("mirostat"),
    FIELD("mirostat_tau"),     FIELD("mirostat_eta"), FIELD("logits_all"), FIELD("embedding_only"),
    FIELD("penalize_newline"),
};
static const struct field_table quiet_option_table = FIELD_QUIET_TABLE(quiet_option_rows);
static const struct field_shape option_shape = {.tables = {&option_table, &quiet_option_table}};

static const struct field_row common_rows[] = {
    FIELD("model"),    FIELD("stream"),       FIELD_OF("options", &option_shape),
    FIELD("format"),   FIELD("keep_alive"),   FIELD("think"),
    FIELD("logprobs"), FIELD("top_logprobs"),
};
static const struct field_table common_table = FIELD_TABLE(common_rows);

/* ---- messages and prompts ---- */

static const char *const roles[] = {"user", "assistant", "system", "tool", NULL};

static const struct field_row message_rows[] = {
    FIELD("role"),      FIELD("content"),      FIELD_OF("tool_calls", &field_shape_call),
    FIELD("tool_name"), FIELD("name"),         FIELD("thinking"),
    FIELD("images"),    FIELD("tool_call_id"),
};
static const struct field_table message_table = FIELD_TABLE(message_rows);
static const struct field_shape message_shape = {.tables = {&message_table}, .roles = roles};

static const struct field_row chat_rows[] = {FIELD_OF("messages", &message_shape),
                                             FIELD_OF("tools", &field_shape_tool)};
static const struct field_table chat_table = FIELD_TABLE(chat_rows);
const struct field_shape field_shape_ollama_chat = {.tables = {&chat_table, &common_table}};

static const struct field_row generate_rows[] = {
    FIELD("prompt"),   FIELD("system"),  FIELD("raw"),    FIELD("suffix"),
    FIELD("template"), FIELD("context"), FIELD("images"),
};
static const struct field_table generate_table = FIELD_TABLE(generate_rows);
const struct field_shape field_shape_ollama_generate = {.tables = {&generate_table, &common_table}};

/* ---- /api/show ---- */

static const struct field_row show_rows[] = {FIELD("model"), FIELD("name"), FIELD("verbose")};
static const struct field_table show_table = FIELD_TABLE(show_rows);
const struct field_shape field_shape_ollama_show = {.tables = {&show_table}};

/* ---- vectors ---- */

static const struct field_row vector_rows[] = {FIELD("model"), FIELD("keep_alive"), FIELD_OF("options", &option_shape)};
static const struct field_table vector_table = FIELD_TABLE(vector_rows);

static const struct field_row embed_rows[] = {FIELD("input"), FIELD("truncate"), FIELD("dimensions")};
static const struct field_table embed_table = FIELD_TABLE(embed_rows);
const struct field_shape field_shape_ollama_embed = {.tables = {&embed_table, &vector_table}};

static const struct field_row embeddings_rows[] = {FIELD("prompt")};
static const struct field_table embeddings_table = FIELD_TABLE(embeddings_rows);
const struct field_shape field_shape_ollama_embeddings = {.tables = {&embeddings_table, &vector_table}};
