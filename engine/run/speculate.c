#include "engine/run/speculate.h"

#include "engine/run/state.h"
#include "engine/run/drafters.h"

#include <stdlib.h>
#include <string.h>

/* What is known of a running sequence. */
struct drafted_seq {
    enum draft_source source; /* of the drafts that its next row verifies */
};

struct speculation {
    struct speculative_config config;
    struct drafter *drafters[N_DRAFT_SOURCES]; /* NULL: there is none */
    uint32_t n_slots, n_free_slots, n_fresh;
    struct drafted_seq *seqs; /* [n_slots], by slot - 1 */
    uint32_t *free_slots;
    /* Sequences that got a token since they were last asked for: of all steps that may end before the next is planned. */
    uint32_t *fresh; /* [(depth + 1) n_slots] */
    struct draft_ask *asks; /* as many; scratch */
    uint32_t *drafts; /* as many, [DRAFT_MAX] each */
    uint64_t room_left; /* of draft_room.h, for the step to come */
};

/* Of the scheduler's names that may be asked for at once. */
static uint32_t n_asked_of(const struct engine_plan *plan)
{
    return (plan->overlap_depth + 1) * plan->max_num_seqs;
}

/* All arrays are one piece. */
static uint64_t array_bytes(const struct engine_plan *plan)
{
    const uint64_t of_slot = sizeof(struct drafted_seq) + sizeof(uint32_t);
    const uint64_t of_ask = sizeof(struct draft_ask) + (1 + DRAFT_MAX) * sizeof(uint32_t);
    return plan->max_num_seqs * of_slot + n_asked_of(plan) * of_ask;
}

uint64_t speculate_bytes(const struct speculative_config *config, const struct engine_plan *plan)
{
    return sizeof(struct speculation) + array_bytes(plan) + drafters_bytes(config, plan);
}

int speculate_create(struct engine *e, const struct engine_options *o, struct quire_error *err)
{
    struct speculation *s = calloc(1, sizeof *s);
    uint32_t n_asked = n_asked_of(&e->plan);
    e->speculation = s;
    if (!s)
        return quire_fail(err, QUIRE_NO_MEMORY, "speculation: out of memory");
    s->config = o->speculative;
    s->n_slots = s->n_free_slots = e->plan.max_num_seqs;
    s->asks = calloc(1, array_bytes(&e->plan));
    if (!s->asks)
        return quire_fail(err, QUIRE_NO_MEMORY, "speculation: out of memory");
    s->seqs = (struct drafted_seq *)(s->asks + n_asked);
    s->drafts = (uint32_t *)(s->seqs + s->n_slots);
    s->fresh = s->drafts + (size_t)n_asked * DRAFT_MAX;
    s->free_slots = s->fresh + n_asked;
    for (uint32_t i = 0; i < s->n_slots; i++)
        s->free_slots[i] = s->n_slots - i;
    return drafters_create(&s->config, &e->plan, s->drafters, err);
}

void speculate_destroy(struct engine *e)
{
    struct speculation *s = e->speculation;
    if (!s)
        return;
    for (int i = 0; i < N_DRAFT_SOURCES; i++)
        if (s->drafters[i])
            s->drafters[i]->ops->destroy(s->drafters[i]);
    free(s->asks);
    free(s);
}

int speculate_check(const struct engine *e, const struct request *r, struct quire_error *err)
{
    enum draft_method asked = (enum draft_method)r->spec.draft_method;
    if (asked == DRAFT_NONE || asked == e->speculation->config.method)
        return QUIRE_OK;
    return quire_fail_for(err, QUIRE_INVALID, "speculative", "this server has no drafts by %s: it was started with %s",
                          asked < DRAFT_N_METHODS ? draft_method_name(asked) : "that method",
                          draft_method_name(e->speculation->config.method));
}

bool speculate_wants(const struct engine *e, const struct request *r)
{
    return r->spec.max_drafts > 0 && (r->spec.n_prediction > 0 || e->speculation->drafters[FROM_METHOD]);
}

/* Whether drafts for a sequence come from the host. */
static void gate(struct engine *e, uint32_t seq, bool gated)
{
    if (sched_gate(e->sched, seq, gated))
        ENGINE_WATCH(e, gated, seq, gated);
}

void speculate_placed(struct engine *e, uint32_t seq)
{
    gate(e, seq, speculate_wants(e, e->owners[seq].request));
}

static struct draft_text text_of(const struct engine *e, uint32_t seq)
{
    const struct request *r = e->owners[seq].request;
    struct draft_text text = {.n_prompt = r->spec.n_prompt,
                              .domain = &r->spec.cache_domain,
                              .tenant = r->spec.tenant,
                              .expected = r->spec.prediction,
                              .n_expected = r->spec.n_prediction};
    text.tokens = sched_tokens(e->sched, seq, &text.n_tokens);
    return text;
}

/* Whether the drafts that its row verifies are the request's own. Drafts may also come from others than us. */
static bool is_predicted(const struct engine *e, uint32_t seq)
{
    uint32_t slot = e->owners[seq].draft_slot;
    return slot > 0 && e->speculation->seqs[slot - 1].source == FROM_REQUEST;
}

void speculate_verified(struct engine *e, const struct sched_row *row)
{
    struct engine_stats *stats = &e->report.stats;
    struct request_choice *c = &e->owners[row->seq].request->choices[e->owners[row->seq].choice];
    stats->n_drafts++;
    stats->n_draft_tokens += row->n_draft;
    c->n_drafted += row->n_draft;
    if (is_predicted(e, row->seq))
        c->n_predicted += row->n_draft;
}

