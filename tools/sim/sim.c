#include "tools/sim/sim.h"

#include "memory/prefix.h"
#include "scheduler/decision_log.h"
#include "scheduler/driver.h"
#include "base/clock.h"
#include "speculation/length.h"
#include "tools/bench/lib/random.h"
#include "tools/sim/arrivals.h"

#include <stdlib.h>
#include <string.h>

/* Start of the virtual clock: 0 means "never" in some of the scheduler's times. */
#define EPOCH_US 1e6
#define STREAM_SECRET 201
#define MAX_AUTO_BLOCKS (1ull << 28)
#define MAX_FLIGHTS 2
/* Value of drafts before the first verification: the same as in engine/run/speculate.c for texts. */
#define FIRST_CHANCE 0.5f
#define NEXT_CHANCE 0.8f
#define MIN_LOGIT_ROWS 64u /* as in engine/run/plan.c */

struct live { /* data of a sequence, by its name */
    uint32_t request;
    uint32_t n_reached;  /* positions planned */
    bool listed;
    uint32_t n_drafted;  /* known tokens that the draft model has computed */
    struct draft_length length;
};

struct run {
    const struct sim_setup *setup;
    const struct sim_workload *workload;
    struct sim_result *out;
    struct quire_error *err;
    struct sched *sched;
    struct key256 secret;
    uint32_t block_tokens, most_rows; /* most_rows: of a step that has one token of each */
    struct sched_driver *driver;
    struct decision_log log;

    struct key256 *chains;      /* [n_domains] */
    struct sched_tenant *tenants; /* [n_tenants] */
    uint32_t *prompt;           /* [max_prompt] */
    struct key256 *hashes;      /* of its full blocks */
    struct live *lives;
    uint32_t n_lives;
    uint32_t *running, n_running; /* sequences that may hold blocks */
    uint32_t *n_reached_prompt;   /* [n] for each request: prompt positions ever computed */
    uint32_t *fresh, n_fresh;     /* [MAX_FLIGHTS max_num_seqs] sequences that got a token since the last plan */
    struct lengths *lengths;      /* NULL: not adaptive */
    struct length_item *items;    /* [as many] */

    struct sim_arrivals *arrivals;
    size_t next;                /* one by one: the next request */
    uint64_t n_over;
    bool said_no_more;          /* since the last submission */
    double now_us, device_free_us;
    struct sim_stage_clock stages;
    double end_us[MAX_FLIGHTS]; /* of the steps in flight, by slot */
    double planned_us[MAX_FLIGHTS], done_us; /* the same; of the last finished step */
};

static uint32_t prompt_price(const struct run *r)
{
    return r->setup->sched->policy_options.prompt_price ? r->setup->sched->policy_options.prompt_price : 1;
}

static uint32_t output_price(const struct run *r)
{
    return r->setup->sched->policy_options.output_price ? r->setup->sched->policy_options.output_price : 2;
}

/* ---- setting up ---- */

static uint32_t tokens_asked(const struct sim_setup *s, const struct sim_request *r)
{
    if (s->one_by_one)
        return 0;
    if (r->max_tokens > 0)
        return r->max_tokens;
    return s->max_tokens > r->n_output ? s->max_tokens : r->n_output;
}

static int size_pool(const struct run *r, struct sched_config *c)
{
    const struct sim_workload *t = r->workload;
    struct kv_config *kv = &c->kv;
    uint32_t longest = 0;
    uint64_t all = 0;
    for (size_t i = 0; i < t->n; i++) {
        uint32_t asked = tokens_asked(r->setup, &t->requests[i]);
        uint32_t n = t->requests[i].n_prompt + (asked > 0 ? asked - 1 : 0);
        longest = n > longest ? n : longest;
        all += n / kv->block_tokens + 2; /* an admission leaves one free for each running sequence */
    }
    if (kv->groups[0].n_blocks == 0) {
        if (all > MAX_AUTO_BLOCKS)
            return quire_fail(r->err, QUIRE_INVALID,
                              "keeping every block takes %llu KV blocks: set --num-kv-blocks, or use fewer requests "
                              "(--num-requests)",
                              (unsigned long long)all);
        kv->groups[0].n_blocks = (uint32_t)all;
    }
    uint32_t chunk = c->max_num_batched_tokens * (c->overlap_depth + 1);
    uint32_t needed = kv_blocks_needed(kv, 0, longest, chunk);
    if (needed > kv->groups[0].n_blocks)
        return quire_fail(
            r->err, QUIRE_INVALID,
            "the longest request takes %u KV blocks, but there are only %u: raise --num-kv-blocks, or leave out long "
            "requests (--max-model-len %u)",
            needed, kv->groups[0].n_blocks, kv->groups[0].n_blocks * kv->block_tokens);
    return QUIRE_OK;
}

