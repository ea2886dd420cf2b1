#include "engine/run/speculate.h"

#include "engine/run/draft_model.h"
#include "engine/grammars.h"
#include "engine/run/draft_scratch.h"
#include "engine/run/state.h"
#include "engine/run/drafters.h"

#include "base/clock.h"
#include "speculation/length.h"

#include <stdlib.h>
#include <string.h>

/* The state of a running sequence. */
struct drafted_seq {
    enum draft_source source; /* source of the drafts that its next row verifies */
    struct draft_length length;
};

struct speculation {
    struct speculative_config config;
    struct drafter *drafters[N_DRAFT_SOURCES]; /* NULL: not in use */
    uint32_t n_slots, n_free_slots, n_fresh;
    struct drafted_seq *seqs; /* [n_slots], by slot - 1 */
    uint32_t *free_slots;
    /* Sequences that got a token since they were last asked for: of all steps that may end before the next is planned. */
    uint32_t *fresh; /* [(depth + 1) n_slots] */
    struct draft_ask *asks; /* as many; scratch */
    uint32_t *drafts; /* as many, [DRAFT_MAX] each */
    struct length_item *items; /* as many */
    uint64_t space_left; /* space left in draft_scratch.h for the next step */
    bool is_wanted; /* by a request that there was. Until then a commit need not look at its rows */
    bool forced_tokens; /* of grammars, as drafts */

    struct lengths *lengths;
    uint64_t planned_us[ENGINE_MAX_SLOTS], done_us; /* by the step's number; done_us: of the last completed step */
    double draft_us; /* time of one draft for all queried sequences, if drafts are made after their number is chosen */
};

/* The number of sequence ids that can be queried at once. */
static uint32_t n_asked_of(const struct engine_plan *plan)
{
    return (engine_plan_overlap_depth(plan) + 1) * plan->max_num_seqs;
}

/* All arrays are one piece. */
static uint64_t array_bytes(const struct engine_plan *plan)
{
    const uint64_t of_slot = sizeof(struct drafted_seq) + sizeof(uint32_t);
    const uint64_t of_ask = sizeof(struct draft_ask) + sizeof(struct length_item) + (1 + DRAFT_MAX) * sizeof(uint32_t);
    return plan->max_num_seqs * of_slot + n_asked_of(plan) * of_ask;
}

uint64_t speculate_bytes(const struct speculative_config *config, const struct engine_plan *plan)
{
    return sizeof(struct speculation) + array_bytes(plan) + lengths_bytes(n_asked_of(plan)) +
           drafters_bytes(config, plan);
}

/* Estimates before any draft was verified: predictions are mostly right, a draft model is often right, and repeated
 * text is right every other time. */
static void first_lengths(const struct step_options *o, struct length_config *out)
{
    static const float first[DRAFT_N_METHODS] = {0.5f, 0.5f, 0.6f, 0.7f},
                       next[DRAFT_N_METHODS] = {0.8f, 0.8f, 0.8f, 0.7f};
    *out = (struct length_config){.first = {[FROM_REQUEST] = 0.9f, [FROM_METHOD] = first[o->speculative.method]},
                                  .next = {[FROM_REQUEST] = 0.9f, [FROM_METHOD] = next[o->speculative.method]},
                                  .n_points = o->cost.n_points};
    _Static_assert(LENGTH_MAX_POINTS >= SCHED_COST_MAX_POINTS, "every point of a cost model");
    for (uint32_t i = 0; i < o->cost.n_points; i++) {
        uint32_t n = o->cost.points[i].n_tokens;
        const struct sched_shape shape = {.n_rows = 1, .n_tokens = n, .n_logits = n};
        out->points[i].n_tokens = n;
        out->points[i].us = sched_cost_us(&o->cost, &shape);
    }
}