void speculate_accepted(struct engine *e, uint32_t seq, uint32_t at)
{
    struct engine_stats *stats = &e->report.stats;
    struct request_choice *c = &e->owners[seq].request->choices[e->owners[seq].choice];
    stats->n_accepted_tokens++;
    stats->accepted_at[at]++;
    c->n_accepted++;
    if (is_predicted(e, seq))
        c->n_predicted_right++;
}

static void leave_slot(struct engine *e, uint32_t seq, bool is_answer)
{
    struct speculation *s = e->speculation;
    uint32_t *slot = &e->owners[seq].draft_slot;
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
    const struct request_choice *c = &e->owners[seq].request->choices[e->owners[seq].choice];
    return c->done && (c->finish == ENGINE_FINISH_STOP || c->finish == ENGINE_FINISH_LENGTH);
}

void speculate_committed(struct engine *e, const struct sched_committed *c)
{
    struct speculation *s = e->speculation;
    const struct sched_plan *plan = c->step->plan;
    for (uint32_t i = 0, n = 0; i < plan->n_rows && n < c->n_results; i++) {
        const struct sched_row *row = &plan->rows[i];
        if (row->seq != c->results[n].seq)
            continue;
        if (c->finished[n])
            leave_slot(e, row->seq, is_answer(e, row->seq)); /* now, while its tokens are there */
        else if (!c->discarded[n] && speculate_wants(e, e->owners[row->seq].request))
            s->fresh[s->n_fresh++] = row->seq;
        n++;
    }
}

/* A slot for the sequence, when it is asked for the first time; 0: there is none left. */
static uint32_t slot_of(struct engine *e, uint32_t seq, const struct draft_text *text)
{
    struct speculation *s = e->speculation;
    uint32_t *slot = &e->owners[seq].draft_slot;
    if (*slot == 0 && s->n_free_slots > 0) {
        *slot = s->free_slots[--s->n_free_slots];
        for (int i = 0; i < N_DRAFT_SOURCES; i++)
            if (s->drafters[i])
                s->drafters[i]->ops->begin(s->drafters[i], *slot - 1, text);
    }
    return *slot;
}

/* How many of n drafts the sampler's rows will have room for, and takes that from what is left of it. */
static uint32_t take_room(struct engine *e, uint32_t seq, uint32_t n)
{
    struct speculation *s = e->speculation;
    const struct seq_owner *owner = &e->owners[seq];
    while (n > 0 && draft_room_needed(owner->request, owner->choice, n) > s->room_left)
        n--;
    s->room_left -= draft_room_needed(owner->request, owner->choice, n);
    return n;
}

/* Who was preempted while its token was being sampled has no blocks and takes no slot. */
static bool runs(const struct engine *e, uint32_t seq)
{
    uint32_t n_blocks;
    return sched_blocks(e->sched, seq, 0, &n_blocks) != NULL;
}

static int ask(struct engine *e, enum draft_source source, struct quire_error *err)
{
    struct speculation *s = e->speculation;
    uint32_t n_asks = 0, n_left = 0;
    for (uint32_t i = 0; i < s->n_fresh; i++) {
        uint32_t seq = s->fresh[i];
        const struct request *r = e->owners[seq].request;
        struct draft_ask *a = &s->asks[n_asks];
        uint32_t most = s->config.num_speculative_tokens;
        if (!r || r->choices[e->owners[seq].choice].done || !runs(e, seq))
            continue;
        *a = (struct draft_ask){.text = text_of(e, seq), .drafts = s->drafts + (size_t)n_asks * DRAFT_MAX};
        a->most = r->spec.max_drafts < most ? r->spec.max_drafts : most;
        uint32_t slot = slot_of(e, seq, &a->text);
        if (slot == 0)
            continue;
        a->slot = slot - 1;
        s->fresh[n_asks++] = seq;
    }
    s->n_fresh = n_asks;
    if (n_asks == 0)
        return QUIRE_OK;
    int status = s->drafters[source]->ops->propose(s->drafters[source], s->asks, n_asks, err);
    for (uint32_t i = 0; status == QUIRE_OK && i < n_asks; i++) {
        uint32_t seq = s->fresh[i];
        uint32_t n = take_room(e, seq, s->asks[i].n);
        n = n > 0 ? sched_propose(e->sched, seq, s->asks[i].drafts, n) : 0;
        if (n == 0) {
            s->fresh[n_left++] = seq;
            continue;
        }
        s->seqs[s->asks[i].slot].source = source;
        ENGINE_WATCH(e, proposed, seq, s->asks[i].drafts, n);
    }
    s->n_fresh = n_left;
    return status;
}

int speculate_propose(struct engine *e, struct quire_error *err)
{
    struct speculation *s = e->speculation;
    int status = QUIRE_OK;
    s->room_left = draft_room_items(e->plan.max_num_seqs);
    for (int source = 0; source < N_DRAFT_SOURCES && status == QUIRE_OK && s->n_fresh > 0; source++)
        if (s->drafters[source])
            status = ask(e, (enum draft_source)source, err);
    s->n_fresh = 0;
    return status;
}

void speculate_planned(struct engine *e, const struct sched_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_preempted; i++)
        leave_slot(e, plan->preempted[i], false);
}

void speculate_retired(struct engine *e, uint32_t seq)
{
    leave_slot(e, seq, false);
}