static int make_config(struct run *r, struct sched_config *c)
{
    const struct sim_workload *t = r->workload;
    uint32_t asked = r->setup->max_tokens;
    *c = *r->setup->sched;
    if (c->max_model_len == 0)
        c->max_model_len = t->max_total + asked;
    if (c->max_queued_requests == 0)
        c->max_queued_requests = (uint32_t)t->n;
    if (r->setup->one_by_one) {
        c->max_num_seqs = 1;
        c->max_num_batched_tokens = t->max_prompt;
    }
    c->max_logit_rows = c->max_num_seqs; /* or as many as an engine has */
    uint32_t wanted = c->max_num_batched_tokens < MIN_LOGIT_ROWS ? c->max_num_batched_tokens : MIN_LOGIT_ROWS;
    if (c->max_logit_rows < wanted)
        c->max_logit_rows = wanted;
    uint32_t n_fresh = MAX_FLIGHTS * c->max_num_seqs;
    r->fresh = calloc(n_fresh, sizeof *r->fresh);
    r->items = calloc(n_fresh, sizeof *r->items);
    if (!r->fresh || !r->items)
        return quire_fail(r->err, QUIRE_NO_MEMORY, "out of memory for %u sequences", c->max_num_seqs);
    if (c->kv.n_groups == 0)
        c->kv.n_groups = 1;
    c->kv.n_tenants = c->policy_options.n_tenants = t->n_tenants;
    for (uint32_t i = 0; i < t->n_tenants; i++)
        r->tenants[i] = sim_tenant_share(t->tenants, i);
    c->policy_options.tenants = r->tenants;
    for (size_t i = 0; i < 4; i++) {
        uint64_t part = bench_stream(r->setup->seed, STREAM_SECRET, i);
        memcpy(c->secret.bytes + 8 * i, &part, sizeof part);
    }
    r->secret = c->secret;
    r->block_tokens = c->kv.block_tokens;
    r->most_rows = c->max_num_batched_tokens < c->max_logit_rows ? c->max_num_batched_tokens : c->max_logit_rows;
    return size_pool(r, c);
}

static int allocate(struct run *r)
{
    const struct sim_workload *t = r->workload;
    r->out->records = calloc(t->n, sizeof *r->out->records);
    r->out->n_records = t->n;
    r->chains = calloc(t->n_domains, sizeof *r->chains);
    r->tenants = calloc(t->n_tenants, sizeof *r->tenants);
    r->prompt = calloc(t->max_prompt, sizeof *r->prompt);
    r->hashes = calloc(t->max_prompt / r->setup->sched->kv.block_tokens + 1, sizeof *r->hashes);
    r->n_reached_prompt = calloc(t->n, sizeof *r->n_reached_prompt);
    if (!r->out->records || !r->chains || !r->tenants || !r->prompt || !r->hashes || !r->n_reached_prompt)
        return quire_fail(r->err, QUIRE_NO_MEMORY, "out of memory for %zu requests", t->n);
    return sim_watch_create(t->n_tenants, SCHED_MAX_CLASSES, &r->out->watch, r->err);
}

/* The cost model gives the time of steps, as in a server that has one. */
static int make_lengths(struct run *r, const struct sched_config *config)
{
    const struct sched_cost *cost = config->cost;
    struct length_config lengths = {.first = {FIRST_CHANCE, FIRST_CHANCE},
                                    .next = {NEXT_CHANCE, NEXT_CHANCE},
                                    .n_points = cost ? cost->n_points : 0};
    for (uint32_t i = 0; i < lengths.n_points; i++) {
        uint32_t n = cost->points[i].n_tokens;
        const struct sched_shape shape = {.n_rows = 1, .n_tokens = n, .n_logits = n};
        lengths.points[i].n_tokens = n;
        lengths.points[i].us = sched_cost_us(cost, &shape);
    }
    if (r->setup->max_drafts == 0 || !r->setup->adaptive)
        return QUIRE_OK;
    return lengths_create(&lengths, MAX_FLIGHTS * config->max_num_seqs, &r->lengths, r->err);
}