int speculate_create(struct engine *e, const struct engine_options *o, struct quire_error *err)
{
    struct speculation *s = calloc(1, sizeof *s);
    uint32_t n_asked = n_asked_of(e->plan);
    e->speculation = s;
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "speculation: out of memory");
    s->config = engine_step_options(o)->speculative;
    s->forced_tokens = o->grammars && !o->grammars->one_by_one;
    s->n_slots = s->n_free_slots = e->plan->max_num_seqs;
    s->asks = calloc(1, array_bytes(e->plan));
    if (!s->asks)
        return quire_fail(err, QUIRE_NO_MEMORY, "speculation: out of memory");
    s->items = (struct length_item *)(s->asks + n_asked);
    s->seqs = (struct drafted_seq *)(s->items + n_asked);
    s->drafts = (uint32_t *)(s->seqs + s->n_slots);
    s->fresh = s->drafts + (size_t)n_asked * DRAFT_MAX;
    s->free_slots = s->fresh + n_asked;
    for (uint32_t i = 0; i < s->n_slots; i++)
        s->free_slots[i] = s->n_slots - i;
    if (e->draft_model)
        s->drafters[FROM_METHOD] = draft_model_drafter(e->draft_model);
    struct length_config lengths;
    first_lengths(engine_step_options(o), &lengths);
    int status = lengths_create(&lengths, n_asked, &s->lengths, err);
    return status == QUIRE_OK ? drafters_create(&s->config, e->plan, s->drafters, err) : status;
}

void speculate_destroy(struct speculation *s)
{
    if (!s)
        return;
    for (int i = 0; i < N_DRAFT_SOURCES; i++)
        if (s->drafters[i])
            s->drafters[i]->ops->destroy(s->drafters[i]);
    lengths_destroy(s->lengths);
    free(s->asks);
    free(s);
}

int speculate_check(const struct engine *e, const struct request *r, struct quire_error *err)
{
    enum draft_method asked = (enum draft_method)r->spec->draft_method;
    if (asked == DRAFT_NONE || asked == e->speculation->config.method)
        return QUIRE_OK;
    return quire_fail_for(err, QUIRE_INVALID, "speculative", "this server has no drafts by %s; it was started with %s",
                          asked < DRAFT_N_METHODS ? draft_method_name(asked) : "that method",
                          draft_method_name(e->speculation->config.method));
}

bool speculate_wants(const struct engine *e, const struct request *r)
{
    return r->spec->max_drafts > 0 && (r->spec->n_prediction > 0 || e->speculation->drafters[FROM_METHOD] ||
                                       (r->grammar && e->speculation->forced_tokens));
}

/* Whether drafts for a sequence come from the host. */
static void gate(struct engine *e, uint32_t seq, bool gated)
{
    if (sched_gate(e->run->sched, seq, gated))
        ENGINE_WATCH(e, gated, seq, gated);
}

void speculate_placed(struct engine *e, uint32_t seq)
{
    bool wants = speculate_wants(e, e->run->owners[seq].request);
    e->speculation->is_wanted |= wants;
    gate(e, seq, wants);
}

void speculate_predicted(struct engine *e, uint32_t seq)
{
    const uint32_t slot = e->run->owners[seq].draft_slot;
    if (slot > 0)
        e->speculation->seqs[slot - 1].length = (struct draft_length){0};
    speculate_placed(e, seq);
}

/* As far as it is known. */
static struct draft_text text_of(const struct engine *e, uint32_t seq)
{
    const struct request *r = e->run->owners[seq].request;
    struct draft_text text = {.n_prompt = r->spec->n_prompt,
                              .domain = &r->spec->cache_domain,
                              .tenant = r->spec->tenant,
                              .expected = r->spec->prediction,
                              .n_expected = r->spec->n_prediction};
    text.tokens = sched_tokens(e->run->sched, seq, &text.n_tokens);
    while (text.n_tokens > 0 && text.tokens[text.n_tokens - 1] == SCHED_PENDING)
        text.n_tokens--;
    return text;
}

/* Whether the drafts that its row verifies are the request's own. Drafts may also come from others than us. */
static bool is_predicted(const struct engine *e, uint32_t seq)
{
    uint32_t slot = e->run->owners[seq].draft_slot;
    return slot > 0 && e->speculation->seqs[slot - 1].source == FROM_REQUEST;
}

/* The grammar of a sequence's request, or NULL. */
static struct constraint *constraint_of(const struct engine *e, uint32_t seq)
{
    const struct seq_owner *owner = &e->run->owners[seq];
    return owner->request->grammar ? &owner->request->grammar->choices[owner->choice] : NULL;
}

/* Whether the drafts that its row verifies are tokens that its grammar forced. They count neither as drafts nor as
 * accepted ones. */
static bool is_forced(const struct engine *e, uint32_t seq)
{
    const struct constraint *x = constraint_of(e, seq);
    return x && x->has_proposed;
}

