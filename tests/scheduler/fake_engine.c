#include "tests/scheduler/fake_oracle.h"

#include "memory/prefix.h"
#include "scheduler/scheduler.h"

#include <stdlib.h>
#include <string.h>

#define fail fake_fail

const char *fake_failure(const struct fake_engine *e)
{
    return e->failure;
}

static bool stops(const struct fake_request *r, uint32_t token)
{
    return r->stop_every > 0 && token % r->stop_every == 0;
}

static void push_token(struct fake_seq *d, uint32_t token)
{
    uint64_t before = d->n > 0 ? d->prefix[d->n - 1] : fake_empty_prefix(d->request.tenant);
    d->tokens[d->n] = token;
    d->prefix[d->n++] = fake_extend_prefix(before, token);
}

bool fake_open(struct fake_engine *e, const struct sched_config *config, uint64_t seed, enum fake_fault fault)
{
    struct quire_error err = {.text = ""};
    memset(e, 0, sizeof *e);
    e->config = *config;
    e->random.state = seed;
    e->fault = fault;
    for (uint32_t i = 0; config->policy_options.tenants && i < FAKE_TENANTS; i++) {
        e->limits[i].max_seats = config->policy_options.tenants[i].max_seats;
        e->limits[i].max_blocks = config->policy_options.tenants[i].max_kv_blocks;
    }
    for (uint32_t g = 0; g < config->kv.n_groups; g++)
        e->store[g] = calloc((size_t)config->kv.groups[g].n_blocks * config->kv.block_tokens, sizeof *e->store[g]);
    for (uint32_t g = 0; g < config->kv.n_groups; g++)
        e->host[g] = calloc((size_t)config->kv.groups[g].n_host_blocks * config->kv.block_tokens + 1,
                            sizeof *e->host[g]);
    e->now_us = 2000 + fake_below(&e->random, 1000000);
    if (sched_create(config, &e->sched, &err))
        return fail(e, "create: %s", err.text);
    return true;
}

bool fake_close(struct fake_engine *e, bool idle)
{
    for (uint32_t i = 0; idle && i < FAKE_MAX_NAMES; i++)
        if (e->seqs[i].used)
            fail(e, "sequence %u was never retired", i);
    if (idle && e->sched && !sched_idle(e->sched))
        fail(e, "the scheduler is not idle at the end");
    for (uint32_t g = 0; idle && e->sched && g < e->config.kv.n_groups; g++) {
        struct kv_usage usage = sched_kv_usage(e->sched, g);
        if (usage.n_free != usage.n_blocks)
            fail(e, "group %u: %u of %u blocks free at the end", g, usage.n_free, usage.n_blocks);
    }
    sched_destroy(e->sched);
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++) {
        free(e->store[g]);
        free(e->host[g]);
    }
    return !e->failure[0];
}

/* The expected status of sched_submit, except for pins. */
static int owed_status(const struct fake_engine *e, const struct fake_request *r)
{
    const struct sched_config *c = &e->config;
    struct sched_stats stats = sched_stats(e->sched);
    uint32_t positions = r->n_prompt + (r->max_tokens ? r->max_tokens - 1 : 0);
    if (r->n_prompt + r->max_tokens > c->max_model_len || r->n > c->max_queued_requests)
        return QUIRE_INVALID;
    for (uint32_t g = 0; g < c->kv.n_groups; g++)
        if (kv_blocks_needed(&c->kv, g, positions, c->max_num_batched_tokens * (c->overlap_depth + 1)) >
            c->kv.groups[g].n_blocks)
            return QUIRE_INVALID;
    for (uint32_t g = 0; g < c->kv.n_groups && e->limits[r->tenant].max_blocks > 0; g++)
        if (kv_blocks_needed(&c->kv, g, positions, c->max_num_batched_tokens * (c->overlap_depth + 1)) >
            e->limits[r->tenant].max_blocks)
            return QUIRE_INVALID;
    if (stats.n_waiting + r->n > c->max_queued_requests)
        return QUIRE_EXHAUSTED;
    if (c->max_queued_tokens && stats.n_waiting_tokens && stats.n_waiting_tokens + r->n_prompt > c->max_queued_tokens)
        return QUIRE_EXHAUSTED;
    return QUIRE_OK;
}

static void hash_prompt(const struct fake_engine *e, const struct fake_request *r, struct sched_request *out,
                        struct key256 *hashes)
{
    uint32_t bt = e->config.kv.block_tokens;
    struct kv_chain_root root = {.secret = e->config.secret, .block_tokens = bt};
    root.tenant.bytes[0] = (uint8_t)r->tenant;
    out->chain_first = kv_chain_first(&root);
    for (uint32_t i = 0; i < r->n_prompt / bt; i++)
        hashes[i] = kv_chain_next(&e->config.secret, i ? &hashes[i - 1] : &out->chain_first, r->prompt + i * bt, bt);
    out->hashes = hashes;
}

/* The scheduler takes a prompt exactly if it accepts the request, and leaves it as it is otherwise. */
static bool prompt_is_right(const struct fake_request *r, const uint32_t *owned, int status)
{
    if (status == QUIRE_OK)
        return owned == NULL;
    return owned && memcmp(owned, r->prompt, r->n_prompt * sizeof *owned) == 0;
}