static int open_run(struct run *r)
{
    struct sched_config config;
    int status = allocate(r);
    if (status == QUIRE_OK)
        status = make_config(r, &config);
    if (status == QUIRE_OK)
        status = make_lengths(r, &config);
    if (status == QUIRE_OK)
        status = sched_create(&config, &r->sched, r->err);
    if (status != QUIRE_OK)
        return status;
    for (uint32_t i = 0; i < r->workload->n_domains; i++) {
        struct kv_chain_root root = {.secret = r->secret, .block_tokens = r->block_tokens};
        memcpy(root.tenant.bytes, &i, sizeof i);
        r->chains[i] = kv_chain_first(&root);
    }
    for (size_t i = 0; i < r->workload->n; i++)
        r->out->records[i].arrival_us = EPOCH_US + r->workload->requests[i].arrival_s * 1e6;
    r->now_us = r->device_free_us = r->out->records[0].arrival_us;
    status = sim_arrivals_create(r->workload, r->out->records, &r->arrivals, r->err);
    sim_stages_begin(&r->stages, &r->setup->stages, &r->setup->cost);
    decision_log_begin(&r->log);
    return status;
}

static void close_run(struct run *r)
{
    sched_driver_destroy(r->driver);
    sched_destroy(r->sched);
    free(r->chains);
    free(r->tenants);
    free(r->prompt);
    free(r->hashes);
    free(r->lives);
    free(r->running);
    free(r->n_reached_prompt);
    free(r->fresh);
    free(r->items);
    lengths_destroy(r->lengths);
    sim_arrivals_destroy(r->arrivals);
}

/* ---- arrivals ---- */

static int remember(struct run *r, uint32_t seq, size_t request)
{
    if (seq >= r->n_lives) {
        uint32_t n = seq < 512 ? 1024 : 2 * seq;
        struct live *lives = realloc(r->lives, n * sizeof *lives);
        if (lives)
            r->lives = lives;
        uint32_t *running = realloc(r->running, n * sizeof *running);
        if (running)
            r->running = running;
        if (!lives || !running)
            return quire_fail(r->err, QUIRE_NO_MEMORY, "out of memory for %u sequences", n);
        memset(lives + r->n_lives, 0, (n - r->n_lives) * sizeof *lives);
        r->n_lives = n;
    }
    r->lives[seq] = (struct live){.request = (uint32_t)request, .listed = r->lives[seq].listed};
    return QUIRE_OK;
}

/* A session ends with a request that is refused: its later turns are never sent, and count as refused. */
static void end_record(struct run *r, size_t request, enum sim_fate fate)
{
    r->out->records[request].fate = fate;
    r->out->records[request].last_us = r->now_us;
    r->n_over++;
    if (r->setup->one_by_one)
        return;
    if (fate != SIM_REFUSED) {
        sim_arrivals_answered(r->arrivals, (uint32_t)request, r->now_us);
        return;
    }
    while (r->workload->requests[request].next > 0) {
        request = r->workload->requests[request].next - 1;
        r->out->records[request].fate = SIM_REFUSED;
        r->out->records[request].arrival_us = r->out->records[request].last_us = r->now_us;
        r->n_over++;
    }
}

