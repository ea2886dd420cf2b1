#include "server/front/output/json_out.h"
#include "server/gateway/account/account_body.h"
#include "server/gateway/account/account_job.h"
#include "server/http/query.h"

#include <stdio.h>
#include <string.h>

#define MAX_ROWS 50000
#define MAX_DAYS 366
#define MAX_LAYERS 16

/* ---- the question --------------------------------------------------------------------------- */

/* "2026-01-31" as days since 1970. */
static bool read_day(const char *text, int64_t *out)
{
    static const char form[] = "0000-00-00";
    struct tm utc = {0};
    char again[16];
    for (size_t i = 0; i < sizeof form - 1; i++)
        if (form[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != form[i])
            return false;
    if (text[10] || sscanf(text, "%4d-%2d-%2d", &utc.tm_year, &utc.tm_mon, &utc.tm_mday) != 3)
        return false;
    utc.tm_year -= 1900;
    utc.tm_mon -= 1;
    const time_t at = timegm(&utc); /* corrects what no calendar has */
    strftime(again, sizeof again, "%Y-%m-%d", &utc);
    *out = (int64_t)at / PAYER_DAY_S;
    return at >= 0 && strcmp(again, text) == 0;
}

/* A field's text; "" if it is absent. False: its escapes are wrong, or it is too long. */
static bool field_text(const char *query, const char *name, char *out, size_t n, struct api_error *e)
{
    struct buffer text = {0};
    const enum query_result result = query_value(query, name, &text);
    const bool ok = result != QUERY_INVALID && !text.failed && text.n < n;
    if (ok && text.n)
        memcpy(out, text.data, text.n);
    out[ok ? text.n : 0] = '\0';
    buffer_free(&text);
    return ok ? true : api_bad(e, name, "is not a valid text of at most %zu bytes", n - 1);
}

static bool read_days(const char *query, struct ledger_question *q, struct api_error *e)
{
    char from[32], to[32];
    if (!field_text(query, "from", from, sizeof from, e) || !field_text(query, "to", to, sizeof to, e))
        return false;
    q->to = account_now_s() / PAYER_DAY_S;
    if (to[0] && !read_day(to, &q->to))
        return api_bad(e, "to", "must be a day such as 2026-01-31");
    q->from = q->to;
    if (from[0] && !read_day(from, &q->from))
        return api_bad(e, "from", "must be a day such as 2026-01-31");
    if (q->from > q->to)
        return api_bad(e, "from", "must not be after to");
    return q->to - q->from < MAX_DAYS ? true : api_bad(e, "from", "must be at most %d days before to", MAX_DAYS - 1);
}

static bool read_question(struct account_job *j, const struct ledger_account *own, struct api_error *e)
{
    static const char *const known[] = {"from", "to", "format", "key", "tenant", "organisation"};
    struct ledger_question *q = &j->question;
    const char *query = http_query(j->x);
    char format[32];
    if (!query_has_only(query, known, sizeof known / sizeof *known))
        return api_fail(e, 400, NULL, "invalid_value",
                        "the query has an unknown field; known: from, to, format, key, tenant, organisation");
    if (!read_days(query, q, e) || !field_text(query, "format", format, sizeof format, e) ||
        !field_text(query, "key", q->key, sizeof q->key, e) ||
        !field_text(query, "tenant", q->tenant, sizeof q->tenant, e) ||
        !field_text(query, "organisation", q->organisation, sizeof q->organisation, e))
        return false;
    j->is_csv = strcmp(format, "csv") == 0;
    if (format[0] && !j->is_csv && strcmp(format, "json") != 0)
        return api_bad(e, "format", "must be json or csv");
    if (own && (q->key[0] || q->tenant[0] || q->organisation[0]))
        return api_fail(e, 403, NULL, "admin_required", "key, tenant and organisation need the key of an admin");
    if (own && own->key)
        snprintf(q->key, sizeof q->key, "%s", own->key->row.id);
    else if (own)
        snprintf(q->tenant, sizeof q->tenant, "%s", own->tenant->name);
    return true;
}

/* ---- the reply ------------------------------------------------------------------------------ */

struct totals {
    struct ledger_sums sums;
    char layers[MAX_LAYERS][32];
    uint64_t saved[MAX_LAYERS];
    size_t n_layers;
};

struct writing {
    struct buffer *o;
    bool is_csv;
    uint64_t n;
    struct totals totals;
};

static void day_text(int64_t day, char out[16])
{
    const time_t at = (time_t)(day * PAYER_DAY_S);
    struct tm utc;
    gmtime_r(&at, &utc);
    strftime(out, 16, "%Y-%m-%d", &utc);
}

/* Quoted, so that no text ends a field; a spreadsheet must not take it for a formula. */
static void csv_text(struct buffer *o, const char *text)
{
    json_out_raw(o, strchr("=+-@", text[0]) && text[0] ? ",\"'" : ",\"");
    for (; *text; text++)
        buffer_append(o, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    json_out_raw(o, "\"");
}

static void csv_row(struct buffer *o, const char *day, const struct ledger_usage_row *row)
{
    const char *const texts[] = {row->organisation, row->tenant, row->key, row->model, row->layer};
    const uint64_t counts[] = {row->sums.requests, row->sums.input, row->sums.cached_input, row->sums.output};
    const uint64_t amounts[] = {row->sums.cost, row->sums.saved};
    char money[LEDGER_MONEY_BYTES];
    json_out_raw(o, day);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        csv_text(o, texts[i]);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        json_out_raw(o, ",");
        json_out_u64(o, counts[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        ledger_money(amounts[i], money);
        json_out_raw(o, ",");
        json_out_raw(o, money);
    }
    json_out_raw(o, "\r\n");
}

static void json_sums(struct buffer *o, const struct ledger_sums *sums)
{
    static const char *const names[] = {
        "\"requests\":", ",\"input_tokens\":", ",\"cached_input_tokens\":", ",\"output_tokens\":"};
    const uint64_t counts[] = {sums->requests, sums->input, sums->cached_input, sums->output};
    char money[LEDGER_MONEY_BYTES];
    for (size_t i = 0; i < 4; i++) {
        json_out_raw(o, names[i]);
        json_out_u64(o, counts[i]);
    }
    ledger_money(sums->cost, money);
    json_out_raw(o, ",\"cost\":");
    json_out_raw(o, money);
    ledger_money(sums->saved, money);
    json_out_raw(o, ",\"saved\":");
    json_out_raw(o, money);
}

static void json_row(struct buffer *o, const char *day, const struct ledger_usage_row *row)
{
    json_out_raw(o, "{\"day\":\"");
    json_out_raw(o, day);
    json_out_raw(o, "\",\"organisation\":");
    json_out_text(o, row->organisation);
    json_out_raw(o, ",\"tenant\":");
    json_out_text(o, row->tenant);
    json_out_raw(o, ",\"key\":");
    json_out_text_or_null(o, row->key[0] ? row->key : NULL);
    json_out_raw(o, ",\"model\":");
    json_out_text(o, row->model);
    json_out_raw(o, ",\"cache_layer\":");
    json_out_text_or_null(o, row->layer[0] ? row->layer : NULL);
    json_out_raw(o, ",");
    json_sums(o, &row->sums);
    json_out_raw(o, "}");
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    return __builtin_add_overflow(a, b, &a) ? UINT64_MAX : a;
}

static void count(struct totals *t, const struct ledger_usage_row *row)
{
    struct ledger_sums *s = &t->sums;
    *s = (struct ledger_sums){sum(s->requests, row->sums.requests),
                              sum(s->input, row->sums.input),
                              sum(s->cached_input, row->sums.cached_input),
                              sum(s->output, row->sums.output),
                              sum(s->cost, row->sums.cost),
                              sum(s->saved, row->sums.saved)};
    size_t i = 0;
    while (i < t->n_layers && strcmp(t->layers[i], row->layer) != 0)
        i++;
    if (!row->layer[0] || i == MAX_LAYERS)
        return;
    if (i == t->n_layers)
        snprintf(t->layers[t->n_layers++], sizeof t->layers[0], "%s", row->layer);
    t->saved[i] = sum(t->saved[i], row->sums.saved);
}

static bool write_row(void *context, const struct ledger_usage_row *row)
{
    struct writing *w = context;
    char day[16];
    day_text(row->day, day);
    if (w->n++ == MAX_ROWS)
        return false;
    if (w->is_csv) {
        csv_row(w->o, day, row);
    } else {
        json_out_raw(w->o, w->n > 1 ? "," : "");
        json_row(w->o, day, row);
    }
    count(&w->totals, row);
    return !w->o->failed;
}

static void write_head(struct writing *w, const struct ledger_question *q)
{
    char from[16], to[16];
    if (w->is_csv) {
        json_out_raw(w->o, "day,organisation,tenant,key,model,cache_layer,requests,input_tokens,cached_input_tokens,"
                           "output_tokens,cost,saved\r\n");
        return;
    }
    day_text(q->from, from);
    day_text(q->to, to);
    json_out_raw(w->o, "{\"object\":\"list\",\"from\":\"");
    json_out_raw(w->o, from);
    json_out_raw(w->o, "\",\"to\":\"");
    json_out_raw(w->o, to);
    json_out_raw(w->o, "\",\"data\":[");
}

static void write_end(struct writing *w)
{
    char money[LEDGER_MONEY_BYTES];
    if (w->is_csv)
        return;
    json_out_raw(w->o, "],\"total\":{");
    json_sums(w->o, &w->totals.sums);
    json_out_raw(w->o, ",\"saved_by_layer\":{");
    for (size_t i = 0; i < w->totals.n_layers; i++) {
        json_out_raw(w->o, i ? "," : "");
        json_out_text(w->o, w->totals.layers[i]);
        ledger_money(w->totals.saved[i], money);
        json_out_raw(w->o, ":");
        json_out_raw(w->o, money);
    }
    json_out_raw(w->o, "}}}");
}

/* On the ledger's thread. */
static int list_usage(struct ledger_db *db, struct ledger_job *job)
{
    struct account_job *j = (struct account_job *)job;
    struct writing w = {.o = &j->reply, .is_csv = j->is_csv};
    write_head(&w, &j->question);
    int code = ledger_db_usage(db, &j->question, write_row, &w);
    write_end(&w);
    if (code == SQLITE_ABORT && w.n > MAX_ROWS)
        code = SQLITE_TOOBIG;
    return j->reply.failed ? SQLITE_NOMEM : code;
}

static void listed(struct ledger_job *job, int code)
{
    struct account_job *j = (struct account_job *)job;
    struct api_error e;
    if (j->x && code == SQLITE_TOOBIG) {
        api_bad(&e, "from", "there are more than %d rows; ask for fewer days, one key or one tenant", MAX_ROWS);
        api_error_reply(j->x, &e);
    } else if (account_job_succeeded(j, code) && j->x) {
        http_reply(j->x, 200, j->is_csv ? "text/csv; charset=utf-8" : "application/json", j->reply.data, j->reply.n);
    }
    account_job_free(j);
}

void account_usage(struct ledger *l, struct http_exchange *x, const struct ledger_account *own)
{
    struct api_error e;
    struct account_job *j = account_job_new(l, x);
    if (!j)
        return;
    if (read_question(j, own, &e)) {
        account_job_run(j, list_usage, listed);
        return;
    }
    api_error_reply(x, &e);
    account_job_free(j);
}
