/* POST /cache/entries and POST /cache/import: list cached responses as they lie in memory, copy them to another
 * server, and import them. Only for admins, because a cached response is an answer to another client. */
#include "server/front/front_internal.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_IMPORT ((size_t)4 << 20) /* limit of a body, which is parsed on the loop */
#define PAGE_BYTES ((size_t)1 << 20) /* limit of the cached responses in a reply */

static void put_member(struct buffer *o, const char *name, uint64_t value)
{
    json_out_raw(o, "\"");
    json_out_raw(o, name);
    json_out_raw(o, "\":");
    json_out_u64(o, value);
    json_out_raw(o, ",");
}

struct listing {
    struct buffer *o;
    bool with_answers;
    uint32_t n;
};

static void put_answer(struct buffer *o, const struct cached_answer *k)
{
    const size_t room = sodium_base64_ENCODED_LEN(k->n, sodium_base64_VARIANT_ORIGINAL);
    json_out_raw(o, ",\"answer\":\"");
    char *text = buffer_reserve(o, room);
    if (text) {
        sodium_bin2base64(text, room, k->bytes, k->n, sodium_base64_VARIANT_ORIGINAL);
        o->n += room - 1;
    }
    json_out_raw(o, "\"");
}

static void put_entry(void *context, const struct cached_answer *k)
{
    struct listing *l = context;
    struct buffer *o = l->o;
    char key[65];
    quire_key256_hex(&k->key, key);
    json_out_raw(o, l->n++ > 0 ? ",{" : "{");
    json_out_raw(o, "\"key\":\"");
    json_out_raw(o, key);
    json_out_raw(o, "\",");
    put_member(o, "created_at", (uint64_t)k->created_s);
    put_member(o, "expires_at", (uint64_t)k->expires_s);
    put_member(o, "hit_count", k->n_hits);
    put_member(o, "prompt_tokens", k->n_prompt);
    put_member(o, "tokens", k->n_generated);
    put_member(o, "tokens_saved", k->n_hits * k->n_generated);
    put_member(o, "bytes", k->n);
    json_out_raw(o, k->unseeded ? "\"unseeded\":true" : "\"unseeded\":false");
    if (l->with_answers)
        put_answer(o, k);
    json_out_raw(o, "}");
}

/* The common beginning of both routes. NULL: an error was already sent. */
static struct quire_doc *begin(struct served_model *m, struct http_exchange *x, char **text)
{
    struct api_error e;
    struct quire_doc *body = NULL;
    size_t n;
    *text = NULL;
    if (!cache_may(m, x))
        return NULL;
    *text = http_take_body(x, &n);
    bool ok = (n <= MAX_IMPORT && request_body_parse(*text, n, &body, &e)) ||
              (n > MAX_IMPORT && api_bad(&e, "entries", "at most %zu MiB at once", MAX_IMPORT >> 20));
    if (ok)
        return body;
    quire_doc_close(body);
    free(*text);
    api_error_reply(x, &e);
    return NULL;
}

void cache_entries_start(struct served_model *m, struct http_exchange *x)
{
    struct api_error e;
    struct buffer o = {0};
    char *text;
    struct quire_doc *body = begin(m, x, &text);
    struct listing listing = {.o = &o};
    int64_t from = 0;
    if (!body)
        return;
    const bool ok = json_field_i64(body, "from", 0, INT64_MAX / 2, &from, &e) &&
                    json_field_bool(body, "answers", &listing.with_answers, &e);
    quire_doc_close(body);
    free(text);
    if (!ok) {
        api_error_reply(x, &e);
        return;
    }
    json_out_raw(&o, "{\"object\":\"cache.entries\",\"identity\":");
    json_out_text(&o, m->facts->arithmetic);
    json_out_raw(&o, ",\"entries\":[");
    const size_t next = response_cache_list(m->cache, (size_t)from, PAGE_BYTES, put_entry, &listing);
    json_out_raw(&o, "],\"next\":");
    if (next)
        json_out_u64(&o, next);
    else
        json_out_raw(&o, "null");
    json_out_raw(&o, "}");
    http_reply(x, o.failed ? 503 : 200, "application/json", o.data, o.failed ? 0 : o.n);
    buffer_free(&o);
}

/* Imports one response after checking it. Returns false if it is invalid or expired. */
static bool import_one(struct served_model *m, struct quire_value entry)
{
    struct api_error e;
    uint64_t expires = 0;
    char *text = NULL;
    size_t n_text, n = 0;
    const struct quire_value answer = json_is(entry, QUIRE_OBJECT) ? json_field_member(entry, "answer") : entry;
    if (!json_is(entry, QUIRE_OBJECT) || !json_is(answer, QUIRE_STRING) ||
        !json_value_whole(json_field_member(entry, "expires_at"), "expires_at", 0, INT64_MAX, &expires, &e) ||
        !json_value_text(answer, "answer", &text, &n_text, &e))
        return false;
    unsigned char *bytes = malloc(n_text + 1);
    const bool ok = bytes &&
                    sodium_base642bin(bytes, n_text, text, n_text, NULL, &n, NULL, sodium_base64_VARIANT_ORIGINAL) ==
                        0 &&
                    response_cache_import(m->cache, bytes, n, (int64_t)expires);
    free(bytes);
    free(text);
    return ok;
}

void cache_import_start(struct served_model *m, struct http_exchange *x)
{
    struct api_error e;
    char *text;
    struct quire_doc *body = begin(m, x, &text);
    const char *identity = NULL;
    uint64_t n_imported = 0, n_refused = 0;
    if (!body)
        return;
    struct quire_value entries = json_field_get(body, "entries"), entry;
    bool ok = json_field_string(body, "identity", &identity, &e) &&
              (json_is(entries, QUIRE_ARRAY) || api_bad(&e, "entries", "must be an array"));
    if (ok && (!identity || strcmp(identity, m->facts->arithmetic) != 0))
        ok = api_bad(&e, "identity", "these answers were made under %.64s, this engine computes under %s",
                     identity ? identity : "nothing that is told",
                     m->facts->arithmetic[0] ? m->facts->arithmetic : "nothing it tells");
    while (ok && quire_value_next(&entries, NULL, &entry))
        *(import_one(m, entry) ? &n_imported : &n_refused) += 1;
    quire_doc_close(body);
    free(text);
    if (!ok) {
        api_error_reply(x, &e);
        return;
    }
    char reply[96];
    const int n = snprintf(reply, sizeof reply, "{\"imported\":%llu,\"refused\":%llu}", (unsigned long long)n_imported,
                           (unsigned long long)n_refused);
    http_reply(x, 200, "application/json", reply, (size_t)n);
}