bool fake_submit(struct fake_engine *e, struct fake_request *r)
{
    struct quire_error err = {.text = ""};
    struct key256 hashes[FAKE_MAX_LEN];
    uint32_t names[FAKE_MAX_CHOICES];
    uint64_t retry_us = 0;
    r->id = ++e->next_id;
    r->arrival_us = e->now_us - fake_below(&e->random, fake_chance(&e->random, 20) ? 1000 : 1);
    r->deadline_us += r->deadline_us ? e->now_us : 0;
    struct sched_request request = {.id = r->id,
                                    .prompt = r->prompt,
                                    .n_prompt = r->n_prompt,
                                    .max_tokens = r->max_tokens,
                                    .n = r->n,
                                    .prompt_logprobs = r->prompt_logprobs,
                                    .vector = r->vector,
                                    .no_prefix_hits = r->no_prefix_hits,
                                    .priority = r->priority,
                                    .tenant = r->tenant,
                                    .class_index = r->class_index,
                                    .expected_tokens = r->expected_tokens,
                                    .background = r->background,
                                    .host_gated = r->host_gated,
                                    .arrival_us = r->arrival_us,
                                    .deadline_us = r->deadline_us,
                                    .pin_us = r->pin_us,
                                    .keep_us = r->keep_us,
                                    .adapter = r->adapter};
    hash_prompt(e, r, &request, hashes);
    uint32_t *owned = r->id % 2 ? malloc(r->n_prompt * sizeof *owned) : NULL;
    if (owned) {
        request.prompt = memcpy(owned, r->prompt, r->n_prompt * sizeof *owned);
        request.owned_prompt = &owned;
    }
    int owed = owed_status(e, r);
    int status = sched_submit(e->sched, &request, names, &retry_us, &err);
    bool is_right = !request.owned_prompt || prompt_is_right(r, owned, status);
    free(owned);
    if (!is_right)
        return fail(e, "submit gave %s and the wrong prompt back", quire_status_name(status));
    if (owed == QUIRE_OK)
        owed = fake_pin_status(e, r, status == QUIRE_OK);
    bool given_up = owed == QUIRE_OK && status == QUIRE_EXHAUSTED && retry_us > 0 && e->config.policy->refuse;
    e->seen.given_up += given_up;
    if (status != owed && !given_up)
        return fail(e, "submit gave %s, owed %s: %s", quire_status_name(status), quire_status_name(owed), err.text);
    e->seen.refused += status != QUIRE_OK;
    for (uint32_t i = 0; i < r->n && !status; i++) {
        if (names[i] >= FAKE_MAX_NAMES || e->seqs[names[i]].used)
            return fail(e, "submit gave the name %u, which is in use", names[i]);
        struct fake_seq *d = &e->seqs[names[i]];
        memset(d, 0, sizeof *d);
        d->used = true;
        d->order = ++e->next_order;
        d->choice = i;
        d->n_choices = r->n;
        d->request = *r;
        for (uint32_t t = 0; t < r->n_prompt; t++)
            push_token(d, r->prompt[t]);
        d->n_committed = d->n;
        if (e->fault == FAULT_ORDER && sched_stats(e->sched).n_waiting > 4 &&
            strcmp(e->config.policy->name, "fcfs") == 0 && !r->background) {
            d->order = 1;
            e->fault = FAULT_NONE;
        }
    }
    e->no_more = e->no_more && status;
    return true;
}

static bool is_verifying(const struct fake_engine *e, uint32_t seq)
{
    for (uint32_t k = 0; k < e->n_launched; k++)
        for (uint32_t i = 0; i < e->launched[k].n_rows; i++)
            if (e->launched[k].rows[i].seq == seq && e->launched[k].rows[i].n_draft > 0)
                return true;
    return false;
}

static bool check_row(struct fake_engine *e, const struct sched_row *row, uint64_t step)
{
    struct fake_seq *d = &e->seqs[row->seq];
    const struct fake_request *r = &d->request;
    uint32_t end = row->first + row->count - row->n_draft;
    if (!d->used || d->over || row->count == 0 || d->last_step == step)
        return fail(e, "row of sequence %u, which may not have one", row->seq);
    if ((r->host_gated || d->gated) && end > d->n_committed)
        return fail(e, "sequence %u runs past what is known", row->seq);
    if (row->n_draft > d->n_drafts ||
        (row->n_draft > 0 && (!row->outputs.tokens || d->n_sampling > 0 || end != d->n_committed)))
        return fail(e, "sequence %u: %u drafts after %u tokens, which it has not", row->seq, row->n_draft, end);
    if (row->adapter != r->adapter)
        return fail(e, "row of sequence %u has the wrong adapter", row->seq);
    if (!d->planned && d->choice == 0) {
        if ((r->no_prefix_hits || r->prompt_logprobs) && row->first != 0)
            return fail(e, "sequence %u took a hit it must not", row->seq);
        if (row->first != sched_cached_tokens(e->sched, row->seq) || row->first % e->config.kv.block_tokens != 0 ||
            row->first >= r->n_prompt)
            return fail(e, "sequence %u starts at %u", row->seq, row->first);
        e->seen.hit_tokens += row->first;
    }
    uint32_t first_logit = row->outputs.tokens ? end - 1 : end;
    if (r->prompt_logprobs && d->choice == 0 && d->n_logits < r->n_prompt && end > d->n_logits) {
        first_logit = d->n_logits;
        d->n_logits = end;
        if (first_logit < row->first)
            return fail(e, "sequence %u skips logits from %u to %u", row->seq, first_logit, row->first);
    }
    if (r->prompt_logprobs && d->choice > 0)
        first_logit = row->first_logit < first_logit ? row->first_logit : first_logit;
    bool scores = first_logit < (row->outputs.tokens ? end - 1 : end);
    if (row->outputs.scores != scores ||
        row->outputs.vector != (r->vector && row->first < r->n_prompt && end >= r->n_prompt))
        return fail(e, "sequence %u: scores or vector are wanted, or not", row->seq);
    if (row->first_logit != first_logit)
        return fail(e, "sequence %u: logits from %u, wanted from %u", row->seq, row->first_logit, first_logit);
    d->planned = true;
    d->last_step = step;
    return true;
}

