#include "engine/record/submit.h"

#include "engine/record/format.h"
#include "request/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum list { SEQS, PROMPT, STOPS, BIASES, ALLOWED, BAD_WORDS, N_LISTS }; /* only seqs in version 2 */

struct submit_reader {
    uint32_t version;
    struct recording_submit submit;
    struct request_spec *spec; /* the submit's; its lists are owned in version 2, and scratch in version 1 */
    struct scratch scratch[N_LISTS];
};

struct submit_reader *submit_reader_create(uint32_t version)
{
    struct submit_reader *r = calloc(1, sizeof *r);
    struct request_spec *spec = calloc(1, sizeof *spec);
    if (!r || !spec) {
        free(r);
        free(spec);
        return NULL;
    }
    r->version = version;
    r->spec = spec;
    return r;
}

void submit_reader_destroy(struct submit_reader *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < N_LISTS; i++)
        free(r->scratch[i].data);
    if (r->version > 1)
        request_spec_free(r->spec);
    free(r->spec);
    free(r);
}

/* ---- version 1: consecutive fields ---- */

static void get_sampling_1(struct submit_reader *r, struct body *b, bool restricted, struct request_spec *s)
{
    s->temperature = body_f32(b);
    s->top_p = body_f32(b);
    s->min_p = body_f32(b);
    s->top_k = body_u32(b);
    s->repetition_penalty = body_f32(b);
    s->presence_penalty = body_f32(b);
    s->frequency_penalty = body_f32(b);
    s->has_seed = true;
    s->seed = body_u64(b);
    s->n_logprobs = (int32_t)body_u32(b);
    s->n_prompt_logprobs = (int32_t)body_u32(b);
    s->ignore_eos = true;
    s->min_tokens = body_u32(b);
    s->n_stop_token_ids = body_u32(b);
    s->stop_token_ids = body_u32s(b, &r->scratch[STOPS], s->n_stop_token_ids);
    s->n_biases = body_u32(b);
    const uint8_t *in = body_bytes(b, 8 * (size_t)s->n_biases);
    struct request_bias *biases = in ? body_scratch(b, &r->scratch[BIASES], s->n_biases, sizeof *biases) : NULL;
    struct body pairs = {.at = in, .end = in ? in + 8 * (size_t)s->n_biases : NULL};
    for (uint32_t i = 0; biases && i < s->n_biases; i++) {
        biases[i].id = body_u32(&pairs);
        biases[i].bias = body_f32(&pairs);
    }
    s->biases = biases;
    if (!restricted)
        return;
    s->n_allowed_token_ids = body_u32(b);
    s->allowed_token_ids = body_u32s(b, &r->scratch[ALLOWED], s->n_allowed_token_ids);
    s->n_bad_words = body_u32(b);
    s->bad_words = body_u32s(b, &r->scratch[BAD_WORDS], s->n_bad_words);
}

/* Returns the record's flags. */
static uint8_t get_request_1(struct submit_reader *r, struct body *b, struct recording_submit *s)
{
    struct sched_request *q = &s->sched;
    q->id = body_u64(b);
    q->n_prompt = body_u32(b);
    q->prompt = body_u32s(b, &r->scratch[PROMPT], q->n_prompt);
    q->max_tokens = body_u32(b);
    q->n = body_u32(b);
    uint8_t flags = body_u8(b);
    if (flags & ~RECORD_FLAGS_1)
        body_wrong(b, "has flags that do not exist");
    q->prompt_logprobs = flags & RECORD_PROMPT_LOGPROBS;
    q->no_prefix_hits = flags & RECORD_NO_PREFIX_HITS;
    q->background = flags & RECORD_BACKGROUND;
    q->host_gated = flags & RECORD_HOST_GATED;
    q->priority = (int32_t)body_u32(b);
    q->arrival_us = body_time(b);
    q->deadline_us = body_time(b);
    q->pin_us = body_time(b);
    q->tenant = body_u32(b);
    q->class_index = body_u32(b);
    q->expected_tokens = body_u32(b);
    q->adapter = body_u32(b);
    const uint8_t *domain = body_bytes(b, RECORDING_DOMAIN_BYTES);
    if (domain)
        memcpy(s->domain, domain, RECORDING_DOMAIN_BYTES);
    return flags;
}