void speculate_verified(struct engine *e, const struct sched_row *row)
{
    struct engine_stats *stats = &e->run->report.stats;
    struct request_choice *c = &e->run->owners[row->seq].request->choices[e->run->owners[row->seq].choice];
    if (is_forced(e, row->seq))
        return;
    stats->n_drafts++;
    stats->n_draft_tokens += row->n_draft;
    c->n_drafted += row->n_draft;
    if (is_predicted(e, row->seq))
        c->n_predicted += row->n_draft;
}

void speculate_accepted(struct engine *e, uint32_t seq, uint32_t at)
{
    struct engine_stats *stats = &e->run->report.stats;
    struct request_choice *c = &e->run->owners[seq].request->choices[e->run->owners[seq].choice];
    if (is_forced(e, seq)) {
        stats->n_forced_tokens++;
        return;
    }
    stats->n_accepted_tokens++;
    stats->accepted_at[at]++;
    c->n_accepted++;
    if (is_predicted(e, seq))
        c->n_predicted_right++;
}

/* A step of nothing but tokens and drafts says what its width costs: from when it was planned, or the one before it ended,
 * until now. */
static void time_step(struct speculation *s, const struct sched_plan *plan, uint32_t n_drafts)
{
    uint64_t now_us = quire_now_us(), begun_us = s->planned_us[plan->step % ENGINE_MAX_SLOTS];
    if (begun_us < s->done_us)
        begun_us = s->done_us;
    s->done_us = now_us;
    if (plan->n_tokens - n_drafts == plan->n_rows && plan->n_moves == 0)
        lengths_timed(s->lengths, plan->n_tokens, (double)(now_us - begun_us));
}

static void leave_slot(struct engine *e, uint32_t seq, bool is_answer)
{
    struct speculation *s = e->speculation;
    uint32_t *slot = &e->run->owners[seq].draft_slot;
    if (*slot == 0)
        return;
    struct draft_text text = is_answer ? text_of(e, seq) : (struct draft_text){0};
    for (int i = 0; i < N_DRAFT_SOURCES; i++)
        if (s->drafters[i])
            s->drafters[i]->ops->end(s->drafters[i], *slot - 1, &text, is_answer);
    s->free_slots[s->n_free_slots++] = *slot;
    *slot = 0;
}

/* Did it come to its end by itself? */
static bool is_answer(const struct engine *e, uint32_t seq)
{
    const struct request_choice *c = &e->run->owners[seq].request->choices[e->run->owners[seq].choice];
    return c->done && (c->finish == ENGINE_FINISH_STOP || c->finish == ENGINE_FINISH_LENGTH);
}

static void learn(struct engine *e, const struct sched_row *row, const struct sched_result *result)
{
    struct speculation *s = e->speculation;
    uint32_t slot = e->run->owners[row->seq].draft_slot;
    if (slot > 0 && !is_forced(e, row->seq)) /* else they came from others than us */
        lengths_verified(s->lengths, &s->seqs[slot - 1].length, s->seqs[slot - 1].source, row->n_draft,
                         result->n_accepted);
}

