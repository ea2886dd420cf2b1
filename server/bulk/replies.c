#include "server/bulk/replies.h"

#include "server/front/output/json_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

const char *bulk_purpose_name(enum bulk_purpose purpose)
{
    return purpose == BULK_OUTPUT ? "batch_output" : "batch";
}

static void put_number(struct buffer *o, const char *name, uint64_t value)
{
    json_out_raw(o, name);
    json_out_u64(o, value);
}

/* null for 0 */
static void put_time(struct buffer *o, const char *name, int64_t at)
{
    json_out_raw(o, name);
    if (at > 0)
        json_out_i64(o, at);
    else
        json_out_raw(o, "null");
}

static void put_text(struct buffer *o, const char *name, const char *text)
{
    json_out_raw(o, name);
    json_out_text_or_null(o, text && text[0] ? text : NULL);
}

void bulk_put_file(struct buffer *o, const struct bulk_file *f)
{
    put_text(o, "{\"id\":", f->id);
    put_number(o, ",\"object\":\"file\",\"bytes\":", f->n_bytes);
    put_time(o, ",\"created_at\":", f->created);
    put_time(o, ",\"expires_at\":", f->expires);
    json_out_raw(o, ",\"filename\":");
    json_out_text(o, f->filename);
    put_text(o, ",\"purpose\":", bulk_purpose_name(f->purpose));
    json_out_raw(o, ",\"status\":\"processed\",\"status_details\":null}");
}

/* Dollars, exactly: 12 digits after the point at most. */
static void put_cost(struct buffer *o, uint64_t picodollars)
{
    char text[48];
    int n = snprintf(text, sizeof text, "%" PRIu64 ".%012" PRIu64, picodollars / 1000000000000u,
                     picodollars % 1000000000000u);
    while (text[n - 1] == '0')
        text[--n] = '\0';
    if (text[n - 1] == '.')
        text[--n] = '\0';
    json_out_raw(o, ",\"cost\":");
    json_out_raw(o, text);
}

/* ---- OpenAI --------------------------------------------------------------------------------- */

static void put_window(struct buffer *o, uint32_t seconds)
{
    char text[32];
    if (seconds % 3600 == 0)
        snprintf(text, sizeof text, "%uh", seconds / 3600);
    else if (seconds % 60 == 0)
        snprintf(text, sizeof text, "%um", seconds / 60);
    else
        snprintf(text, sizeof text, "%us", seconds);
    put_text(o, ",\"completion_window\":", text);
}

static void put_errors(struct buffer *o, const char *why)
{
    if (!why) {
        json_out_raw(o, ",\"errors\":null");
        return;
    }
    json_out_raw(o,
                 ",\"errors\":{\"object\":\"list\",\"data\":[{\"code\":\"invalid_input\",\"line\":null,\"message\":");
    json_out_text(o, why);
    json_out_raw(o, ",\"param\":null}]}");
}

static void put_usage(struct buffer *o, const struct bulk_counts *c)
{
    put_number(o, ",\"usage\":{\"input_tokens\":", c->input_tokens);
    put_number(o, ",\"input_tokens_details\":{\"cached_tokens\":", c->cached_tokens);
    put_number(o, "},\"output_tokens\":", c->output_tokens);
    json_out_raw(o, ",\"output_tokens_details\":{\"reasoning_tokens\":0}");
    put_number(o, ",\"total_tokens\":", c->input_tokens + c->output_tokens);
    put_cost(o, c->cost);
    json_out_raw(o, "}");
}

/* A batch that was cancelled is cancelling until it ends, also while its output files are written. */
static const char *status_of(const struct bulk_batch *b)
{
    const bool is_cancelled = b->state == BULK_FINALIZING && b->end == BULK_STOPPED;
    return bulk_state_names[is_cancelled ? BULK_CANCELLING : b->state];
}