static int submit(struct run *r, size_t i)
{
    const struct sim_request *q = &r->workload->requests[i];
    const struct key256 *parent = &r->chains[q->domain];
    uint32_t block = r->block_tokens, asked = tokens_asked(r->setup, q), seq;
    uint64_t retry_us = 0, arrival_us = (uint64_t)r->out->records[i].arrival_us;
    r->said_no_more = false;
    sim_workload_prompt(r->workload, i, r->prompt);
    for (uint32_t b = 0; r->setup->sched->kv.prefix_caching && b < q->n_prompt / block; b++) {
        r->hashes[b] = kv_chain_next(&r->secret, parent, r->prompt + (size_t)b * block, block);
        parent = &r->hashes[b];
    }
    const struct sched_request request = {
        .id = i + 1,
        .prompt = r->prompt,
        .n_prompt = q->n_prompt,
        .max_tokens = asked,
        .n = 1,
        .background = q->background,
        .priority = q->priority,
        .arrival_us = arrival_us,
        .deadline_us = q->deadline_ms > 0 ? arrival_us + (uint64_t)(q->deadline_ms * 1e3) : 0,
        .tenant = q->tenant,
        .class_index = q->class_index,
        .expected_tokens = r->setup->oracle_lengths ? q->n_output : 0,
        .chain_first = r->chains[q->domain],
        .hashes = r->hashes,
    };
    int status = sched_submit(r->sched, &request, &seq, &retry_us, r->err);
    if (status == QUIRE_EXHAUSTED) {
        end_record(r, i, SIM_REFUSED);
        return QUIRE_OK;
    }
    if (status == QUIRE_OK && r->setup->max_drafts > 0)
        sched_gate(r->sched, seq, q->guesses ? q->guesses[0].gated : true);
    return status == QUIRE_OK ? remember(r, seq, i) : status;
}

/* Submits every request that has arrived; with one_by_one, the next request when none is left. */
static int take_arrivals(struct run *r)
{
    struct sim_due due;
    int status = QUIRE_OK;
    bool more = r->next < r->workload->n;
    if (r->setup->one_by_one) {
        if (more && r->next == r->n_over) {
            r->now_us = r->device_free_us = r->out->records[r->next].arrival_us;
            status = submit(r, r->next++);
        }
        more = r->next < r->workload->n;
    } else {
        while ((more = sim_arrivals_peek(r->arrivals, &due)) && due.us <= r->now_us && status == QUIRE_OK) {
            sim_arrivals_take(r->arrivals);
            status = submit(r, due.request);
        }
    }
    if (!more && !r->said_no_more) {
        sched_no_more(r->sched);
        r->said_no_more = true;
    }
    return status;
}

/* ---- a plan ---- */

static void note_admissions(struct run *r, const struct sched_plan *plan)
{
    uint32_t block = r->block_tokens;
    for (uint32_t i = 0; i < plan->n_admitted; i++) {
        struct live *live = &r->lives[plan->admitted[i]];
        struct sim_record *record = &r->out->records[live->request];
        if (!live->listed)
            r->running[r->n_running++] = plan->admitted[i];
        live->listed = true;
        record->fate = SIM_RUNS;
        if (record->admitted)
            continue;
        record->admitted = true;
        record->admitted_us = r->now_us;
        record->n_cached = sched_cached_tokens(r->sched, plan->admitted[i]);
        r->n_reached_prompt[live->request] = record->n_cached;
        r->out->n_cached_tokens += record->n_cached;
        r->out->n_prompt_tokens += r->workload->requests[live->request].n_prompt;
        r->out->n_cached_blocks += record->n_cached / block;
        r->out->n_prompt_blocks += r->workload->requests[live->request].n_prompt / block;
    }
    for (uint32_t i = 0; i < plan->n_preempted; i++) {
        struct sim_record *record = &r->out->records[r->lives[plan->preempted[i]].request];
        record->fate = SIM_WAITS;
        record->n_preemptions++;
        r->lives[plan->preempted[i]].length = (struct draft_length){0};
        r->lives[plan->preempted[i]].n_drafted = 0;
    }
    for (uint32_t i = 0; i < plan->n_refused; i++)
        end_record(r, r->lives[plan->refused[i].seq].request, SIM_REFUSED);
}

/* The plan's shape, and its results: prompt positions never computed before, and tokens. */
static struct sched_shape read_rows(struct run *r, const struct sched_plan *plan)
{
    struct sched_shape shape = {.n_block_copies = plan->n_moves};
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        struct live *live = &r->lives[row->seq];
        const struct sim_request *q = &r->workload->requests[live->request];
        uint32_t end = row->first + row->count, prompt_end = end < q->n_prompt ? end : q->n_prompt;
        uint32_t *reached = &r->n_reached_prompt[live->request];
        double priced = row->outputs.tokens ? output_price(r) : 0;
        sched_shape_add(&shape, row->first, row->count, end - row->first_logit);
        live->n_reached = end;
        if (prompt_end > *reached) {
            priced += (double)(prompt_end - *reached) * prompt_price(r);
            *reached = prompt_end;
        }
        r->out->watch->tokens.service[q->tenant] += priced / r->tenants[q->tenant].weight;
    }
    return shape;
}