void speculate_committed(struct engine *e, const struct sched_committed *c)
{
    struct speculation *s = e->speculation;
    const struct sched_plan *plan = c->step->plan;
    uint32_t n_drafts = 0;
    for (uint32_t i = 0, n = 0; s->is_wanted && i < plan->n_rows && n < c->n_results; i++) {
        const struct sched_row *row = &plan->rows[i];
        n_drafts += row->n_draft;
        if (row->seq != c->results[n].seq)
            continue;
        if (row->n_draft > 0 && !c->discarded[n])
            learn(e, row, &c->results[n]);
        if (c->finished[n])
            leave_slot(e, row->seq, is_answer(e, row->seq)); /* now, while its tokens are there */
        else if (!c->discarded[n] && speculate_wants(e, e->run->owners[row->seq].request))
            s->fresh[s->n_fresh++] = row->seq;
        n++;
    }
    time_step(s, plan, n_drafts);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Assigns a slot to the sequence at its first query; returns 0 if all slots are taken. */
static uint32_t slot_of(struct engine *e, uint32_t seq)
{
    struct speculation *s = e->speculation;
    uint32_t *slot = &e->run->owners[seq].draft_slot;
    if (*slot == 0 && s->n_free_slots > 0) {
        const struct draft_text text = text_of(e, seq);
        *slot = s->free_slots[--s->n_free_slots];
        s->seqs[*slot - 1] = (struct drafted_seq){0};
        for (int i = 0; i < N_DRAFT_SOURCES; i++)
            if (s->drafters[i])
                s->drafters[i]->ops->begin(s->drafters[i], *slot - 1, &text);
    }
    return *slot;
}

/* How many of n drafts the sampler's rows will have room for, and takes that from what is left of it. */
static uint32_t take_space(struct engine *e, uint32_t seq, uint32_t n)
{
    struct speculation *s = e->speculation;
    const struct seq_owner *owner = &e->run->owners[seq];
    while (n > 0 && draft_scratch_needed(owner->request, owner->choice, n) > s->space_left)
        n--;
    s->space_left -= draft_scratch_needed(owner->request, owner->choice, n);
    return n;
}

/* A sequence that was preempted while its token was being sampled has no blocks and takes no slot. */
static bool runs(const struct engine *e, uint32_t seq)
{
    uint32_t n_blocks;
    return sched_blocks(e->run->sched, seq, 0, &n_blocks) != NULL;
}

/* Drafts for which the next step has tokens and logit rows, in addition to every sequence's next token. */
static uint32_t step_space(const struct engine *e, uint32_t n_running)
{
    uint32_t most = e->plan->max_num_batched_tokens < e->plan->max_logit_rows ? e->plan->max_num_batched_tokens
                                                                              : e->plan->max_logit_rows;
    return n_running < most ? most - n_running : 0;
}

/* While it pauses a sequence runs with the overlap, where there is one. */
static void gate_as_needed(struct engine *e, uint32_t seq, bool gated)
{
    if (engine_plan_overlap_depth(e->plan) > 0)
        gate(e, seq, gated);
}

/* Fills in a question for the sequence. False: it needs none now. */
static bool prepare(struct engine *e, uint32_t seq, uint32_t n_running, struct draft_ask *a)
{
    struct speculation *s = e->speculation;
    const struct request *r = e->run->owners[seq].request;
    if (!r || r->choices[e->run->owners[seq].choice].done || !runs(e, seq))
        return false;
    uint32_t slot = slot_of(e, seq), most = s->config.num_speculative_tokens;
    if (slot == 0)
        return false;
    if (s->config.adaptive && !length_is_due(&s->seqs[slot - 1].length, n_running)) {
        gate_as_needed(e, seq, false);
        return false;
    }
    a->slot = slot - 1;
    a->seq = seq;
    a->text = text_of(e, seq);
    a->most = r->spec->max_drafts < most ? r->spec->max_drafts : most;
    a->n = 0;
    return true;
}

/* Collects the sequences to query into s->asks, in the order of s->fresh; returns their number. */
static uint32_t gather(struct engine *e, uint32_t n_running)
{
    struct speculation *s = e->speculation;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_fresh; i++) {
        s->asks[n].drafts = s->drafts + (size_t)n * DRAFT_MAX;
        if (prepare(e, s->fresh[i], n_running, &s->asks[n]))
            s->fresh[n++] = s->fresh[i];
    }
    return n;
}

static void swap_asks(struct speculation *s, uint32_t a, uint32_t b)
{
    struct draft_ask ask = s->asks[a];
    uint32_t seq = s->fresh[a];
    s->asks[a] = s->asks[b];
    s->asks[b] = ask;
    s->fresh[a] = s->fresh[b];
    s->fresh[b] = seq;
}

/* Asks one drafter for those from `from` on, and puts who has drafts now before the others; returns how many those are. */
static int ask(struct speculation *s, enum draft_source source, uint32_t from, uint32_t n, uint32_t *n_answered,
               struct quire_error *err)
{
    struct drafter *d = s->drafters[source];
    *n_answered = from;
    if (!d || from == n)
        return QUIRE_OK;
    int status = d->ops->propose(d, s->asks + from, n - from, err);
    for (uint32_t i = from; status == QUIRE_OK && i < n; i++) {
        if (s->asks[i].n == 0)
            continue;
        s->seqs[s->asks[i].slot].source = source;
        swap_asks(s, i, (*n_answered)++);
    }
    return status;
}

/* Chooses the number of drafts for each of s->asks among those that it has or could have. */
static void choose(struct engine *e, uint32_t n, uint32_t n_running, double draft_us)
{
    struct speculation *s = e->speculation;
    struct length_reason reason;
    for (uint32_t i = 0; i < n; i++) {
        struct drafted_seq *q = &s->seqs[s->asks[i].slot];
        s->items[i] = (struct length_item){.q = &q->length, .source = q->source, .n_offered = s->asks[i].n};
        s->items[i].n = s->asks[i].n;
    }
    if (s->config.adaptive && n > 0) {
        lengths_choose(s->lengths, s->items, n, n_running, step_space(e, n_running), draft_us, &reason);
        ENGINE_WATCH(e, lengths_chosen, &reason);
    }
}

