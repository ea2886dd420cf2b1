/* /v1/embeddings, /v1/score and /v1/rerank. vectors_read.c reads their fields. It accepts a quiet one only if it requests
 * the normal behaviour. */
#include "server/front/fields/field_shape.h"

static const struct field_row common_rows[] = {
    FIELD("model"),
    FIELD("user"),
    FIELD("truncate_prompt_tokens"),
    FIELD("add_special_tokens"),
};
static const struct field_table common_table = FIELD_TABLE(common_rows);

static const struct field_row quiet_rows[] = {
    FIELD("metadata"),
    FIELD("priority"),
    FIELD("request_id"),
    FIELD("cache_salt"),
    FIELD("mm_processor_kwargs"),
    FIELD("service_tier"),
    FIELD("safety_identifier"),
    FIELD("rid"),
    FIELD("input_type"),
    FIELD("prompt_name"),
    FIELD("prompt"),
    FIELD("instruction"),
    FIELD("task"),
    FIELD("late_chunking"),
    FIELD("embedding_types"),
    FIELD("max_tokens_per_query"),
    FIELD("softmax"),
    FIELD("max_chunks_per_doc"),
    FIELD("rank_fields"),
    FIELD("prompt_embeds"),
    FIELD("task_type"),
    FIELD("overlap_tokens"),
    FIELD("raw_scores"),
    FIELD("embed_dtype"),
    FIELD("output_dtype"),
    FIELD("embedding_type"),
    FIELD("endianness"),
    FIELD("truncation_direction"),
    FIELD("truncation_side"),
    FIELD("use_activation"),
    FIELD("activation"),
    FIELD("truncation"),
    FIELD("truncate"),
    FIELD("max_tokens_per_doc"),
};
static const struct field_table quiet_table = FIELD_QUIET_TABLE(quiet_rows);

static const struct field_row embedding_rows[] = {
    FIELD("input"),
    FIELD("encoding_format"),
    FIELD("dimensions"),
    FIELD("normalize"),
};
static const struct field_table embedding_table = FIELD_TABLE(embedding_rows);
const struct field_shape field_shape_embeddings = {.tables = {&embedding_table, &common_table, &quiet_table}};

static const struct field_row score_rows[] = {FIELD("text_1"), FIELD("text_2")};
static const struct field_table score_table = FIELD_TABLE(score_rows);
const struct field_shape field_shape_score = {.tables = {&score_table, &common_table, &quiet_table}};

/* Objects of "documents" may have any members. */
static const struct field_row rerank_rows[] = {
    FIELD("query"), FIELD("documents"), FIELD("top_n"), FIELD("return_documents"), FIELD("max_tokens_per_doc"),
};
static const struct field_table rerank_table = FIELD_TABLE(rerank_rows);
const struct field_shape field_shape_rerank = {.tables = {&rerank_table, &common_table, &quiet_table}};