/* Each row's part of the step's time, to its tenant. */
static void share_time(struct run *r, const struct sched_plan *plan, const struct sched_shape *shape)
{
    const struct sched_cost *cost = &r->setup->cost;
    double token_us = sched_cost_token_us(cost, shape);
    for (uint32_t i = 0; r->out->watch->n_tenants > 1 && i < plan->n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        uint32_t tenant = r->workload->requests[r->lives[row->seq].request].tenant;
        double us = sched_cost_own_us(cost, row->first, row->count, row->first + row->count - row->first_logit) +
                    token_us * row->count;
        r->out->watch->time.service[tenant] += us * 1e-3 / r->tenants[tenant].weight;
    }
}

static void watch_slots(struct run *r, double step_us)
{
    struct sim_watch *w = r->out->watch;
    const struct kv_usage usage = sched_kv_usage(r->sched, 0);
    uint64_t held = 0, filled = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->n_running; i++) {
        uint32_t seq = r->running[i], n = 0;
        struct live *live = &r->lives[seq];
        sched_blocks(r->sched, seq, 0, &n);
        live->listed = n > 0;
        if (n == 0)
            continue;
        r->running[kept++] = seq;
        held += n;
        filled += live->n_reached;
    }
    r->n_running = kept;
    double block = r->block_tokens;
    w->slots += (usage.n_blocks - usage.n_free) * block * step_us;
    w->slots_unshared += (double)held * block * step_us;
    w->slots_empty += ((double)held * block - (double)filled) * step_us;
    struct sim_point *point = sim_watch_point(w, r->now_us);
    if (!point)
        return;
    const struct sched_stats stats = sched_stats(r->sched);
    point->n_running = stats.n_running;
    point->n_waiting = stats.n_waiting;
    point->n_used_blocks = usage.n_blocks - usage.n_free;
    point->n_cached_blocks = usage.n_cached_free;
    for (uint32_t t = 0; t < w->n_tenants && t < SIM_MAX_CURVES; t++)
        point->service[t] = w->tokens.service[t];
}

static int on_planned(void *context, uint64_t now_us, const struct sched_plan *plan, struct quire_error *err)
{
    struct run *r = context;
    (void)err;
    decision_log_add(&r->log, now_us, plan);
    note_admissions(r, plan);
    return QUIRE_OK;
}

/* End time of a step that begins at the given time. */
static double end_of(struct run *r, const struct sched_plan *plan, const struct sched_shape *shape, double start_us)
{
    if (r->setup->one_by_one)
        return start_us;
    return r->setup->stages.n > 1 ? sim_stages_step(&r->stages, plan, start_us)
                                  : start_us + sched_cost_us(&r->setup->cost, shape);
}

static int on_launch(void *context, const struct sched_step *step, struct quire_error *err)
{
    struct run *r = context;
    struct sim_watch *w = r->out->watch;
    const struct sched_shape shape = read_rows(r, step->plan);
    share_time(r, step->plan, &shape);
    double start_us = r->device_free_us > r->now_us ? r->device_free_us : r->now_us;
    double end_us = end_of(r, step->plan, &shape, start_us);
    (void)err;
    for (uint32_t t = 0; w->n_tenants > 1 && t < w->n_tenants; t++)
        w->backlogged[t] = sched_tenant_stats(r->sched, t).n_waiting > 0;
    if (w->n_tenants > 1)
        sim_watch_fairness(w);
    watch_slots(r, end_us - start_us);
    r->end_us[step->slot] = r->device_free_us = end_us;
    r->planned_us[step->slot] = r->now_us;
    return QUIRE_OK;
}

/* ---- drafts ---- */

/* Number of drafts proposed for a request that has `at` tokens, */
static uint32_t n_guessed(const struct run *r, uint32_t request, uint32_t at)
{
    const struct sim_request *q = &r->workload->requests[request];
    uint32_t n = !q->guesses ? r->setup->max_drafts : at < q->n_output ? q->guesses[at].n : 0;
    return n < r->setup->max_drafts ? n : r->setup->max_drafts;
}