/* Copies what the row reads and writes with, as a real engine copies it to the device. */
static bool copy_row(struct fake_engine *e, struct fake_launch *launch, uint32_t i)
{
    const struct sched_row *row = &launch->rows[i];
    const struct fake_seq *d = &e->seqs[row->seq];
    uint32_t bt = e->config.kv.block_tokens, end = row->first + row->count, n;
    const uint32_t *tokens = sched_tokens(e->sched, row->seq, &n);
    if (n < end || end > FAKE_MAX_LEN)
        return fail(e, "sequence %u: %u tokens for a row up to %u", row->seq, n, end);
    memcpy(launch->tokens[i], tokens, end * sizeof *tokens);
    for (uint32_t p = 0; p < end; p++)
        if (tokens[p] != (p < d->n_committed        ? d->tokens[p]
                          : p >= end - row->n_draft ? d->drafts[p - d->n_committed]
                                                    : SCHED_PENDING))
            return fail(e, "sequence %u: token %u is %u", row->seq, p, tokens[p]);
    for (uint32_t g = 0; g < e->config.kv.n_groups; g++) {
        const uint32_t *blocks = sched_blocks(e->sched, row->seq, g, &n);
        if (n < (end + bt - 1) / bt)
            return fail(e, "sequence %u: group %u: %u blocks up to %u", row->seq, g, n, end);
        memcpy(launch->blocks[i][g], blocks, (end + bt - 1) / bt * sizeof *blocks);
    }
    return true;
}

/* A written block belongs to one sequence only. */
static bool check_writes(struct fake_engine *e, const struct fake_launch *launch)
{
    uint32_t bt = e->config.kv.block_tokens;
    for (uint32_t g = 0; g < e->config.kv.n_groups; g++) {
        uint8_t holders[FAKE_MAX_BLOCKS] = {0};
        for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++) {
            uint32_t n = 0;
            const uint32_t *blocks = e->seqs[i].used ? sched_blocks(e->sched, i, g, &n) : NULL;
            for (uint32_t b = 0; b < n; b++)
                if (blocks[b] != KV_NO_BLOCK)
                    holders[blocks[b]]++;
        }
        for (uint32_t i = 0; i < launch->n_rows; i++) {
            const struct sched_row *row = &launch->rows[i];
            for (uint32_t b = row->first / bt; b <= (row->first + row->count - 1) / bt; b++)
                if (launch->blocks[i][g][b] >= e->config.kv.groups[g].n_blocks || holders[launch->blocks[i][g][b]] != 1)
                    return fail(e, "sequence %u writes a block that it shares", row->seq);
        }
    }
    return true;
}

/* A sequence that ran and needed one token. */
static bool is_decode(const struct fake_engine *e, const struct sched_row *row)
{
    const struct fake_seq *d = &e->seqs[row->seq];
    bool ends = row->outputs.tokens || (d->request.max_tokens == 0 && row->first + row->count == d->request.n_prompt);
    return d->running && row->count - row->n_draft == 1 && ends;
}

/* Decodes first, then chunks and admissions; each part in the policy's order. With a cost model, `fair` puts decodes of
 * flows that are ahead off. */
static bool check_row_order(struct fake_engine *e, const struct sched_plan *plan)
{
    bool puts_off = e->config.cost && sched_policy_of(e->sched)->flow_lead;
    for (uint32_t i = 1; i < plan->n_rows; i++) {
        const struct sched_row *a = &plan->rows[i - 1], *b = &plan->rows[i];
        bool first = is_decode(e, a), second = is_decode(e, b);
        if (!first && second && !puts_off)
            return fail(e, "row %u decodes after a chunk", i);
        bool ranked = fake_has_order(e) && !e->seqs[a->seq].lost && !e->seqs[b->seq].lost;
        if (first == second && ranked && !fake_may_be_before(e, &e->seqs[a->seq], &e->seqs[b->seq]))
            return fail(e, "row %u is out of the policy's order", i);
    }
    return true;
}

