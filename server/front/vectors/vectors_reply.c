/* Writes the replies with vectors and scores, in vLLM's form. */
#include "server/front/vectors/vectors.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void begin(const struct vectors *v, struct buffer *o, const char *prefix, const char *object)
{
    json_out_raw(o, "{\"id\":\"");
    json_out_raw(o, prefix);
    json_out_raw(o, http_request_id(v->x));
    json_out_raw(o, "\",\"object\":\"");
    json_out_raw(o, object);
    json_out_raw(o, "\",\"created\":");
    json_out_i64(o, (int64_t)time(NULL));
    json_out_raw(o, ",\"model\":");
    json_out_text(o, v->job->job.model);
}

static void put_usage(const struct vectors *v, struct buffer *o)
{
    json_out_raw(o, ",\"usage\":{\"prompt_tokens\":");
    json_out_u64(o, v->n_tokens);
    json_out_raw(o, ",\"total_tokens\":");
    json_out_u64(o, v->n_tokens);
    json_out_raw(o, ",\"completion_tokens\":0,\"prompt_tokens_details\":null}}");
}

/* Nine digits reproduce the same f32. */
static void put_number(struct buffer *o, double value)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%.9g", value);
    buffer_append(o, text, (size_t)n);
}

/* ---- embeddings ---- */

/* Tolerance for an f32 vector that was normalised. */
#define IS_NORMALISED 1e-6

/* Shortens in place to the first `dimensions` numbers, with length 1 if requested. A vector that already has length 1 keeps
 * its bits. */
static void shorten(const struct vectors *v, float *values)
{
    double squares = 0;
    if (!v->job->ask.normalize)
        return;
    for (uint32_t i = 0; i < v->job->ask.dimensions; i++)
        squares += (double)values[i] * values[i];
    if (fabs(squares - 1) < IS_NORMALISED)
        return;
    for (uint32_t i = 0; i < v->job->ask.dimensions && squares > 0; i++)
        values[i] = (float)(values[i] / sqrt(squares));
}

static void put_base64(struct buffer *o, const float *values, uint32_t n)
{
    unsigned char *to = buffer_reserve(o, (size_t)n * 6 + 8); /* 4 bytes for 3, and a NUL */
    if (to)
        o->n += (size_t)EVP_EncodeBlock(to, (const unsigned char *)values, (int)(n * sizeof *values));
}

void vectors_put_numbers(const struct vectors *v, struct buffer *o, size_t i)
{
    float *values = v->prompts[i].values;
    shorten(v, values);
    json_out_raw(o, "[");
    for (uint32_t k = 0; k < v->job->ask.dimensions; k++) {
        if (k > 0)
            json_out_raw(o, ",");
        put_number(o, values[k]);
    }
    json_out_raw(o, "]");
}

static void put_embedding(const struct vectors *v, struct buffer *o, size_t i)
{
    json_out_raw(o, i ? ",{\"index\":" : "{\"index\":");
    json_out_u64(o, i);
    json_out_raw(o, ",\"object\":\"embedding\",\"embedding\":");
    if (v->job->ask.base64) {
        shorten(v, v->prompts[i].values);
        json_out_raw(o, "\"");
        put_base64(o, v->prompts[i].values, v->job->ask.dimensions);
        json_out_raw(o, "\"");
    } else {
        vectors_put_numbers(v, o, i);
    }
    json_out_raw(o, "}");
}

void vectors_put_embeddings(const struct vectors *v, struct buffer *o)
{
    begin(v, o, "embd-", "list");
    json_out_raw(o, ",\"data\":[");
    for (size_t i = 0; i < v->n_prompts; i++)
        put_embedding(v, o, i);
    json_out_raw(o, "]");
    put_usage(v, o);
}

/* ---- scores ---- */

struct ranked {
    size_t index;
    double score;
};

static double cosine(const float *a, const float *b, uint32_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (uint32_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

/* The score of pair i: the model's score, between 0 and 1, or the similarity of its texts' vectors. */
static double score_of(const struct vectors *v, size_t i)
{
    const struct vectors_prompt *p = v->prompts;
    if (v->job->job.served->facts->vector_is_scores)
        return 1 / (1 + exp(-(double)p[i].values[0]));
    return cosine(p[v->job->ask.n_first == 1 ? 0 : i].values, p[v->job->ask.n_first + i].values,
                  v->job->job.served->facts->vector_size);
}

static size_t n_pairs(const struct vectors *v)
{
    return v->job->job.served->facts->vector_is_scores ? v->n_prompts : v->n_prompts - v->job->ask.n_first;
}

void vectors_put_scores(const struct vectors *v, struct buffer *o)
{
    begin(v, o, "score-", "list");
    json_out_raw(o, ",\"data\":[");
    for (size_t i = 0; i < n_pairs(v); i++) {
        json_out_raw(o, i ? ",{\"index\":" : "{\"index\":");
        json_out_u64(o, i);
        json_out_raw(o, ",\"object\":\"score\",\"score\":");
        put_number(o, score_of(v, i));
        json_out_raw(o, "}");
    }
    json_out_raw(o, "]");
    put_usage(v, o);
}

/* Best first; equal scores keep their order. */
static int by_score(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

void vectors_put_ranking(const struct vectors *v, struct buffer *o)
{
    size_t n = n_pairs(v);
    struct ranked *ranks = malloc(n * sizeof *ranks);
    if (!ranks) {
        o->failed = true;
        return;
    }
    for (size_t i = 0; i < n; i++)
        ranks[i] = (struct ranked){i, score_of(v, i)};
    qsort(ranks, n, sizeof *ranks, by_score);
    begin(v, o, "rerank-", "list");
    json_out_raw(o, ",\"results\":[");
    for (size_t i = 0; i < n && i < v->job->ask.top_n; i++) {
        const struct request_item *document = &v->job->job.text->items[v->job->ask.n_first + ranks[i].index];
        json_out_raw(o, i ? ",{\"index\":" : "{\"index\":");
        json_out_u64(o, ranks[i].index);
        if (document->text) {
            json_out_raw(o, ",\"document\":{\"text\":");
            json_out_string(o, document->text, document->n_text);
            json_out_raw(o, "}");
        }
        json_out_raw(o, ",\"relevance_score\":");
        put_number(o, ranks[i].score);
        json_out_raw(o, "}");
    }
    free(ranks);
    json_out_raw(o, "]");
    put_usage(v, o);
}