/* and how many of them are accepted. */
static uint32_t n_right(const struct run *r, uint32_t request, uint32_t at)
{
    const struct sim_request *q = &r->workload->requests[request];
    if (!q->guesses)
        return sim_acceptance_draw(&r->setup->acceptance, r->setup->seed, request, at, r->setup->max_drafts);
    return at < q->n_output ? q->guesses[at].n_right : 0;
}

/* Proposes n drafts, or as many as there is space for. */
static uint32_t propose(struct run *r, uint32_t seq, uint32_t n)
{
    uint32_t drafts[SCHED_MAX_DRAFT], request = r->lives[seq].request, at = r->out->records[request].n_generated;
    uint32_t right = n > 0 ? n_right(r, request, at) : 0;
    for (uint32_t k = 0; k < n; k++)
        drafts[k] = sim_workload_token(request, at + k) ^ (k >= right);
    return n > 0 ? sched_propose(r->sched, seq, drafts, n) : 0;
}

/* A sequence that ran with the overlap has a token that is still being sampled. */
static bool has_pending(const struct run *r, uint32_t seq)
{
    uint32_t n;
    const uint32_t *tokens = sched_tokens(r->sched, seq, &n);
    return n > 0 && tokens[n - 1] == SCHED_PENDING;
}

/* Collects the fresh sequences that could have drafts in the next step into r->items and the front of r->fresh. */
static uint32_t gather(struct run *r, uint32_t n_running)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_fresh; i++) {
        uint32_t seq = r->fresh[i], n_blocks;
        struct live *live = &r->lives[seq];
        if (!sched_blocks(r->sched, seq, 0, &n_blocks)) /* preempted */
            continue;
        bool is_due = length_is_due(&live->length, n_running), waits = has_pending(r, seq);
        if (!is_due || waits)
            sched_gate(r->sched, seq, is_due);
        if (!is_due || waits)
            continue;
        r->items[n] = (struct length_item){
            .q = &live->length, .n_offered = n_guessed(r, live->request, r->out->records[live->request].n_generated)};
        r->fresh[n++] = seq;
    }
    return n;
}

/* Known tokens: prompt and generated ones. */
static uint32_t n_known(const struct run *r, uint32_t seq)
{
    uint32_t request = r->lives[seq].request;
    return r->workload->requests[request].n_prompt + r->out->records[request].n_generated;
}

/* Time of a draft model's pass that makes draft `at` for all sequences that get as many. The first pass computes the
 * new part of their text, each further one a token. `all`: for every sequence. */
static double pass_us(const struct run *r, uint32_t n, uint32_t at, bool all)
{
    struct sched_shape shape = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t known = n_known(r, r->fresh[i]), lag = known - r->lives[r->fresh[i]].n_drafted;
        if (!all && r->items[i].n <= at)
            continue;
        if (at == 0)
            sched_shape_add(&shape, known - lag, lag, 1);
        else
            sched_shape_add(&shape, known + at - 1, 1, 1);
    }
    return shape.n_rows > 0 ? sched_cost_us(&r->setup->draft_cost, &shape) : 0;
}

/* The draft model makes the chosen drafts, and time passes. */
static void make_drafts(struct run *r, uint32_t n)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = r->items[i].n > most ? r->items[i].n : most;
    for (uint32_t at = 0; at < most; at++)
        r->now_us += pass_us(r, n, at, false);
    for (uint32_t i = 0; i < n; i++)
        if (r->items[i].n > 0)
            r->lives[r->fresh[i]].n_drafted = n_known(r, r->fresh[i]);
}

/* Chooses as many as pay off, in the engine's order (engine/run/speculate.c). */
static uint32_t choose(struct run *r)
{
    uint32_t n_running = sched_stats(r->sched).n_running;
    uint32_t room = n_running < r->most_rows ? r->most_rows - n_running : 0;
    uint32_t n = room > 0 ? gather(r, n_running) : 0;
    struct length_reason reason;
    if (n > 0)
        lengths_choose(r->lengths, r->items, n, n_running, room, pass_us(r, n, 1, true), &reason);
    return n;
}

