/* /v1/messages, and counting for it. */
#include "server/front/fields/field_shape.h"

static const struct field_row control_rows[] = {FIELD("type"), FIELD("ttl"), FIELD("scope")};
static const struct field_table control_table = FIELD_TABLE(control_rows);
static const struct field_shape control_shape = {.tables = {&control_table}};

/* ---- messages ------------------------------------------------------------------------------- */

/* Blocks of all types; those of a tool's result have them, too. */
static const struct field_shape block_shape;
static const struct field_row block_rows[] = {
    FIELD("type"),
    FIELD("text"),
    FIELD_OF("cache_control", &control_shape),
    FIELD("id"),
    FIELD("name"),
    FIELD("input"),
    FIELD("tool_use_id"),
    FIELD_OF("content", &block_shape),
    FIELD("is_error"),
    FIELD("thinking"),
    FIELD("signature"),
    FIELD("data"),
    FIELD("citations"),
    FIELD("caller"),
    FIELD("toolset_name"),
    FIELD("parsed_output"),
};
static const struct field_table block_table = FIELD_TABLE(block_rows);
static const struct field_shape block_shape = {.tables = {&block_table}};

static const struct field_row message_rows[] = {FIELD("role"), FIELD_OF("content", &block_shape)};
static const struct field_table message_table = FIELD_TABLE(message_rows);
static const struct field_shape message_shape = {.tables = {&message_table}};

/* ---- tools ---------------------------------------------------------------------------------- */

static const struct field_row tool_rows[] = {
    FIELD("type"),
    FIELD("name"),
    FIELD("description"),
    FIELD("input_schema"),
    FIELD_OF("cache_control", &control_shape),
    FIELD("strict"),
    FIELD("eager_input_streaming"),
    FIELD("allowed_callers"),
    FIELD("defer_loading"),
    FIELD("input_examples"),
};
static const struct field_table tool_table = FIELD_TABLE(tool_rows);
static const struct field_shape tool_shape = {.tables = {&tool_table}};

static const struct field_row choice_rows[] = {FIELD("type"), FIELD("name"), FIELD("disable_parallel_tool_use")};
static const struct field_table choice_table = FIELD_TABLE(choice_rows);
static const struct field_shape choice_shape = {.tables = {&choice_table}};

/* ---- parameters ----------------------------------------------------------------------------- */

static const struct field_row thinking_rows[] = {FIELD("type"), FIELD("budget_tokens"), FIELD("display")};
static const struct field_table thinking_table = FIELD_TABLE(thinking_rows);
static const struct field_shape thinking_shape = {.tables = {&thinking_table}};

static const struct field_row output_rows[] = {
    FIELD("effort"),
    FIELD_OF("format", &field_shape_format),
    FIELD("task_budget"),
};
static const struct field_table output_table = FIELD_TABLE(output_rows);
static const struct field_shape output_shape = {.tables = {&output_table}};

static const struct field_row rows[] = {
    FIELD_OF("messages", &message_shape),
    FIELD("max_tokens"),
    FIELD_OF("system", &block_shape),
    FIELD_OF("tools", &tool_shape),
    FIELD_OF("tool_choice", &choice_shape),
    FIELD_OF("thinking", &thinking_shape),
    FIELD_OF("output_config", &output_shape),
    FIELD_OF("output_format", &field_shape_format),
    FIELD("stop_sequences"),
    FIELD_OF("cache_control", &control_shape),
    FIELD("metadata"),
};
static const struct field_table table = FIELD_TABLE(rows);

/* messages.c rejects mcp_servers and container; the other fields have no effect. */
static const struct field_row quiet_rows[] = {
    FIELD("context_management"), FIELD("mcp_servers"),    FIELD("container"), FIELD("betas"),
    FIELD("inference_geo"),      FIELD("diagnostics"),    FIELD("speed"),     FIELD("user_profile_id"),
    FIELD("workspace_id"),       FIELD("billing_policy"), FIELD("fallbacks"), FIELD("fallback_credit_token"),
};
static const struct field_table quiet_table = FIELD_QUIET_TABLE(quiet_rows);

const struct field_shape field_shape_messages = {
    .tables = {&table, &field_table_generation, &field_table_variables, &field_table_grammar, &quiet_table,
               &field_table_peers},
    .has_spec = true,
};