/* Drafts that the grammar forbids, and those after them, are not proposed. */
static uint32_t n_allowed(struct constraint *x, const struct draft_ask *a, uint32_t n)
{
    const uint32_t n_prompt = a->text.n_prompt;
    const struct constraint_text known = {.tokens = a->text.tokens + n_prompt, .n_tokens = a->text.n_tokens - n_prompt};
    return constraint_allows(x, &known, a->drafts, n);
}

static void propose(struct engine *e, uint32_t n)
{
    struct speculation *s = e->speculation;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t seq = s->fresh[i], n_taken = take_space(e, seq, s->items[i].n);
        struct constraint *x = constraint_of(e, seq);
        if (x)
            n_taken = n_allowed(x, &s->asks[i], n_taken);
        if (n_taken > 0)
            n_taken = sched_propose(e->run->sched, seq, s->asks[i].drafts, n_taken);
        if (n_taken > 0)
            ENGINE_WATCH(e, proposed, seq, s->asks[i].drafts, n_taken);
        else if (s->config.adaptive)
            gate_as_needed(e, seq, s->items[i].q->wait == 0);
    }
}

/* A sequence that ran with the overlap has a token that is being sampled: nothing can be proposed for it. Where its known
 * text has drafts it gives the overlap up. Returns how many of n are left, the first. */
static uint32_t put_pending_aside(struct engine *e, uint32_t n)
{
    struct speculation *s = e->speculation;
    for (uint32_t i = 0, n_tokens; engine_plan_overlap_depth(e->plan) > 0 && i < n;) {
        sched_tokens(e->run->sched, s->fresh[i], &n_tokens);
        if (s->asks[i].text.n_tokens == n_tokens) {
            i++;
            continue;
        }
        gate_as_needed(e, s->fresh[i], true);
        swap_asks(s, i, --n);
    }
    return n;
}

/* The number of drafts that the server's method could make for the sequences from `from` on. A draft model is
 * queried only once the number of drafts that is worth a pass is known. */
static void offer_all(struct speculation *s, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < n; i++) {
        s->asks[i].n = s->asks[i].most;
        s->seqs[s->asks[i].slot].source = FROM_METHOD;
    }
}

/* Asks the draft model for as many as were chosen of each; before the others go those who have drafts by then. */
static int make_chosen(struct engine *e, uint32_t n, uint32_t n_running, struct quire_error *err)
{
    struct speculation *s = e->speculation;
    struct drafter *d = s->drafters[FROM_METHOD];
    uint32_t n_asked = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (s->seqs[s->asks[i].slot].source != FROM_METHOD || s->items[i].n == 0)
            continue;
        struct length_item item = s->items[i];
        swap_asks(s, i, n_asked);
        s->items[i] = s->items[n_asked];
        s->items[n_asked] = item;
        s->asks[n_asked].most = item.n;
        s->asks[n_asked++].n = 0;
    }
    int status = n_asked ? d->ops->propose(d, s->asks, n_asked, err) : QUIRE_OK;
    for (uint32_t i = 0; i < n_asked; i++) {
        s->items[i].n = s->asks[i].n;
        if (s->config.adaptive && s->items[i].n == 0)
            length_had_none(s->items[i].q, n_running);
    }
    return status;
}

/* Drafters had nothing for these. */
static void note_none(struct engine *e, uint32_t from, uint32_t n, uint32_t n_running)
{
    struct speculation *s = e->speculation;
    for (uint32_t i = from; s->config.adaptive && i < n; i++) {
        struct draft_length *length = &s->seqs[s->asks[i].slot].length;
        length_had_none(length, n_running);
        if (length_is_idle(length))
            gate_as_needed(e, s->fresh[i], false);
    }
}

static int propose_made(struct engine *e, uint32_t n_answered, uint32_t n, uint32_t n_running, struct quire_error *err)
{
    offer_all(e->speculation, n_answered, n);
    n = put_pending_aside(e, n);
    choose(e, n, n_running, draft_model_us(e->draft_model));
    int status = make_chosen(e, n, n_running, err);
    if (status == QUIRE_OK)
        propose(e, n);
    return status;
}