/* The background has no row in a step in which a live request waited or computes its prompt. */
static bool check_background(struct fake_engine *e, const struct sched_plan *plan)
{
    bool live_first = false, has_row = false;
    uint32_t n_tokens = 0, most = e->config.max_num_batched_tokens / 16;
    for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++) {
        const struct fake_seq *d = &e->seqs[i];
        live_first |= d->used && !d->over && !d->running && !d->request.background;
    }
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        bool background = e->seqs[row->seq].request.background;
        has_row |= background;
        n_tokens += background ? row->count - row->n_draft : 0;
        live_first |= !background && row->count - row->n_draft > 1;
    }
    e->seen.background += has_row;
    if (n_tokens > (most < 16 ? 16 : most) && !e->config.whole_prompts)
        return fail(e, "the background has %u tokens of a step", n_tokens);
    return !has_row || !live_first || fail(e, "the background has a row before a live request");
}

/* A request may have the seat of a running one. Others that rank after that one, but were admitted a moment ago, stay. */
static bool took_a_seat(const struct fake_engine *e, const struct sched_plan *plan)
{
    return sched_policy_of(e->sched)->takes_seat && plan->n_preempted == 1;
}

/* No tenant runs more than its limit. */
static bool check_seats(struct fake_engine *e)
{
    for (uint32_t t = 0; t < FAKE_TENANTS; t++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++)
            n += e->seqs[i].used && !e->seqs[i].over && e->seqs[i].running && !e->seqs[i].request.background &&
                 e->seqs[i].request.tenant == t;
        if (e->limits[t].max_seats > 0 && n > e->limits[t].max_seats)
            return fail(e, "tenant %u has %u seats of %u", t, n, e->limits[t].max_seats);
    }
    return true;
}

static bool check_order(struct fake_engine *e, const struct sched_plan *plan)
{
    fake_see_prefixes(e, plan);
    if (!check_row_order(e, plan) || !check_background(e, plan))
        return false;
    uint32_t row = 0;
    for (uint32_t i = 0; i < plan->n_admitted; i++) {
        struct fake_seq *d = &e->seqs[plan->admitted[i]];
        while (row < plan->n_rows && plan->rows[row].seq != plan->admitted[i])
            row++;
        if (d->running || row == plan->n_rows)
            return fail(e, "sequence %u was not admitted as the plan says", plan->admitted[i]);
        d->running = true;
        if (!fake_see_admitted(e, plan->admitted[i], plan->rows[row].first))
            return false;
        for (uint32_t j = 0; j < FAKE_MAX_NAMES && fake_has_order(e); j++) {
            const struct fake_seq *o = &e->seqs[j];
            bool limited = e->limits[o->request.tenant].max_seats + e->limits[o->request.tenant].max_blocks > 0;
            if (!limited && o->used && !o->over && !o->running && o->choice == 0 && o->last_step < plan->step &&
                !(o->last_step && o->last_step + 1 == plan->step) && o != d && !o->may_wait && !o->lost && !d->lost &&
                fake_ranks_before(e, o, d) && i + 1 == plan->n_admitted)
                return fail(e, "sequence %u was admitted before sequence %u", plan->admitted[i], j);
        }
    }
    for (uint32_t i = 0; i < plan->n_admitted; i++)
        e->seqs[plan->admitted[i]].lost = false;
    for (uint32_t i = 0; i < plan->n_preempted; i++) {
        struct fake_seq *d = &e->seqs[plan->preempted[i]];
        if (!d->running || d->over)
            return fail(e, "sequence %u was preempted and did not run", plan->preempted[i]);
        d->running = false;
        d->n_drafts = 0;
        d->lost = took_a_seat(e, plan);
        fake_see_preempted(e, plan->preempted[i]);
        for (uint32_t j = 0; j < plan->n_rows && !took_a_seat(e, plan); j++)
            if (fake_has_order(e) && fake_ranks_before(e, d, &e->seqs[plan->rows[j].seq]) &&
                !fake_may_be_before(e, &e->seqs[plan->rows[j].seq], d))
                return fail(e, "sequence %u was preempted for one that ranks after it", plan->preempted[i]);
        if (d->request.background)
            continue;
        if (plan->n_admitted && !took_a_seat(e, plan))
            return fail(e, "a plan admits and preempts");
        if (e->config.preemption == SCHED_PREEMPT_NEVER)
            return fail(e, "sequence %u was preempted", plan->preempted[i]);
    }
    return check_seats(e);
}

/* Returns whether an incomplete batch explains an empty plan. A following choice does not count. */
static bool waits_for_batch(const struct fake_engine *e, const struct sched_plan *plan)
{
    uint32_t n_queued = 0;
    for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++)
        n_queued += e->seqs[i].used && !e->seqs[i].over && (e->seqs[i].admitted || e->seqs[i].choice == 0);
    const struct sched_config *c = &e->config;
    uint32_t most = 0;
    for (uint32_t i = 0; i < SCHED_MAX_CLASSES; i++) {
        uint32_t size = c->class_batch_size[i] ? c->class_batch_size[i] : c->max_batch_size;
        size = size && size < c->max_num_seqs ? size : c->max_num_seqs;
        most = size > most ? size : most;
    }
    if (e->no_more || c->batching == SCHED_CONTINUOUS)
        return false;
    return c->batching == SCHED_DYNAMIC ? plan->wake_us > e->now_us : n_queued < most;
}

