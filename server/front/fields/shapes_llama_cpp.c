/* llama.cpp's /completion, which server/front/llama_cpp/ reads, and /apply-template. */
#include "server/front/fields/field_shape.h"

static const struct field_row prompt_rows[] = {FIELD("prompt_string"), FIELD("multimodal_data")};
static const struct field_table prompt_table = FIELD_TABLE(prompt_rows);
static const struct field_shape prompt_shape = {.tables = {&prompt_table}};

static const struct field_row own_rows[] = {
    FIELD_OF("prompt", &prompt_shape),
    FIELD("n_predict"),
    FIELD("max_tokens"),
    FIELD("repeat_penalty"),
    FIELD("repeat_last_n"),
    FIELD("stop"),
    FIELD("n_probs"),
    FIELD("logit_bias"),
    FIELD("samplers"),
    FIELD("n_cmpl"),
    FIELD("return_tokens"),
    FIELD("response_fields"),
    FIELD("timings_per_token"),
    FIELD_OF("response_format", &field_shape_format),
};
static const struct field_table own_table = FIELD_TABLE(own_rows);

/* They have no effect, or llama_cpp_fields.c rejects them unless they are off. */
static const struct field_row quiet_rows[] = {
    FIELD("cache_prompt"),
    FIELD("id_slot"),
    FIELD("slot_id"),
    FIELD("n_keep"),
    FIELD("n_discard"),
    FIELD("n_cache_reuse"),
    FIELD("sse_ping_interval"),
    FIELD("return_progress"),
    FIELD("mirostat"),
    FIELD("mirostat_tau"),
    FIELD("mirostat_eta"),
    FIELD("dynatemp_range"),
    FIELD("dynatemp_exponent"),
    FIELD("typical_p"),
    FIELD("typ_p"),
    FIELD("tfs_z"),
    FIELD("top_n_sigma"),
    FIELD("min_keep"),
    FIELD("n_indent"),
    FIELD("xtc_probability"),
    FIELD("xtc_threshold"),
    FIELD("dry_multiplier"),
    FIELD("dry_base"),
    FIELD("dry_allowed_length"),
    FIELD("dry_penalty_last_n"),
    FIELD("dry_sequence_breakers"),
    FIELD("adaptive_target"),
    FIELD("adaptive_decay"),
    FIELD("t_max_predict_ms"),
    FIELD("t_max_prompt_ms"),
    FIELD("post_sampling_probs"),
    FIELD("grammar_lazy"),
    FIELD("grammar_triggers"),
    FIELD("lora"),
    FIELD("image_data"),
    FIELD("bad_words"),
    FIELD("echo"),
    FIELD("input_prefix"),
    FIELD("input_suffix"),
    FIELD("input_extra"),
    FIELD("suffix"),
};
static const struct field_table quiet_table = FIELD_QUIET_TABLE(quiet_rows);

const struct field_shape field_shape_llama_cpp = {
    .tables = {&own_table, &field_table_generation, &field_table_grammar, &quiet_table, &field_table_peers},
    .has_spec = true,
};