/* While other sequences run, forced tokens may make a step this much longer: what a grammar saves, its neighbours would
 * pay. Without the bound, 16 requests with JSON schemas made the time between a neighbour's tokens 1.33 times as long (0.5
 * billion weights on two cores). */
#define MOST_FORCED_SHARE 0.03

static uint32_t n_restricted(const struct engine *e)
{
    const struct speculation *s = e->speculation;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_fresh; i++)
        n += e->run->owners[s->fresh[i]].request && constraint_of(e, s->fresh[i]);
    return n;
}

/* How many forced tokens the next step may have. They are always accepted, so that sequences which all have grammars may
 * fill the step. */
static uint32_t forced_space(const struct engine *e, uint32_t n_running)
{
    const struct lengths *lengths = e->speculation->lengths;
    uint32_t least = 0, most = step_space(e, n_running);
    if (n_restricted(e) >= n_running)
        return most;
    const double most_us = lengths_us(lengths, n_running) * (1 + MOST_FORCED_SHARE);
    if (most_us == 0) /* unknown */
        return 0;
    while (least < most) {
        const uint32_t middle = least + (most - least + 1) / 2;
        if (lengths_us(lengths, n_running + middle) <= most_us)
            least = middle;
        else
            most = middle - 1;
    }
    return least;
}

/* Proposes the forced tokens of one sequence, at most n. */
static uint32_t propose_forced_of(struct engine *e, uint32_t seq, struct constraint *x, uint32_t n)
{
    const struct request *r = e->run->owners[seq].request;
    if (n == 0 || r->choices[e->run->owners[seq].choice].done || !runs(e, seq))
        return 0;
    n = take_space(e, seq, n < r->spec->max_drafts ? n : r->spec->max_drafts);
    n = n > 0 ? sched_propose(e->run->sched, seq, x->forced, n) : 0;
    if (n > 0)
        ENGINE_WATCH(e, proposed, seq, x->forced, n);
    return n;
}

/* Proposes the tokens that grammars force, and leaves the other sequences in s->fresh. */
static void propose_forced(struct engine *e, uint32_t n_running)
{
    struct speculation *s = e->speculation;
    uint32_t n_left = 0, space = e->speculation->forced_tokens ? forced_space(e, n_running) : 0;
    for (uint32_t i = 0; i < s->n_fresh; i++) {
        const uint32_t seq = s->fresh[i];
        struct constraint *x = e->run->owners[seq].request ? constraint_of(e, seq) : NULL;
        const uint32_t n = x ? propose_forced_of(e, seq, x, x->n_forced < space ? x->n_forced : space) : 0;
        space -= n;
        if (x)
            x->has_proposed = n > 0;
        if (n == 0)
            s->fresh[n_left++] = seq;
    }
    s->n_fresh = n_left;
}

int speculate_propose(struct engine *e, struct quire_error *err)
{
    struct speculation *s = e->speculation;
    if (s->n_fresh == 0)
        return QUIRE_OK;
    uint32_t n_running = sched_stats(e->run->sched).n_running, n_answered = 0, n = 0;
    s->space_left = draft_scratch_items(e->plan->max_num_seqs);
    propose_forced(e, n_running);
    if (step_space(e, n_running) > 0)
        n = gather(e, n_running);
    s->n_fresh = 0;
    int status = ask(s, FROM_REQUEST, 0, n, &n_answered, err);
    if (status != QUIRE_OK)
        return status;
    if (e->draft_model)
        return propose_made(e, n_answered, n, n_running, err);
    status = ask(s, FROM_METHOD, n_answered, n, &n_answered, err);
    if (status != QUIRE_OK)
        return status;
    note_none(e, n_answered, n, n_running);
    n = put_pending_aside(e, n_answered);
    choose(e, n, n_running, 0);
    propose(e, n);
    return QUIRE_OK;
}

void speculate_planned(struct engine *e, const struct sched_plan *plan)
{
    e->speculation->planned_us[plan->step % ENGINE_MAX_SLOTS] = quire_now_us();
    for (uint32_t i = 0; i < plan->n_preempted; i++)
        leave_slot(e, plan->preempted[i], false);
}

void speculate_cancelled(struct engine *e, uint32_t seq)
{
    leave_slot(e, seq, true);
}

void speculate_retired(struct engine *e, uint32_t seq)
{
    leave_slot(e, seq, false);
}