/* With nothing launched, some sequence must be able to run; after a preemption in this plan, in the next one. */
static bool check_progress(struct fake_engine *e, const struct sched_plan *plan)
{
    bool live = false;
    for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++)
        live |= e->seqs[i].used && !e->seqs[i].over;
    bool had_preempted = e->only_preempted;
    e->only_preempted = plan->n_rows == 0 && plan->n_preempted > 0;
    if (plan->n_rows == 0 && live && e->n_launched == 0 && plan->n_refused == 0 && !waits_for_batch(e, plan) &&
        (had_preempted || !e->only_preempted))
        return fail(e, "nothing runs although somebody could");
    return true;
}

/* Only requests that never ran may be rejected, and only as a whole. */
static bool see_refused(struct fake_engine *e, const struct sched_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_refused; i++) {
        struct fake_seq *d = &e->seqs[plan->refused[i].seq];
        if (!d->used || d->over || d->admitted || plan->refused[i].retry_us == 0)
            return fail(e, "sequence %u was refused", plan->refused[i].seq);
        d->over = true;
        e->seen.given_up++;
    }
    for (uint32_t i = 0; i < plan->n_refused; i++)
        for (uint32_t j = 0; j < FAKE_MAX_NAMES; j++)
            if (e->seqs[j].used && !e->seqs[j].over &&
                e->seqs[j].request.id == e->seqs[plan->refused[i].seq].request.id)
                return fail(e, "sequence %u was refused and %u was not", plan->refused[i].seq, j);
    return true;
}

/* Copies between the stores, after everything launched before. */
static bool make_moves(struct fake_engine *e, const struct sched_plan *plan)
{
    size_t bt = e->config.kv.block_tokens;
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        const struct kv_move *m = &plan->moves[i];
        if (m->group >= e->config.kv.n_groups || m->device_block >= e->config.kv.groups[m->group].n_blocks ||
            m->host_block >= e->config.kv.groups[m->group].n_host_blocks)
            return fail(e, "move %u is of blocks that are not there", i);
        uint64_t *device = e->store[m->group] + m->device_block * bt;
        uint64_t *host = e->host[m->group] + m->host_block * bt;
        e->seen.spills += m->to_host;
        e->seen.loads += !m->to_host;
        if (e->fault == FAULT_MOVE && !m->to_host)
            e->fault = FAULT_NONE;
        else if (m->to_host)
            memcpy(host, device, bt * sizeof *host);
        else
            memcpy(device, host, bt * sizeof *host);
    }
    return true;
}

static bool execute(struct fake_engine *e, struct fake_launch *launch);
static bool collect(struct fake_engine *e);

bool fake_plan(struct fake_engine *e)
{
    const struct sched_plan *plan;
    struct quire_error err = {.text = ""};
    if (e->n_launched > e->config.overlap_depth) {
        if (sched_plan(e->sched, e->now_us, &plan, &err) != QUIRE_INVALID)
            return fail(e, "a plan too many was made");
        return true;
    }
    if (sched_plan(e->sched, e->now_us, &plan, &err))
        return fail(e, "plan: %s", err.text);
    e->plan_us = e->now_us;
    fake_pins_after_plan(e);
    if (!see_refused(e, plan) || !check_progress(e, plan) || !check_order(e, plan))
        return false;
    if (plan->n_moves > 0 && e->n_launched > 0 && !execute(e, &e->launched[0]))
        return false;
    if (!make_moves(e, plan))
        return false;
    e->seen.preempted += plan->n_preempted;
    for (uint32_t i = 0; i < plan->n_preempted; i++)
        e->seen.drafts_preempted += is_verifying(e, plan->preempted[i]);
    if (plan->n_rows == 0)
        return collect(e);
    struct fake_launch *launch = &e->launched[e->n_launched++];
    launch->step = plan->step;
    launch->executed = false;
    launch->n_rows = plan->n_rows;
    memcpy(launch->rows, plan->rows, plan->n_rows * sizeof plan->rows[0]);
    e->seen.steps++;
    e->seen.tokens += plan->n_tokens;
    for (uint32_t i = 0; i < plan->n_rows; i++)
        if (!check_row(e, &launch->rows[i], plan->step) || !copy_row(e, launch, i))
            return false;
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        fake_see_row(e, &launch->rows[i]);
        if (launch->rows[i].outputs.tokens)
            e->seqs[launch->rows[i].seq].n_drafts = 0;
    }
    if (!check_writes(e, launch))
        return false;
    /* The device may finish at once, or only when the results are needed. */
    if (e->n_launched == 1 && fake_chance(&e->random, 50) && !execute(e, launch))
        return false;
    return collect(e);
}

