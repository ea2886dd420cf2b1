#include "server/bulk/store/store_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMNS \
    "id, tenant, input, output, errors, url, dialect, state, ending, window_s, output_ttl_s, at0, at1, at2, at3, at4, " \
    "at5, at6, at7, lines, succeeded, errored, cancelled, expired, input_tokens, cached_tokens, output_tokens, cost, " \
    "account, metadata, why"
#define MARKS "?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?"

static int not_found(const char *id, struct quire_error *err)
{
    return quire_fail(err, QUIRE_NOT_FOUND, "no batch has the id %.60s: unknown or deleted", id);
}

static void bind_batch(struct store_query *q, const struct bulk_batch *b)
{
    store_bind_text(q, b->id);
    store_bind_text(q, b->tenant);
    store_bind_text(q, b->input);
    store_bind_text(q, b->output);
    store_bind_text(q, b->errors);
    store_bind_text(q, b->url);
    store_bind(q, b->dialect);
    store_bind(q, b->state);
    store_bind(q, b->end);
    store_bind(q, b->window_s);
    store_bind(q, b->output_ttl_s);
    for (int i = 0; i < BULK_N_STATES; i++)
        store_bind(q, b->at[i]);
    store_bind(q, b->counts.n_lines);
    for (int i = 0; i < BULK_OUTCOMES; i++)
        store_bind(q, b->counts.n[i]);
    store_bind(q, (int64_t)b->counts.input_tokens);
    store_bind(q, (int64_t)b->counts.cached_tokens);
    store_bind(q, (int64_t)b->counts.output_tokens);
    store_bind(q, (int64_t)b->counts.cost);
    store_bind_text(q, b->account);
    store_bind_text(q, b->metadata);
    store_bind_text(q, b->why);
}

static enum bulk_state state_of(int64_t value)
{
    return value >= 0 && value < BULK_N_STATES ? (enum bulk_state)value : BULK_FAILED;
}

static void read_batch(struct store_query *q, struct bulk_batch *b)
{
    *b = (struct bulk_batch){.id = ""};
    store_column_text(q, b->id, sizeof b->id);
    store_column_text(q, b->tenant, sizeof b->tenant);
    store_column_text(q, b->input, sizeof b->input);
    store_column_text(q, b->output, sizeof b->output);
    store_column_text(q, b->errors, sizeof b->errors);
    store_column_text(q, b->url, sizeof b->url);
    b->dialect = store_column(q) ? BULK_ANTHROPIC : BULK_OPENAI;
    b->state = state_of(store_column(q));
    b->end = state_of(store_column(q));
    b->window_s = (uint32_t)store_column(q);
    b->output_ttl_s = (uint32_t)store_column(q);
    for (int i = 0; i < BULK_N_STATES; i++)
        b->at[i] = store_column(q);
    b->counts.n_lines = (uint32_t)store_column(q);
    for (int i = 0; i < BULK_OUTCOMES; i++) {
        b->counts.n[i] = (uint32_t)store_column(q);
        b->counts.n_done += b->counts.n[i];
    }
    b->counts.input_tokens = (uint64_t)store_column(q);
    b->counts.cached_tokens = (uint64_t)store_column(q);
    b->counts.output_tokens = (uint64_t)store_column(q);
    b->counts.cost = (uint64_t)store_column(q);
    store_column_text(q, b->account, sizeof b->account);
    b->metadata = store_column_copy(q);
    b->why = store_column_copy(q);
}

static int put(struct bulk_store *s, const char *sql, const struct bulk_batch *b)
{
    struct store_query q;
    store_prepare(&q, s, sql);
    bind_batch(&q, b);
    return store_run(&q);
}

static const char update_sql[] = "UPDATE batches SET (" COLUMNS ") = (" MARKS ") WHERE id = ?1";

int bulk_store_add_batch(struct bulk_store *s, const struct bulk_batch *b, struct quire_error *err)
{
    return store_status(s, put(s, "INSERT INTO batches(" COLUMNS ") VALUES(" MARKS ")", b), err);
}

int bulk_store_update_batch(struct bulk_store *s, const struct bulk_batch *b, struct quire_error *err)
{
    return store_status(s, put(s, update_sql, b), err);
}

int bulk_store_end_batch(struct bulk_store *s, const struct bulk_batch *b, const struct bulk_file *out,
                         const struct bulk_file *failed, struct quire_error *err)
{
    int code = store_exec(s, "BEGIN IMMEDIATE");
    if (code == SQLITE_OK && out)
        code = store_put_file(s, out);
    if (code == SQLITE_OK && failed)
        code = store_put_file(s, failed);
    if (code == SQLITE_OK)
        code = put(s, update_sql, b);
    return store_status(s, store_commit(s, code), err);
}