static void check_request(const struct recording_header *h, struct body *b, const struct sched_request *q)
{
    uint32_t n_tenants = h->config->policy_options.n_tenants;
    if (q->n_prompt == 0 || q->n == 0 || q->n > REQUEST_MAX_CHOICES)
        body_wrong(b, "has no prompt, or choices that cannot be");
    if ((uint64_t)q->n_prompt + q->max_tokens > h->config->max_model_len)
        body_wrong(b, "is longer than the recording's max_model_len");
    if (q->tenant >= (n_tenants ? n_tenants : 1) || q->class_index >= SCHED_MAX_CLASSES)
        body_wrong(b, "has a tenant or class that does not exist");
    for (uint32_t i = 0; !b->wrong && i < q->n_prompt; i++)
        if (q->prompt[i] >= h->engine->vocab_size)
            body_wrong(b, "has a token that is not in the vocabulary");
}

/* Reads a request, then the inputs of its sampler. */
static void get_submit_1(const struct recording_header *h, struct submit_reader *r, struct body *b,
                         struct recording_submit *s)
{
    s->request = body_u64(b);
    uint8_t flags = get_request_1(r, b, s);
    *r->spec = (struct request_spec){
        .prompt = s->sched.prompt, .n_prompt = s->sched.n_prompt, .max_tokens = s->sched.max_tokens, .n = s->sched.n};
    check_request(h, b, &s->sched);
    get_sampling_1(r, b, flags & RECORD_RESTRICTED, r->spec);
}

/* ---- version 2: tagged fields ---- */

static void get_spec(struct submit_reader *r, struct body *b)
{
    uint32_t n = body_u32(b);
    const uint8_t *in = body_bytes(b, n);
    request_spec_free(r->spec);
    struct quire_error err = {0};
    int status = in ? request_spec_get("request", in, n, r->spec, &err) : QUIRE_OK;
    if (status == QUIRE_NO_MEMORY) {
        body_wrong(b, "needs more memory than there is");
    } else if (status != QUIRE_OK) {
        snprintf(b->text, sizeof b->text,
                 status == QUIRE_UNSUPPORTED ? "has a field that this program does not know and must: %s"
                                             : "has a request that cannot be read: %s",
                 err.text);
        body_wrong(b, b->text);
    }
}

static void get_submit_2(const struct recording_header *h, struct submit_reader *r, struct body *b,
                         struct recording_submit *s)
{
    struct sched_request *q = &s->sched;
    const struct request_spec *spec = r->spec;
    s->request = body_u64(b);
    q->id = body_u64(b);
    q->arrival_us = body_time(b);
    q->deadline_us = body_time(b);
    uint8_t flags = body_u8(b);
    if (flags & ~RECORD_FLAGS_2)
        body_wrong(b, "has flags that do not exist");
    q->prompt_logprobs = flags & RECORD_PROMPT_LOGPROBS;
    q->no_prefix_hits = flags & RECORD_NO_PREFIX_HITS;
    q->host_gated = flags & RECORD_HOST_GATED;
    q->vector = flags & RECORD_VECTOR;
    q->adapter = body_u32(b);
    const uint8_t *domain = body_bytes(b, RECORDING_DOMAIN_BYTES);
    if (domain)
        memcpy(s->domain, domain, RECORDING_DOMAIN_BYTES);
    get_spec(r, b);
    q->prompt = spec->prompt;
    q->n_prompt = spec->n_prompt;
    q->max_tokens = spec->max_tokens;
    q->n = spec->n;
    q->background = spec->background;
    q->priority = spec->priority;
    q->pin_us = spec->pin_us;
    q->keep_us = spec->keep_us;
    q->keep_name = spec->keep_name;
    q->tenant = spec->tenant;
    q->class_index = spec->class_index;
    q->expected_tokens = spec->expected_tokens;
    if (q->pin_us > RECORD_MAX_TIME_US || q->keep_us > RECORD_MAX_TIME_US)
        body_wrong(b, "has a time out of range");
    check_request(h, b, q);
}

struct recording_submit *submit_read(struct submit_reader *r, const struct recording_header *h, struct body *b)
{
    struct recording_submit *s = &r->submit;
    *s = (struct recording_submit){.spec = r->spec};
    if (h->version == 1)
        get_submit_1(h, r, b, s);
    else
        get_submit_2(h, r, b, s);
    s->status = body_below(b, QUIRE_INTERNAL + 1, "has a status that does not exist");
    s->retry_us = body_u64(b);
    if (s->status == QUIRE_OK)
        s->seqs = body_u32s(b, &r->scratch[SEQS], s->sched.n);
    for (uint32_t i = 0; s->seqs && i < s->sched.n; i++)
        if (s->seqs[i] >= BODY_MAX_SEQS)
            body_wrong(b, "names a sequence that cannot be");
    return s;
}