static void put_openai(struct buffer *o, const struct bulk_batch *b)
{
    const struct bulk_counts *c = &b->counts;
    const bool has_files = bulk_state_is_last(b->state);
    put_text(o, "{\"id\":", b->id);
    put_text(o, ",\"object\":\"batch\",\"endpoint\":", b->url);
    put_errors(o, b->why);
    put_text(o, ",\"input_file_id\":", b->input);
    put_window(o, b->window_s);
    put_text(o, ",\"status\":", status_of(b));
    put_text(o, ",\"output_file_id\":", has_files ? b->output : NULL);
    put_text(o, ",\"error_file_id\":", has_files ? b->errors : NULL);
    put_time(o, ",\"created_at\":", b->at[BULK_VALIDATING]);
    put_time(o, ",\"in_progress_at\":", b->at[BULK_IN_PROGRESS]);
    put_time(o, ",\"expires_at\":", bulk_batch_expires(b));
    put_time(o, ",\"finalizing_at\":", b->at[BULK_FINALIZING]);
    put_time(o, ",\"completed_at\":", b->at[BULK_COMPLETED]);
    put_time(o, ",\"failed_at\":", b->at[BULK_FAILED]);
    put_time(o, ",\"expired_at\":", b->at[BULK_TIMED_OUT]);
    put_time(o, ",\"cancelling_at\":", b->at[BULK_CANCELLING]);
    put_time(o, ",\"cancelled_at\":", b->at[BULK_STOPPED]);
    put_number(o, ",\"request_counts\":{\"total\":", c->n_lines);
    put_number(o, ",\"completed\":", c->n[BULK_SUCCEEDED]);
    put_number(o, ",\"failed\":", c->n[BULK_ERRORED] + c->n[BULK_CANCELLED] + c->n[BULK_EXPIRED]);
    json_out_raw(o, "}");
    put_usage(o, c);
    json_out_raw(o, ",\"metadata\":");
    json_out_raw(o, b->metadata ? b->metadata : "null");
    json_out_raw(o, "}");
}

/* ---- Anthropic ------------------------------------------------------------------------------ */

/* RFC 3339; null for 0 */
static void put_date(struct buffer *o, const char *name, int64_t at)
{
    const time_t seconds = (time_t)at;
    struct tm utc;
    char text[32] = "";
    if (at > 0 && gmtime_r(&seconds, &utc))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    put_text(o, name, text);
}

static int64_t ended_at(const struct bulk_batch *b)
{
    return bulk_state_is_last(b->state) ? b->at[b->state] : 0;
}

static void put_anthropic(struct buffer *o, const struct bulk_batch *b)
{
    const struct bulk_counts *c = &b->counts;
    const bool has_ended = bulk_state_is_last(b->state);
    char results[BULK_ID_BYTES + 40] = "";
    if (has_ended && b->output[0])
        snprintf(results, sizeof results, "/v1/messages/batches/%s/results", b->id);
    const bool is_cancelled = b->state == BULK_CANCELLING || b->end == BULK_STOPPED;
    put_text(o, "{\"id\":", b->id);
    put_text(o, ",\"type\":\"message_batch\",\"processing_status\":",
             has_ended      ? "ended"
             : is_cancelled ? "canceling"
                            : "in_progress");
    put_number(o, ",\"request_counts\":{\"processing\":", c->n_lines - c->n_done);
    put_number(o, ",\"succeeded\":", c->n[BULK_SUCCEEDED]);
    put_number(o, ",\"errored\":", c->n[BULK_ERRORED]);
    put_number(o, ",\"canceled\":", c->n[BULK_CANCELLED]);
    put_number(o, ",\"expired\":", c->n[BULK_EXPIRED]);
    put_date(o, "},\"ended_at\":", ended_at(b));
    put_date(o, ",\"created_at\":", b->at[BULK_VALIDATING]);
    put_date(o, ",\"expires_at\":", bulk_batch_expires(b));
    put_date(o, ",\"cancel_initiated_at\":", b->at[BULK_CANCELLING]);
    put_text(o, ",\"archived_at\":null,\"results_url\":", results);
    put_usage(o, c);
    if (b->why)
        put_text(o, ",\"error\":", b->why);
    json_out_raw(o, "}");
}

void bulk_put_batch(struct buffer *o, const struct bulk_batch *b)
{
    if (b->dialect == BULK_ANTHROPIC)
        put_anthropic(o, b);
    else
        put_openai(o, b);
}