int bulk_store_find_batch(struct bulk_store *s, const char *tenant, const char *id, struct bulk_batch *out,
                          struct quire_error *err)
{
    struct store_query q;
    *out = (struct bulk_batch){.id = ""};
    if (!bulk_is_id(id, BULK_BATCH_ID) && !bulk_is_id(id, BULK_MESSAGES_ID))
        return not_found(id, err);
    store_prepare(&q, s, "SELECT " COLUMNS " FROM batches WHERE id = ? AND tenant = ?");
    store_bind_text(&q, id);
    store_bind_text(&q, tenant);
    const bool found = store_next(&q);
    if (found)
        read_batch(&q, out);
    const int status = store_status(s, store_end(&q), err);
    if (status != QUIRE_OK)
        bulk_batch_free(out);
    return status == QUIRE_OK && !found ? not_found(id, err) : status;
}

int bulk_store_remove_batch(struct bulk_store *s, const char *tenant, const char *id, struct quire_error *err)
{
    struct bulk_batch b;
    struct store_query q;
    int status = bulk_store_find_batch(s, tenant, id, &b, err);
    if (status != QUIRE_OK)
        return status;
    if (!bulk_state_is_last(b.state)) {
        bulk_batch_free(&b);
        return quire_fail(err, QUIRE_INVALID, "the batch has not ended: cancel it first");
    }
    int code = store_exec(s, "BEGIN IMMEDIATE");
    if (code == SQLITE_OK)
        code = store_drop_file(s, b.input);
    if (code == SQLITE_OK && b.output[0])
        code = store_drop_file(s, b.output);
    store_prepare(&q, s, "DELETE FROM batches WHERE id = ?");
    store_bind_text(&q, id);
    if (code == SQLITE_OK)
        code = store_run(&q);
    else
        store_end(&q);
    bulk_batch_free(&b);
    return store_status(s, store_commit(s, code), err);
}

static int64_t place_of(struct bulk_store *s, const char *tenant, const char *id, int *code)
{
    struct store_query q;
    store_prepare(&q, s, "SELECT seq FROM batches WHERE id = ? AND tenant = ?");
    store_bind_text(&q, id);
    store_bind_text(&q, tenant);
    const int64_t seq = store_next(&q) ? store_column(&q) : 0;
    *code = store_end(&q);
    return seq;
}

static void reverse(struct bulk_batch *items, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        const struct bulk_batch b = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = b;
    }
}

/* Reads until the end of the query, or limit rows. */
static int read_all(struct store_query *q, uint32_t limit, struct bulk_batch **out, size_t *n)
{
    size_t capacity = 0;
    while (*n < limit && store_next(q)) {
        if (*n == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            struct bulk_batch *grown = realloc(*out, capacity * sizeof *grown);
            if (!grown) {
                store_end(q);
                return SQLITE_NOMEM;
            }
            *out = grown;
        }
        read_batch(q, &(*out)[(*n)++]);
    }
    return store_end(q);
}

int bulk_store_list_batches(struct bulk_store *s, const char *tenant, const struct bulk_page *page,
                            struct bulk_batch **out, size_t *n, bool *has_more, struct quire_error *err)
{
    /* The newest come first: those before an id are newer. */
    const bool upward = page->before != NULL;
    const char *other = upward ? page->before : page->after;
    struct store_query q;
    int code = SQLITE_OK;
    int64_t from = INT64_MAX;
    *out = NULL;
    *n = 0;
    *has_more = false;
    if (other && !(from = place_of(s, tenant, other, &code)) && code == SQLITE_OK)
        return not_found(other, err);
    store_prepare(&q, s,
                  upward ? "SELECT " COLUMNS
                           " FROM batches WHERE tenant = ? AND seq > ? AND dialect = ? ORDER BY seq LIMIT ?"
                         : "SELECT " COLUMNS
                           " FROM batches WHERE tenant = ? AND seq < ? AND dialect = ? ORDER BY seq DESC LIMIT ?");
    store_bind_text(&q, tenant);
    store_bind(&q, from);
    store_bind(&q, page->dialect);
    store_bind(&q, (int64_t)page->limit + 1);
    code = read_all(&q, page->limit + 1, out, n);
    if (*n > page->limit) {
        *has_more = true;
        bulk_batch_free(&(*out)[--*n]);
    }
    if (upward)
        reverse(*out, *n);
    return store_status(s, code, err);
}

int bulk_store_unfinished(struct bulk_store *s, struct bulk_batch **out, size_t *n, struct quire_error *err)
{
    struct store_query q;
    *out = NULL;
    *n = 0;
    store_prepare(&q, s, "SELECT " COLUMNS " FROM batches WHERE state IN (0, 1, 2, 5) ORDER BY seq");
    return store_status(s, read_all(&q, UINT32_MAX, out, n), err);
}
