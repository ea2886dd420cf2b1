#include "server/front/output/reply_bytes.h"

#include "server/front/output/reply.h"

#include <malloc.h>

#define MIB ((uint64_t)1 << 20)
/* Replies up to this size are not counted. */
#define FREE_BYTES MIB
/* New replies are accepted up to here; the rest is for replies that grow. */
#define NEW_BYTES (FRONT_REPLIES_BYTES / 4 * 3)

/* The bytes of one alternative of a logprob, and of an id: measured on Qwen's and the demo's vocabularies, then
 * rounded up. */
#define ID_BYTES 7     /* with its comma */
#define RANKED_BYTES 72 /* "1234":{"logprob":-1.23456789,"rank":12,"decoded_token":" the"}, */
#define ARRAY_BYTES 24  /* " the":-12.3456789, */
#define ARRAY_TOKEN_BYTES 40
#define CHAT_BYTES 80 /* {"token":" the","logprob":-12.3456789,"bytes":[32,116,104,101]}, */
/* A waiting prompt holds its ids, and each choice its state. These are half of the real sizes, because a reply's byte
 * counts as two. */
#define WAITING_ID_BYTES 2
#define CHOICE_BYTES 400

/* A reply above this size returns its memory to the system: the allocator would keep most of it. */
#define TRIMMED_BYTES (8 * MIB)

struct sum {
    uint64_t total, largest;
    const char *field;
};

static void add(struct sum *s, const char *field, uint64_t n)
{
    s->total += n;
    if (n > s->largest) {
        s->largest = n;
        s->field = field;
    }
}

static uint64_t alternatives(int32_t n_top)
{
    return n_top < 0 ? 0 : (uint64_t)n_top + 1;
}

/* The bytes of a prompt in a reply. They repeat for each choice, except the logprobs of a chat. */
static void add_prompt(struct sum *s, const struct reply *r, const struct reply_prompt *p)
{
    const struct params *params = r->params;
    const uint64_t n = params->spec->n, n_ids = p->item.n_ids;
    const bool arrays = params->echo && params->spec->n_logprobs >= 0;
    if (params->echo)
        add(s, "echo", n * json_out_string_bytes(p->item.text, p->item.n_text));
    if (params->shows_prompt)
        add(s, "prompt", n * json_out_string_bytes(p->item.text, p->item.n_text));
    if (params->return_token_ids)
        add(s, "return_token_ids", n * n_ids * ID_BYTES);
    if (arrays)
        add(s, "logprobs", n * n_ids * (ARRAY_TOKEN_BYTES + alternatives(params->spec->n_logprobs) * ARRAY_BYTES));
    add(s, "prompt_logprobs", n * n_ids * alternatives(params->spec->n_prompt_logprobs) * RANKED_BYTES);
}

/* The bytes of the tokens to come; a stream does not keep them. */
static void add_generated(struct sum *s, const struct reply *r)
{
    const struct params *params = r->params;
    const uint64_t n = (uint64_t)params->spec->n * r->n_prompts;
    uint64_t n_tokens = params->has_max_tokens && !params->stream ? n * params->max_tokens : 0;
    if (params->return_token_ids)
        add(s, "return_token_ids", n_tokens * ID_BYTES);
    const char *field = r->dialect == &api_completions ? "logprobs" : "top_logprobs";
    const uint64_t bytes = r->dialect == &api_completions ? ARRAY_BYTES : CHAT_BYTES;
    add(s, field, n_tokens * alternatives(params->spec->n_logprobs) * bytes);
}

void reply_bytes_estimate(const struct reply *r, uint64_t *least, uint64_t *most, const char **field)
{
    struct sum s = {.field = "prompt"};
    const uint64_t n_choices = (uint64_t)r->n_prompts * r->params->spec->n;
    for (size_t i = 0; i < r->n_prompts; i++)
        add_prompt(&s, r, &r->prompts[i]);
    add(&s, "echo", r->params->spec->n * json_out_string_bytes(r->params->lead, r->params->n_lead));
    *least = s.total;
    add_generated(&s, r);
    *most = s.total;
    *field = s.field;
    if (r->n_prompts == 1)
        return;
    uint64_t waiting = n_choices * CHOICE_BYTES;
    for (size_t i = 0; i < r->n_prompts; i++)
        waiting += r->prompts[i].item.n_ids * WAITING_ID_BYTES;
    *least += waiting;
}

/* ---- budget ---- */

static void count(struct reply_budget *budget)
{
    uint64_t n = budget->held > budget->reserved ? budget->held : budget->reserved;
    if (n <= FREE_BYTES)
        n = 0;
    budget->replies->n_bytes += n - budget->counted;
    budget->replies->of_tenants[budget->tenant] += n - budget->counted;
    budget->counted = n;
}

bool reply_budget_take(struct reply_budget *budget, const struct reply *r, bool shared, struct api_error *e)
{
    uint64_t least, most;
    const char *field;
    reply_bytes_estimate(r, &least, &most, &field);
    if (most > FRONT_REPLY_BYTES)
        return api_bad(
            e, field,
            "the reply would have about %llu MiB, which is more than %llu MiB: send fewer prompts at once, or "
            "ask for fewer choices, tokens or logprobs",
            (unsigned long long)(most / MIB), (unsigned long long)(FRONT_REPLY_BYTES / MIB));
    const struct replies *all = budget->replies;
    const uint64_t of_tenant = all->of_tenants[budget->tenant];
    if (least > FREE_BYTES &&
        (all->n_bytes + least > NEW_BYTES || (shared && of_tenant > 0 && of_tenant + least > FRONT_REPLY_BYTES))) {
        api_fail(e, 429, NULL, "rate_limit_exceeded",
                 "the reply needs room for about %llu MiB, which other large replies have now: try again when they are "
                 "done",
                 (unsigned long long)(least / MIB + 1));
        e->retry_ms = 1000;
        return false;
    }
    budget->reserved = least;
    count(budget);
    return true;
}

int reply_budget_grow(struct reply_budget *budget, int64_t n_bytes, struct quire_error *err)
{
    budget->held += (uint64_t)n_bytes;
    if (budget->held <= budget->reserved || budget->held <= FREE_BYTES)
        return QUIRE_OK;
    count(budget);
    if (budget->held > FRONT_REPLY_BYTES)
        return quire_fail(err, QUIRE_INVALID, "the reply has become larger than the %llu MiB that one may have",
                          (unsigned long long)(FRONT_REPLY_BYTES / MIB));
    if (budget->replies->n_bytes > FRONT_REPLIES_BYTES)
        return quire_fail(err, QUIRE_EXHAUSTED, "there is no room for the reply beside other large replies");
    return QUIRE_OK;
}

void reply_budget_leave(struct reply_budget *budget)
{
    bool was_large = budget->counted > TRIMMED_BYTES;
    budget->reserved = budget->held = 0;
    if (budget->counted > 0)
        count(budget);
    if (was_large)
        malloc_trim(0);
}