/* Reads everything that the first position of the row attends to, then writes the row's own positions. */
static bool execute_kv(struct fake_engine *e, const struct fake_launch *launch, uint32_t i)
{
    const struct sched_row *row = &launch->rows[i];
    const struct fake_seq *d = &e->seqs[row->seq];
    uint32_t bt = e->config.kv.block_tokens;
    for (uint32_t g = 0; g < e->config.kv.n_groups; g++) {
        uint32_t window = e->config.kv.groups[g].window;
        uint32_t from = window && row->first >= window ? row->first - window + 1 : 0;
        uint64_t word_before = 0;
        for (uint32_t p = 0; p < row->first + row->count; p++) {
            if (p >= e->config.kv.groups[g].sinks && p < from)
                continue;
            uint32_t block = launch->blocks[i][g][p / bt];
            if (block >= e->config.kv.groups[g].n_blocks)
                return fail(e, "sequence %u: group %u: position %u has no block", row->seq, g, p);
            uint64_t *word = &e->store[g][(size_t)block * bt + p % bt];
            if (p >= d->n)
                *word = fake_extend_prefix(p == d->n ? d->prefix[p - 1] : word_before, launch->tokens[i][p]);
            else if (p >= row->first)
                *word = d->prefix[p];
            else if (*word != d->prefix[p])
                return fail(e, "step %llu: sequence %u: group %u: wrong KV at position %u of %u",
                            (unsigned long long)launch->step, row->seq, g, p, row->first);
            word_before = *word;
        }
    }
    return true;
}

/* The next token, and those after accepted drafts. Sometimes a correct draft is rejected with the others. */
static void sample(struct fake_engine *e, struct fake_launch *launch, uint32_t i)
{
    const struct sched_row *row = &launch->rows[i];
    struct fake_seq *d = &e->seqs[row->seq];
    uint32_t end = row->first + row->count, bt = e->config.kv.block_tokens;
    bool goes_on = true;
    launch->n_results[i] = 0;
    for (uint32_t p = end - row->n_draft - 1; goes_on; p++) {
        /* The sampled token is read back from the store. */
        uint32_t block = launch->blocks[i][0][p / bt], draft = p + 1 < end ? launch->tokens[i][p + 1] : 0;
        uint32_t token = fake_next_token(e->store[0][(size_t)block * bt + p % bt], d->choice);
        goes_on = p + 1 < end && token == draft && !fake_chance(&e->random, 10);
        if (e->fault == FAULT_DRAFT && p + 1 < end && token != draft) {
            token = draft;
            goes_on = true;
            e->fault = FAULT_NONE;
        }
        launch->results[i][launch->n_results[i]++] = token;
        if (d->n < FAKE_MAX_LEN + 8)
            push_token(d, token);
        if (stops(&d->request, token) || d->n - d->request.n_prompt >= d->request.max_tokens)
            goes_on = false;
    }
    e->seen.verified += row->n_draft;
    e->seen.accepted += launch->n_results[i] - 1;
}

static bool execute(struct fake_engine *e, struct fake_launch *launch)
{
    if (launch->executed)
        return true;
    launch->executed = true;
    for (uint32_t i = 0; i < launch->n_rows; i++) {
        const struct sched_row *row = &launch->rows[i];
        struct fake_seq *d = &e->seqs[row->seq];
        uint32_t end = row->first + row->count - row->n_draft;
        if (end > d->n || (row->outputs.tokens && end != d->n))
            return fail(e, "sequence %u: row up to %u with %u tokens", row->seq, end, d->n);
        for (uint32_t p = 0; p < end; p++)
            if (launch->tokens[i][p] != d->tokens[p] && launch->tokens[i][p] != SCHED_PENDING)
                return fail(e, "sequence %u: token %u changed", row->seq, p);
        if (e->fault == FAULT_SKIP && !row->outputs.tokens) {
            e->fault = FAULT_NONE;
            continue;
        }
        if (!execute_kv(e, launch, i))
            return false;
        uint32_t last = launch->blocks[i][0][(end - 1) / e->config.kv.block_tokens];
        if (e->fault == FAULT_KV && row->outputs.tokens && fake_chance(&e->random, 20)) {
            e->store[0][(size_t)last * e->config.kv.block_tokens] ^= 1;
            e->fault = FAULT_NONE;
        }
        if (row->outputs.tokens)
            sample(e, launch, i);
    }
    return true;
}

/* The whole output of a choice, computed without a scheduler. */
static bool check_output(struct fake_engine *e, uint32_t name)
{
    const struct fake_seq *d = &e->seqs[name];
    const struct fake_request *r = &d->request;
    uint64_t prefix = fake_empty_prefix(r->tenant);
    uint32_t n, out = 0;
    const uint32_t *tokens = sched_tokens(e->sched, name, &n);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        prefix = fake_extend_prefix(prefix, r->prompt[i]);
    for (;; out++) {
        uint32_t token = fake_next_token(prefix, d->choice);
        if (r->n_prompt + out >= n || tokens[r->n_prompt + out] != token)
            return fail(e, "sequence %u: output token %u is not what it is alone", name, out);
        prefix = fake_extend_prefix(prefix, token);
        if (stops(r, token) || out + 1 == r->max_tokens)
            break;
    }
    if (r->n_prompt + out + 1 != d->n_committed)
        return fail(e, "sequence %u: %u output tokens, alone %u", name, d->n_committed - r->n_prompt, out + 1);
    if (r->prompt_logprobs && d->choice == 0 && d->n_logits != r->n_prompt)
        return fail(e, "sequence %u: logits of %u of %u prompt positions", name, d->n_logits, r->n_prompt);
    e->history = *r;
    e->history.n_prompt = d->n_committed;
    memcpy(e->history.prompt, d->tokens, d->n_committed * sizeof d->tokens[0]);
    return true;
}

