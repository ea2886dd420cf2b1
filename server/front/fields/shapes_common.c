/* Parts of the shapes of several routes. */
#include "server/front/fields/field_shape.h"

/* ---- response_format ------------------------------------------------------------------------ */

static const struct field_row schema_rows[] = {FIELD("name"), FIELD("schema"), FIELD("strict"), FIELD("description")};
static const struct field_table schema_table = FIELD_TABLE(schema_rows);
static const struct field_shape schema_shape = {.tables = {&schema_table}};

/* Also the members of a structural tag. */
static const struct field_row format_rows[] = {
    FIELD("type"),
    FIELD_OF("json_schema", &schema_shape),
    FIELD("schema"),
    FIELD("name"),
    FIELD("strict"),
    FIELD("description"),
    FIELD("grammar"),
    FIELD("syntax"),
    FIELD("format"),
    FIELD("structures"),
    FIELD("triggers"),
    FIELD("at_least_one"),
    FIELD("stop_after_first"),
};
static const struct field_table format_table = FIELD_TABLE(format_rows);
const struct field_shape field_shape_format = {.tables = {&format_table}};

/* ---- generation ----------------------------------------------------------------------------- */

static const struct field_row cache_rows[] = {FIELD("no_cache"), FIELD("no_store"), FIELD("ttl"), FIELD("namespace")};
static const struct field_table cache_table = FIELD_TABLE(cache_rows);
static const struct field_shape cache_shape = {.tables = {&cache_table}};

static const struct field_row generation_rows[] = {
    FIELD("model"),
    FIELD("stream"),
    FIELD("bad_words"),
    FIELD("best_of"),
    FIELD("stream_interval"),
    FIELD("include_stop_str_in_output"),
    FIELD("skip_special_tokens"),
    FIELD("thinking_token_budget"),
    FIELD("quire_deadline_ms"),
    FIELD("quire_trace"),
    FIELD("request_id"),
    FIELD("session_id"),
    FIELD("prompt_cache_key"),
    FIELD("cache_salt"),
    FIELD("use_cache"),
    FIELD_OF("cache", &cache_shape),
    FIELD("speculative"),
    FIELD("num_speculative_tokens"),
    FIELD("user"),
};
const struct field_table field_table_generation = FIELD_TABLE(generation_rows);

static const struct field_row variable_rows[] = {
    FIELD("chat_template_kwargs"),
    FIELD("reasoning_effort"),
    FIELD("enable_thinking"),
};
const struct field_table field_table_variables = FIELD_TABLE(variable_rows);

static const struct field_row grammar_rows[] = {
    FIELD("structured_outputs"), FIELD("guided_json"),
    FIELD("guided_regex"),       FIELD("guided_choice"),
    FIELD("guided_grammar"),     FIELD("guided_json_object"),
    FIELD("structural_tag"),     FIELD("grammar"),
    FIELD("json_schema"),        FIELD("guided_whitespace_pattern"),
};
const struct field_table field_table_grammar = FIELD_TABLE(grammar_rows);

/* In the order of http-api.md, section 2: what clients send by default or for another server's sake, and then the
 * fields that params.c rejects by name. */
static const struct field_row peer_rows[] = {
    FIELD("metadata"),
    FIELD("store"),
    FIELD("service_tier"),
    FIELD("verbosity"),
    FIELD("safety_identifier"),
    FIELD("prompt_cache_retention"),
    FIELD("prompt_cache_options"),
    FIELD("prediction"),
    FIELD("moderation"),
    FIELD("spaces_between_special_tokens"),
    FIELD("include_obfuscation"),
    FIELD("length_penalty"),
    FIELD("mm_processor_kwargs"),
    FIELD("media_io_kwargs"),
    FIELD("ec_transfer_params"),
    FIELD("guided_decoding_backend"),
    FIELD("rid"),
    FIELD("extra_key"),
    FIELD("custom_labels"),
    FIELD("id_slot"),
    FIELD("provider"),
    FIELD("transforms"),
    FIELD("usage"),
    FIELD_ONLY("include_reasoning", "true"),
    FIELD_ONLY("separate_reasoning", "true"),
    FIELD_ONLY("stream_reasoning", "true"),
    FIELD_ONLY("cache_prompt", "true"),
    FIELD_ONLY("return_progress", "false"),
    FIELD_ONLY("timings_per_token", "false"),
    FIELD("use_beam_search"),
    FIELD("logits_processors"),
    FIELD("guided_decoding"),
    FIELD("regex"),
    FIELD("ebnf"),
    FIELD("repetition_detection"),
    FIELD("logprob_token_ids"),
    FIELD("kv_transfer_params"),
    FIELD("vllm_xargs"),
    FIELD("prompt_embeds"),
    FIELD("adapter"),
    FIELD("adapters"),
    FIELD("lora_request"),
};
const struct field_table field_table_peers = FIELD_QUIET_TABLE(peer_rows);
