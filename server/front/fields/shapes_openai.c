/* Chat completions and completions, and the routes that take their prompts: /tokenize, /detokenize, pins. */
#include "server/front/fields/field_shape.h"

/* ---- messages ------------------------------------------------------------------------------- */

static const char *const roles[] = {"user", "assistant", "system", "tool", "developer", "function", NULL};

static const struct field_row function_call_rows[] = {FIELD("name"), FIELD("arguments"), FIELD("parsed_arguments")};
static const struct field_table function_call_table = FIELD_TABLE(function_call_rows);
static const struct field_shape function_call_shape = {.tables = {&function_call_table}, .is_of_template = true};

/* "index" is of a stream's deltas, which agents join and send back. */
static const struct field_row call_rows[] = {
    FIELD("id"),     FIELD("type"),          FIELD_OF("function", &function_call_shape), FIELD("index"),
    FIELD("custom"), FIELD("extra_content"), FIELD("provider_specific_fields"),
};
static const struct field_table call_table = FIELD_TABLE(call_rows);
const struct field_shape field_shape_call = {.tables = {&call_table}, .is_of_template = true};

static const struct field_row part_rows[] = {
    FIELD("type"),    FIELD("text"), FIELD("cache_control"), FIELD("prompt_cache_breakpoint"),
    FIELD("refusal"), FIELD("id"),   FIELD("index"),         FIELD("annotations"),
};
static const struct field_table part_table = FIELD_TABLE(part_rows);
static const struct field_shape part_shape = {.tables = {&part_table}};

static const struct field_row message_rows[] = {
    FIELD("role"),
    FIELD_OF("content", &part_shape),
    FIELD_OF("tool_calls", &field_shape_call),
    FIELD("tool_call_id"),
    FIELD("name"),
    FIELD("reasoning_content"),
    FIELD("reasoning"),
    FIELD("refusal"),
    FIELD("annotations"),
    FIELD("audio"),
    FIELD("function_call"),
    FIELD("parsed"),
    FIELD("prefix"),
    FIELD("id"),
    FIELD("cache_control"),
    FIELD("reasoning_details"),
    FIELD("thinking_blocks"),
    FIELD("provider_specific_fields"),
};
static const struct field_table message_table = FIELD_TABLE(message_rows);
static const struct field_shape message_shape = {.tables = {&message_table}, .is_of_template = true, .roles = roles};

/* ---- tools ---------------------------------------------------------------------------------- */

/* "return" is of transformers' schemas. */
static const struct field_row function_rows[] = {
    FIELD("name"), FIELD("description"), FIELD("parameters"), FIELD("strict"), FIELD("defer_loading"), FIELD("return"),
};
static const struct field_table function_table = FIELD_TABLE(function_rows);
static const struct field_shape function_shape = {.tables = {&function_table}, .is_of_template = true};

static const struct field_row tool_rows[] = {
    FIELD("type"),
    FIELD_OF("function", &function_shape),
    FIELD("cache_control"),
    FIELD("defer_loading"),
};
static const struct field_table tool_table = FIELD_TABLE(tool_rows);
const struct field_shape field_shape_tool = {.tables = {&tool_table}, .is_of_template = true};

static const struct field_row named_rows[] = {FIELD("name")};
static const struct field_table named_table = FIELD_TABLE(named_rows);
static const struct field_shape named_shape = {.tables = {&named_table}};

/* The reader rejects choices of other types. */
static const struct field_row choice_rows[] = {
    FIELD("type"), FIELD_OF("function", &named_shape), FIELD("allowed_tools"), FIELD("custom"), FIELD("name"),
};
static const struct field_table choice_table = FIELD_TABLE(choice_rows);
static const struct field_shape choice_shape = {.tables = {&choice_table}};

/* What the template sees. Also of /tokenize and pins. */
static const struct field_row prompt_rows[] = {
    FIELD_OF("messages", &message_shape), FIELD_OF("tools", &field_shape_tool), FIELD_OF("tool_choice", &choice_shape),
    FIELD("add_generation_prompt"),       FIELD("continue_final_message"),      FIELD("add_special_tokens"),
};
static const struct field_table prompt_table = FIELD_TABLE(prompt_rows);