static bool collect(struct fake_engine *e)
{
    uint32_t name;
    while (sched_next_retired(e->sched, &name)) {
        struct fake_seq *d = &e->seqs[name];
        if (name >= FAKE_MAX_NAMES || !d->used || !d->over)
            return fail(e, "sequence %u was retired and lives", name);
        for (uint32_t l = 0; l < e->n_launched; l++)
            for (uint32_t i = 0; i < e->launched[l].n_rows; i++)
                if (e->launched[l].rows[i].seq == name)
                    return fail(e, "sequence %u was retired under a launched step", name);
        if (e->fault == FAULT_RETIRE) {
            e->fault = FAULT_NONE;
            continue;
        }
        d->used = false;
    }
    return true;
}

/* Lays out the results of the oldest step; those of dead sequences only sometimes. */
static uint32_t gather(struct fake_engine *e, struct fake_launch *launch, struct sched_result *results)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < launch->n_rows; i++) {
        const struct fake_seq *d = &e->seqs[launch->rows[i].seq];
        if (!launch->rows[i].outputs.tokens || (d->over && fake_chance(&e->random, 50)))
            continue;
        if (e->fault == FAULT_TOKEN && !d->over) {
            launch->results[i][0]++;
            e->fault = FAULT_NONE;
        }
        results[n++] = (struct sched_result){
            .seq = launch->rows[i].seq,
            .n_accepted = launch->n_results[i] - 1,
            .tokens = launch->results[i],
            .finished = stops(&d->request, launch->results[i][launch->n_results[i] - 1])};
    }
    return n;
}

static bool apply(struct fake_engine *e, const struct sched_result *r, bool finished, bool discarded)
{
    struct fake_seq *d = &e->seqs[r->seq];
    if (discarded != d->over)
        return fail(e, "sequence %u: discarded %d, over %d", r->seq, discarded, d->over);
    e->seen.discarded += discarded;
    if (d->over)
        return finished ? fail(e, "sequence %u ended twice", r->seq) : true;
    for (uint32_t p = d->n_committed; p < d->n_committed + r->n_accepted; p++)
        d->reached[p] = true;
    d->n_committed += r->n_accepted + 1;
    e->tenants[d->request.tenant].n_generated += r->n_accepted + 1;
    bool full = d->n_committed - d->request.n_prompt == d->request.max_tokens;
    if (finished != (r->finished || full))
        return fail(e, "sequence %u: finished %d at %u of %u tokens", r->seq, finished,
                    d->n_committed - d->request.n_prompt, d->request.max_tokens);
    if (!finished)
        return true;
    d->over = true;
    d->running = false;
    e->seen.finished++;
    fake_pin_fill(e, d);
    return check_output(e, r->seq);
}

bool fake_commit(struct fake_engine *e)
{
    struct sched_result results[FAKE_MAX_SEQS];
    bool finished[FAKE_MAX_SEQS], discarded[FAKE_MAX_SEQS];
    struct quire_error err = {.text = ""};
    if (e->n_launched == 0) {
        if (sched_commit(e->sched, NULL, 0, NULL, NULL, &err) != QUIRE_INVALID)
            return fail(e, "a step that was not planned was committed");
        return true;
    }
    struct fake_launch *launch = &e->launched[0];
    uint32_t n_pins = e->n_pins;
    if (!execute(e, launch))
        return false;
    uint32_t n = gather(e, launch, results);
    if (sched_commit(e->sched, results, n, finished, discarded, &err))
        return fail(e, "commit: %s", err.text);
    for (uint32_t i = 0; i < n; i++)
        if (!apply(e, &results[i], finished[i], discarded[i]))
            return false;
    for (uint32_t i = 0; i < launch->n_rows; i++) {
        struct fake_seq *d = &e->seqs[launch->rows[i].seq];
        d->n_sampling -= launch->rows[i].outputs.tokens;
        if (d->request.max_tokens == 0 && !d->over &&
            launch->rows[i].first + launch->rows[i].count == d->request.n_prompt) {
            d->over = true;
            d->running = false;
            e->seen.finished++;
            fake_pin_fill(e, d);
        }
    }
    fake_pins_after_commit(e, n_pins);
    e->n_launched--;
    if (e->n_launched > 0)
        e->launched[0] = e->launched[1];
    return collect(e);
}

static void see_cancelled(struct fake_engine *e, uint32_t seq)
{
    e->seqs[seq].over = true;
    e->seqs[seq].running = false;
    e->seen.cancelled++;
    e->seen.drafts_cancelled += is_verifying(e, seq);
}

bool fake_cancel(struct fake_engine *e, uint64_t id)
{
    for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++)
        if (e->seqs[i].used && !e->seqs[i].over && e->seqs[i].request.id == id)
            see_cancelled(e, i);
    sched_cancel(e->sched, id);
    return collect(e);
}

bool fake_cancel_seq(struct fake_engine *e, uint32_t seq)
{
    if (seq < FAKE_MAX_NAMES && e->seqs[seq].used && !e->seqs[seq].over)
        see_cancelled(e, seq);
    sched_cancel_seq(e->sched, seq);
    return collect(e);
}