/* As many as allowed, or as recorded. */
static uint32_t choose_all(struct run *r)
{
    for (uint32_t i = 0; i < r->n_fresh; i++) {
        uint32_t request = r->lives[r->fresh[i]].request, at = r->out->records[request].n_generated;
        const struct sim_request *q = &r->workload->requests[request];
        if (q->guesses && at < q->n_output)
            sched_gate(r->sched, r->fresh[i], q->guesses[at].gated);
        r->items[i].n = n_guessed(r, request, at);
    }
    return r->n_fresh;
}

/* Before a step is planned, for the sequences that got a token since the last plan. */
static void propose_all(struct run *r)
{
    uint32_t n = r->lengths ? choose(r) : choose_all(r);
    if (r->setup->draft_cost.n_points > 0)
        make_drafts(r, n);
    for (uint32_t i = 0; i < n; i++)
        if (propose(r, r->fresh[i], r->items[i].n) == 0 && r->lengths)
            sched_gate(r->sched, r->fresh[i], r->items[i].q->wait == 0);
    r->n_fresh = 0;
}

/* A step with only tokens and drafts shows the cost of its width. */
static void time_step(struct run *r, const struct sched_step *step)
{
    const struct sched_plan *plan = step->plan;
    double begun_us = r->planned_us[step->slot] > r->done_us ? r->planned_us[step->slot] : r->done_us;
    uint32_t n_drafts = 0;
    for (uint32_t i = 0; i < plan->n_rows; i++)
        n_drafts += plan->rows[i].n_draft;
    if (plan->n_tokens - n_drafts == plan->n_rows && plan->n_moves == 0)
        lengths_timed(r->lengths, plan->n_tokens, r->now_us - begun_us);
    r->done_us = r->now_us;
}

/* ---- results ---- */

static void note_token(struct run *r, size_t request, bool over)
{
    const struct sim_request *q = &r->workload->requests[request];
    struct sim_record *record = &r->out->records[request];
    if (record->n_generated++ == 0)
        record->first_us = r->now_us;
    else
        sim_watch_token_gap(r->out->watch, q->tenant, q->class_index, (r->now_us - record->last_us) * 1e-3);
    record->last_us = r->now_us;
    if (over)
        end_record(r, request, SIM_DONE);
}

/* Advances the clock to the step's end. */
static int on_wait(void *context, const struct sched_step *step, struct quire_error *err)
{
    struct run *r = context;
    (void)err;
    if (r->end_us[step->slot] > r->now_us)
        r->now_us = r->end_us[step->slot];
    return QUIRE_OK;
}

static uint32_t on_take(void *context, const struct sched_step *step, struct sched_result *results, uint32_t *tokens)
{
    struct run *r = context;
    uint32_t n = 0;
    for (uint32_t i = 0; i < step->plan->n_rows; i++) {
        const struct sched_row *row = &step->plan->rows[i];
        uint32_t request = r->lives[row->seq].request, n_output = r->workload->requests[request].n_output;
        const struct sim_record *record = &r->out->records[request];
        if (!row->outputs.tokens || record->fate == SIM_DONE)
            continue;
        uint32_t n_accepted = row->n_draft > 0 ? n_right(r, request, record->n_generated) : 0;
        n_accepted = n_accepted < row->n_draft ? n_accepted : row->n_draft;
        if (n_accepted > 0 && record->n_generated + n_accepted >= n_output)
            n_accepted = n_output > record->n_generated ? n_output - record->n_generated - 1 : 0;
        for (uint32_t k = 0; k <= n_accepted; k++)
            tokens[k] = sim_workload_token(request, record->n_generated + k);
        results[n] = sched_result_of(row, tokens);
        results[n].n_accepted = n_accepted;
        results[n++].finished = record->n_generated + n_accepted + 1 >= n_output;
        tokens += n_accepted + 1;
    }
    return n;
}

static void take_result(struct run *r, const struct sched_row *row, const struct sched_result *result, bool over)
{
    uint32_t request = r->lives[row->seq].request, tenant = r->workload->requests[request].tenant;
    for (uint32_t k = 0; k <= result->n_accepted; k++)
        note_token(r, request, over && k == result->n_accepted);
    r->out->watch->tokens.service[tenant] += (double)output_price(r) * result->n_accepted / r->tenants[tenant].weight;
    draft_counts_add(&r->out->drafts, row->n_draft, result->n_accepted);
    /* It has computed its accepted drafts, except for the last one it made. */
    if (row->n_draft > 0)
        r->lives[row->seq].n_drafted += result->n_accepted < row->n_draft ? result->n_accepted : result->n_accepted - 1;
    if (r->lengths && row->n_draft > 0)
        lengths_verified(r->lengths, &r->lives[row->seq].length, 0, row->n_draft, result->n_accepted);
    if (!over && r->setup->max_drafts > 0)
        r->fresh[r->n_fresh++] = row->seq;
}