/* ---- both generating routes ----------------------------------------------------------------- */

static const struct field_row stream_rows[] = {
    FIELD("include_usage"),
    FIELD("continuous_usage_stats"),
    FIELD("include_obfuscation"),
};
static const struct field_table stream_table = FIELD_TABLE(stream_rows);
static const struct field_shape stream_shape = {.tables = {&stream_table}};

static const struct field_row prediction_rows[] = {FIELD("type"), FIELD_OF("content", &part_shape)};
static const struct field_table prediction_table = FIELD_TABLE(prediction_rows);
static const struct field_shape prediction_shape = {.tables = {&prediction_table}};

static const struct field_row openai_rows[] = {
    FIELD("max_tokens"),
    FIELD("stop"),
    FIELD_OF("stream_options", &stream_shape),
    FIELD_OF("response_format", &field_shape_format),
    FIELD("logprobs"),
    FIELD("prompt_logprobs"),
    FIELD("echo"),
    FIELD("truncate_prompt_tokens"),
    FIELD("truncation_side"),
    FIELD("return_token_ids"),
    FIELD("return_tokens_as_token_ids"),
    FIELD_OF("prediction", &prediction_shape),
};
static const struct field_table openai_table = FIELD_TABLE(openai_rows);

/* ---- chat ----------------------------------------------------------------------------------- */

static const struct field_row chat_rows[] = {
    FIELD("max_completion_tokens"),
    FIELD("top_logprobs"),
    FIELD("parallel_tool_calls"),
};
static const struct field_table chat_table = FIELD_TABLE(chat_rows);

static const struct field_row chat_quiet_rows[] = {
    FIELD("modalities"), FIELD("functions"), FIELD("function_call"),      FIELD("chat_template"),
    FIELD("documents"),  FIELD("audio"),     FIELD("web_search_options"),
};
static const struct field_table chat_quiet_table = FIELD_QUIET_TABLE(chat_quiet_rows);

const struct field_shape field_shape_chat = {
    .tables = {&prompt_table, &openai_table, &chat_table, &field_table_generation, &field_table_variables,
               &field_table_grammar, &chat_quiet_table, &field_table_peers},
    .has_spec = true,
};

/* ---- completions ---------------------------------------------------------------------------- */

static const struct field_row completion_rows[] = {FIELD("prompt"), FIELD("add_special_tokens")};
static const struct field_table completion_table = FIELD_TABLE(completion_rows);

static const struct field_row completion_quiet_rows[] = {FIELD("suffix")};
static const struct field_table completion_quiet_table = FIELD_QUIET_TABLE(completion_quiet_rows);

const struct field_shape field_shape_completions = {
    .tables = {&completion_table, &openai_table, &field_table_generation, &field_table_grammar, &completion_quiet_table,
               &field_table_peers},
    .has_spec = true,
};

/* ---- routes of prompts ---------------------------------------------------------------------- */

static const struct field_row tokenize_rows[] = {
    FIELD("model"), FIELD("prompt"), FIELD("content"), FIELD("add_special"), FIELD("return_token_strs"),
};
static const struct field_table tokenize_table = FIELD_TABLE(tokenize_rows);
const struct field_shape field_shape_tokenize = {.tables = {&tokenize_table, &prompt_table, &field_table_variables}};

static const struct field_row detokenize_rows[] = {FIELD("model"), FIELD("tokens")};
static const struct field_table detokenize_table = FIELD_TABLE(detokenize_rows);
const struct field_shape field_shape_detokenize = {.tables = {&detokenize_table}};

static const struct field_row pin_rows[] = {
    FIELD("model"), FIELD("prompt"), FIELD("ttl_seconds"), FIELD("background"), FIELD("cache_salt"),
};
static const struct field_table pin_table = FIELD_TABLE(pin_rows);
const struct field_shape field_shape_pins = {.tables = {&pin_table, &prompt_table, &field_table_variables}};
