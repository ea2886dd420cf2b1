/* /v1/responses. */
#include "server/front/fields/field_shape.h"

/* ---- items ---------------------------------------------------------------------------------- */

/* Clients send the items of replies back as they came. */
static const struct field_row part_rows[] = {
    FIELD("type"),     FIELD("text"),    FIELD("annotations"),
    FIELD("logprobs"), FIELD("refusal"), FIELD("prompt_cache_breakpoint"),
};
static const struct field_table part_table = FIELD_TABLE(part_rows);
static const struct field_shape part_shape = {.tables = {&part_table}};

static const struct field_row item_rows[] = {
    FIELD("type"),
    FIELD("role"),
    FIELD_OF("content", &part_shape),
    FIELD("id"),
    FIELD("status"),
    FIELD("call_id"),
    FIELD("name"),
    FIELD("arguments"),
    FIELD_OF("output", &part_shape),
    FIELD_OF("summary", &part_shape),
    FIELD("encrypted_content"),
    FIELD("phase"),
    FIELD("namespace"),
    FIELD("caller"),
    FIELD("async"),
    FIELD("parsed_arguments"),
};
static const struct field_table item_table = FIELD_TABLE(item_rows);
static const struct field_shape item_shape = {.tables = {&item_table}};

/* ---- tools ---------------------------------------------------------------------------------- */

static const struct field_row tool_rows[] = {
    FIELD("type"),       FIELD("name"),          FIELD("description"),
    FIELD("parameters"), FIELD("strict"),        FIELD("allowed_callers"),
    FIELD("async"),      FIELD("defer_loading"), FIELD("output_schema"),
};
static const struct field_table tool_table = FIELD_TABLE(tool_rows);
static const struct field_shape tool_shape = {.tables = {&tool_table}};

static const struct field_row choice_rows[] = {FIELD("type"), FIELD("name")};
static const struct field_table choice_table = FIELD_TABLE(choice_rows);
static const struct field_shape choice_shape = {.tables = {&choice_table}};

/* ---- parameters ----------------------------------------------------------------------------- */

static const struct field_row reasoning_rows[] = {
    FIELD("effort"), FIELD("summary"), FIELD("generate_summary"), FIELD("context"), FIELD("mode"),
};
static const struct field_table reasoning_table = FIELD_TABLE(reasoning_rows);
static const struct field_shape reasoning_shape = {.tables = {&reasoning_table}};

static const struct field_row text_rows[] = {FIELD_OF("format", &field_shape_format), FIELD("verbosity")};
static const struct field_table text_table = FIELD_TABLE(text_rows);
static const struct field_shape text_shape = {.tables = {&text_table}};

static const struct field_row stream_rows[] = {FIELD("include_obfuscation"), FIELD("include_usage")};
static const struct field_table stream_table = FIELD_TABLE(stream_rows);
static const struct field_shape stream_shape = {.tables = {&stream_table}};

static const struct field_row response_rows[] = {
    FIELD_OF("input", &item_shape),
    FIELD("instructions"),
    FIELD("max_output_tokens"),
    FIELD_OF("tools", &tool_shape),
    FIELD_OF("tool_choice", &choice_shape),
    FIELD("parallel_tool_calls"),
    FIELD_OF("reasoning", &reasoning_shape),
    FIELD("previous_response_id"),
    FIELD("store"),
    FIELD("include"),
    FIELD("top_logprobs"),
    FIELD("truncation"),
    FIELD("metadata"),
    FIELD("max_tool_calls"),
    FIELD_OF("text", &text_shape),
    FIELD("stop"),
};
static const struct field_table response_table = FIELD_TABLE(response_rows);

static const struct field_row quiet_rows[] = {
    FIELD_OF("stream_options", &stream_shape),
    FIELD("conversation"),
    FIELD("prompt"),
    FIELD("context_management"),
    FIELD("access_programs"),
};
static const struct field_table quiet_table = FIELD_QUIET_TABLE(quiet_rows);

const struct field_shape field_shape_responses = {
    .tables = {&response_table, &field_table_generation, &field_table_variables, &field_table_grammar, &quiet_table,
               &field_table_peers},
    .has_spec = true,
};
