/* The fields of a request for the response cache, and the headers of its reply about it. */
#include "server/front/output/generation_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Reads one directive of Cache-Control, n bytes. */
static void read_directive(const char *at, size_t n, struct params_cache *cache)
{
    static const char max_age[] = "max-age=";
    const size_t n_age = sizeof max_age - 1;
    if (n == 8 && strncasecmp(at, "no-cache", n) == 0) {
        cache->no_cache = true;
    } else if (n == 8 && strncasecmp(at, "no-store", n) == 0) {
        cache->no_store = true;
    } else if (n > n_age && n < n_age + 10 && strncasecmp(at, max_age, n_age) == 0 &&
               strspn(at + n_age, "0123456789") == n - n_age) {
        cache->max_age_s = (uint32_t)strtoul(at + n_age, NULL, 10);
        cache->no_cache |= cache->max_age_s == 0;
    }
}

/* Ignores unknown directives, as HTTP requires. */
void generation_cache_header(const struct http_exchange *x, struct params_cache *cache)
{
    static const char name[] = "cache-control";
    for (const char *line = http_header(x, name); line; line = http_header_next(x, name, line)) {
        for (const char *at = line; *at;) {
            at += strspn(at, " \t,");
            const size_t n = strcspn(at, " \t,");
            read_directive(at, n, cache);
            at += n;
        }
    }
}

/* Digest of all settings by which this front end, not the engine, cuts choices. The position of a stop string depends
 * on how tokens are decoded. */
static struct key256 cut_digest(const struct served_model *m, const struct params *p)
{
    struct quire_sha256_state s;
    const uint8_t how[2] = {p->skip_special, p->include_stop};
    if (!p->stops)
        return (struct key256){{0}};
    quire_sha256_begin(&s);
    quire_sha256_add(&s, m->config->prompt_identity.bytes, sizeof m->config->prompt_identity.bytes);
    quire_sha256_add(&s, how, sizeof how);
    for (size_t i = 0; i < p->stops->n; i++) {
        const uint16_t n = (uint16_t)p->stops->bytes[i];
        quire_sha256_add(&s, &n, sizeof n);
        quire_sha256_add(&s, p->stops->strings[i], n);
    }
    return quire_sha256_now(&s);
}

void generation_cache_begin(struct generation_cache *c, const struct served_model *m, const struct params *params,
                            struct generation_job *j)
{
    const struct params_cache *body = &params->cache, *header = &c->header;
    c->terms = (struct completion_terms){
        .cut = cut_digest(m, params),
        .domain = j->answer_domain,
        .no_cache = body->no_cache || header->no_cache,
        .no_store = body->no_store || header->no_store,
        .streams = params->stream,
        .ttl_s = body->ttl_s,
        .max_age_s = header->max_age_s,
    };
    c->question = j->question;
    j->question = NULL;
    if (!c->question)
        return;
    c->terms.question = c->question->text;
    c->terms.n_question = c->question->n;
    c->terms.around = c->question->around;
}

void generation_cache_free(struct generation_cache *c)
{
    if (!c)
        return;
    question_destroy(c->question);
    buffer_free(&c->shown);
    free(c);
}

void generation_cache_origin(struct generation_cache *cache, struct completion_lookups *lookups,
                             const struct completion_origin *origin)
{
    struct cache_report *c = &cache->report;
    if (origin->again || c->n_told++ == 0) { /* only requests with one prompt get a second report */
        c->layer = origin->layer;
        c->has_key = origin->from != COMPLETION_SIMILAR; /* a similar question's answer is not the reply to this one */
        c->key = origin->key;
        c->similarity = origin->similarity;
        for (uint32_t i = 0; i < origin->lookups->n; i++)
            completion_looked(lookups, origin->lookups->items[i]);
    }
    c->n_drafted += origin->from == COMPLETION_DRAFTED;
    if (origin->again || origin->from == COMPLETION_COMPUTED || origin->from == COMPLETION_DRAFTED)
        return;
    c->n_similar += origin->from == COMPLETION_SIMILAR;
    c->n_cached++;
    c->unseeded |= origin->unseeded;
    if (origin->age_s > c->age_s)
        c->age_s = origin->age_s;
}

void generation_cache_say(const struct served_model *m, struct http_exchange *x, const struct cache_report *c)
{
    char age[16], similarity[16];
    if (!m->cache)
        return;
    if (c->n_drafted + c->n_similar > 0) {
        snprintf(similarity, sizeof similarity, "%.4f", (double)c->similarity);
        http_add_header(x, "x-quire-similarity", similarity);
    }
    if (c->n_told == 0 || c->n_cached < c->n_told) {
        http_add_header(x, "x-quire-cache", c->n_told == 0 ? "off" : c->n_drafted ? "draft" : "miss");
        return;
    }
    snprintf(age, sizeof age, "%u", c->age_s);
    http_add_header(x, "x-quire-cache", c->n_similar ? "semantic" : "exact");
    http_add_header(x, "x-quire-cache-age", age);
    if (c->unseeded)
        http_add_header(x, "x-quire-cache-unseeded", "true");
}