static void on_committed(void *context, const struct sched_committed *c)
{
    struct run *r = context;
    const struct sched_row *row = c->step->plan->rows;
    for (uint32_t i = 0; i < c->n_results; i++) {
        row = sched_committed_row(c, i, row);
        if (!c->discarded[i])
            take_result(r, row, &c->results[i], c->finished[i]);
    }
    if (r->lengths)
        time_step(r, c->step);
}

static void on_retired(void *context, uint32_t seq)
{
    struct run *r = context;
    uint32_t request = r->lives[seq].request;
    enum sim_fate fate = r->out->records[request].fate;
    if (fate != SIM_DONE && fate != SIM_REFUSED)
        end_record(r, request, SIM_DONE); /* the request needs only its prompt */
}

static const struct sched_driver_calls steps = {.planned = on_planned,
                                                .launch = on_launch,
                                                .wait = on_wait,
                                                .take = on_take,
                                                .committed = on_committed,
                                                .retired = on_retired};

/* ---- the loop ---- */

/* Nothing runs and nothing can run: advances to the next arrival, or to the policy's wake-up time. */
static int wait(struct run *r, const struct sched_plan *plan, bool *done)
{
    double until = plan->wake_us > 0 ? (double)plan->wake_us : 0;
    struct sim_due due;
    if (!r->setup->one_by_one && sim_arrivals_peek(r->arrivals, &due))
        until = until > 0 && until < due.us ? until : due.us;
    *done = r->n_over == r->workload->n;
    if (*done || (r->setup->one_by_one && r->next == r->n_over))
        return QUIRE_OK;
    if (until == 0)
        return quire_fail(r->err, QUIRE_INTERNAL, "the scheduler makes no progress with %llu requests left",
                          (unsigned long long)(r->workload->n - r->n_over));
    r->now_us = until > r->now_us + 1 ? until : r->now_us + 1;
    return QUIRE_OK;
}

static int run_loop(struct run *r)
{
    bool done = false;
    uint64_t n_plans = 0;
    int status = QUIRE_OK;
    while (status == QUIRE_OK && !done) {
        const struct sched_plan *plan;
        bool idle = sched_driver_in_flight(r->driver) == 0;
        status = take_arrivals(r);
        propose_all(r);
        if (status == QUIRE_OK)
            status = sched_driver_turn(r->driver, (uint64_t)r->now_us, &plan, r->err);
        if (status == QUIRE_OK && idle && plan->n_rows == 0)
            status = wait(r, plan, &done);
        if (r->setup->progress && n_plans++ % 64 == 0)
            r->setup->progress(r->setup->progress_context, r->n_over);
    }
    return status;
}

int sim_run(const struct sim_setup *setup, const struct sim_workload *workload, struct sim_result *out,
            struct quire_error *err)
{
    struct run r = {.setup = setup, .workload = workload, .out = out, .err = err};
    double began = quire_now_s();
    *out = (struct sim_result){0};
    int status = open_run(&r);
    if (status == QUIRE_OK)
        status = sched_driver_create(r.sched, &steps, &r, &r.driver, err);
    if (status == QUIRE_OK)
        status = run_loop(&r);
    if (status == QUIRE_OK) {
        out->stats = sched_stats(r.sched);
        out->usage = sched_kv_usage(r.sched, 0);
        out->decisions = decision_log_now(&r.log);
        out->figure = sched_policy_figure(r.sched, &out->figure_name);
        out->began_us = out->records[0].arrival_us;
        out->ended_us = r.now_us;
    }
    close_run(&r);
    out->wall_s = quire_now_s() - began;
    return status;
}

void sim_result_free(struct sim_result *result)
{
    free(result->records);
    sim_watch_free(result->watch);
    *result = (struct sim_result){0};
}