bool fake_propose(struct fake_engine *e, uint32_t seq)
{
    struct fake_seq *d = &e->seqs[seq];
    uint32_t drafts[FAKE_MAX_DRAFTS], n = 1 + fake_below(&e->random, FAKE_MAX_DRAFTS),
                                      n_right = fake_below(&e->random, n + 1);
    uint32_t n_positions = d->request.n_prompt + (d->request.max_tokens ? d->request.max_tokens - 1 : 0), owed = 0;
    uint64_t prefix = d->used && d->n_committed > 0 ? d->prefix[d->n_committed - 1] : 0;
    for (uint32_t i = 0; i < n; i++) {
        drafts[i] = fake_next_token(prefix, d->choice) + (i >= n_right);
        prefix = fake_extend_prefix(prefix, drafts[i]);
    }
    if (d->used && !d->over && d->running && d->n_sampling == 0 && d->n_committed < n_positions)
        owed = n < n_positions - d->n_committed ? n : n_positions - d->n_committed;
    uint32_t taken = sched_propose(e->sched, seq, drafts, n);
    if (taken != owed)
        return fail(e, "sequence %u took %u drafts, owed %u", seq, taken, owed);
    if (taken > 0) {
        d->n_drafts = taken;
        memcpy(d->drafts, drafts, taken * sizeof drafts[0]);
    }
    return true;
}

bool fake_gate(struct fake_engine *e, uint32_t seq)
{
    struct fake_seq *d = &e->seqs[seq];
    bool lives = d->used && !d->over;
    if (sched_gate(e->sched, seq, d->gated))
        return fail(e, "sequence %u is gated as it was before, and that is news", seq);
    if (lives)
        d->gated = !d->gated;
    if (sched_gate(e->sched, seq, lives ? d->gated : true) != lives)
        return fail(e, "sequence %u lives or is over, and is gated as if not", seq);
    return true;
}

bool fake_set_policy(struct fake_engine *e, const struct sched_policy *policy,
                     const struct sched_policy_options *options)
{
    struct quire_error err = {.text = ""};
    if (sched_set_policy(e->sched, policy, options, &err))
        return fail(e, "policy: %s", err.text);
    e->config.policy = policy;
    e->config.policy_options = *options;
    e->seen.policies++;
    return true;
}

bool fake_set_cost(struct fake_engine *e, const struct sched_cost *cost)
{
    struct quire_error err = {.text = ""};
    const bool in_flight = e->n_launched > 0;
    if (sched_set_cost(e->sched, cost, &err) != (in_flight ? QUIRE_INVALID : QUIRE_OK))
        return fail(e, "cost model: %s", err.text);
    if (!in_flight)
        e->config.cost = cost;
    return true;
}

bool fake_unpin(struct fake_engine *e, uint32_t tenant)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n_pins; i++)
        if (tenant != UINT32_MAX && e->pins[i].tenant != tenant)
            e->pins[n++] = e->pins[i];
    const uint32_t n_kept = sched_stats(e->sched).n_kept, n_gone = sched_unpin(e->sched, tenant);
    if (n_gone != e->n_pins - n + n_kept - sched_stats(e->sched).n_kept && !e->pins_unknown)
        return fail(e, "unpin forgot another number of pins than %u", e->n_pins - n);
    e->n_pins = n;
    return true;
}

void fake_no_more(struct fake_engine *e)
{
    e->no_more = true;
    sched_no_more(e->sched);
}

/* Checks that sequences still hold what a launched step reads and writes with. */
static bool check_launched(struct fake_engine *e)
{
    uint32_t bt = e->config.kv.block_tokens;
    for (uint32_t l = 0; l < e->n_launched; l++)
        for (uint32_t i = 0; i < e->launched[l].n_rows; i++) {
            const struct sched_row *row = &e->launched[l].rows[i];
            for (uint32_t g = 0; g < e->config.kv.n_groups; g++) {
                uint32_t n, window = e->config.kv.groups[g].window;
                const uint32_t *blocks = sched_blocks(e->sched, row->seq, g, &n);
                uint32_t from = window && row->first >= window ? row->first - window + 1 : 0;
                for (uint32_t b = 0; b <= (row->first + row->count - 1) / bt; b++)
                    if ((b * bt < e->config.kv.groups[g].sinks || b >= from / bt) &&
                        (b >= n || blocks[b] != e->launched[l].blocks[i][g][b]))
                        return fail(e, "sequence %u: a block went away under a launched step", row->seq);
            }
        }
    return true;
}

bool fake_check(struct fake_engine *e)
{
    struct quire_error err = {.text = ""};
    uint32_t n_live = 0, n_used = 0;
    if (sched_check(e->sched, &err))
        return fail(e, "%s", err.text);
    for (uint32_t i = 0; i < FAKE_MAX_NAMES; i++) {
        n_used += e->seqs[i].used;
        n_live += e->seqs[i].used && !e->seqs[i].over;
    }
    struct sched_stats stats = sched_stats(e->sched);
    if (stats.n_running + stats.n_waiting != n_live)
        return fail(e, "%u running and %u waiting, %u live", stats.n_running, stats.n_waiting, n_live);
    if (sched_idle(e->sched) != (n_used == 0 && e->n_launched == 0))
        return fail(e, "idle with %u sequences and %u steps", n_used, e->n_launched);
    if (!e->pins_unknown && stats.n_pins != e->n_pins)
        return fail(e, "%u pins, %u made and not due", stats.n_pins, e->n_pins);
    return check_launched(e) && fake_check_accounts(e);
}
