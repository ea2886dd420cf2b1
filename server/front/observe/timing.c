#include "server/front/observe/timing.h"

#include <stdio.h>
#include <string.h>

void blocker_name_add(struct blocker_names *names, uint64_t id, const char *name)
{
    uint32_t at = names->next++ % BLOCKER_NAMES;
    names->ids[at] = id;
    snprintf(names->names[at], sizeof names->names[at], "%s", name);
}

static const char *find_name(const struct blocker_names *names, uint64_t id)
{
    for (uint32_t i = 0; i < BLOCKER_NAMES; i++)
        if (names->ids[i] == id)
            return names->names[i];
    return NULL;
}

uint64_t timing_queue_us(const struct wire_account *a)
{
    return a->queue_nothing_us + a->queue_budget_us + a->queue_seqs_us + a->queue_blocks_us + a->queue_batch_us +
           a->queue_prefix_us;
}

uint64_t timing_looked_us(const struct timing *t)
{
    const uint64_t ended_us = t->lookups.n > 0 ? t->lookups.items[t->lookups.n - 1].ended_ns / 1000 : 0;
    return ended_us > t->submitted_us ? ended_us : t->submitted_us;
}

void timing_add(struct timing *t, const struct wire_account *account, uint64_t turn_us, uint32_t n_cached)
{
    struct wire_account *sum = &t->account;
    struct wire_account old = *sum;
    uint64_t waited = turn_us + timing_queue_us(account) + account->preempted_us;
    if (waited >= t->turn_us + timing_queue_us(&old) + old.preempted_us) {
        *sum = *account;
        t->turn_us = turn_us;
    }
    sum->n_overtaken = old.n_overtaken + account->n_overtaken;
    sum->n_chunks = old.n_chunks + account->n_chunks;
    sum->n_preemptions = old.n_preemptions + account->n_preemptions;
    sum->n_loaded = old.n_loaded + account->n_loaded;
    sum->n_recomputed = old.n_recomputed + account->n_recomputed;
    t->n_cached += n_cached;
    t->accounted = true;
}

static void put_ms(struct buffer *o, const char *key, uint64_t us)
{
    char text[32];
    json_out_raw(o, key);
    snprintf(text, sizeof text, "%.3f", (double)us / 1000);
    json_out_raw(o, text);
}

static void put_count(struct buffer *o, const char *key, uint64_t n)
{
    json_out_raw(o, key);
    json_out_u64(o, n);
}

/* A client that is not an admin only learns whether the blocker belongs to its own tenant. */
static void put_blocker(struct buffer *o, const struct wire_account *a, const struct tenant *tenant, bool admin,
                        const struct tenants *tenants, const struct blocker_names *names)
{
    json_out_raw(o, ",\"blocker\":");
    if (a->blocker == 0) {
        json_out_raw(o, "null");
        return;
    }
    bool same = a->blocker_tenant == tenant->index;
    json_out_raw(o, same ? "\"same tenant\"" : "\"another tenant\"");
    if (!admin)
        return;
    bool known = a->blocker_tenant < tenants_n(tenants);
    json_out_raw(o, ",\"blocker_tenant\":");
    json_out_text_or_null(o, known ? tenants_at(tenants, a->blocker_tenant)->name : NULL);
    json_out_raw(o, ",\"blocker_request_id\":");
    json_out_text_or_null(o, find_name(names, a->blocker));
}

static void put_short_ms(struct buffer *o, const char *key, uint64_t ns)
{
    char text[32];
    json_out_raw(o, key);
    snprintf(text, sizeof text, "%.4f", (double)ns * 1e-6);
    json_out_raw(o, text);
}

static void put_lookups(struct buffer *o, const struct timing *t)
{
    json_out_raw(o, ",\"lookups\":[");
    for (uint32_t i = 0; i < t->lookups.n; i++) {
        const struct completion_lookup *l = &t->lookups.items[i];
        const uint64_t arrived_ns = t->arrived_us * 1000;
        json_out_raw(o, i > 0 ? ",{\"layer\":" : "{\"layer\":");
        json_out_text(o, l->layer);
        put_short_ms(o, ",\"at_ms\":", l->begun_ns > arrived_ns ? l->begun_ns - arrived_ns : 0);
        put_short_ms(o, ",\"ms\":", l->ended_ns - l->begun_ns);
        json_out_raw(o, l->found ? ",\"hit\":true}" : ",\"hit\":false}");
    }
    json_out_raw(o, "]");
}

void timing_json(struct buffer *o, const struct timing *t, const struct tenant *tenant, bool admin,
                 const struct tenants *tenants, const struct blocker_names *names)
{
    const struct wire_account *a = &t->account;
    put_ms(o, "{\"text_ms\":", t->submitted_us - t->arrived_us);
    put_ms(o, ",\"queue_ms\":", t->turn_us + timing_queue_us(a));
    put_ms(o, ",\"queue_ms_by_shortage\":{\"none\":", a->queue_nothing_us);
    put_ms(o, ",\"token_budget\":", a->queue_budget_us);
    put_ms(o, ",\"sequences\":", a->queue_seqs_us);
    put_ms(o, ",\"blocks\":", a->queue_blocks_us);
    put_ms(o, ",\"batch\":", a->queue_batch_us);
    put_ms(o, ",\"prefix\":", a->queue_prefix_us);
    put_ms(o, ",\"turn\":", t->turn_us);
    put_ms(o, "},\"preempted_ms\":", a->preempted_us);
    if (t->first_token_us > 0)
        put_ms(o, ",\"first_token_ms\":", t->first_token_us - t->arrived_us);
    else
        json_out_raw(o, ",\"first_token_ms\":null");
    put_ms(o, ",\"total_ms\":", t->now_us - t->arrived_us);
    put_count(o, ",\"overtaken\":", a->n_overtaken);
    put_count(o, ",\"chunks\":", a->n_chunks);
    put_count(o, ",\"preemptions\":", a->n_preemptions);
    put_count(o, ",\"recomputed_tokens\":", a->n_recomputed);
    put_count(o, ",\"cached_tokens\":", t->n_cached);
    put_count(o, ",\"loaded_tokens\":", a->n_loaded);
    if (t->differs)
        put_count(o, ",\"prefix_differs_at\":", t->differs_at);
    else
        json_out_raw(o, ",\"prefix_differs_at\":null");
    put_lookups(o, t);
    put_blocker(o, a, tenant, admin, tenants, names);
    json_out_raw(o, "}");
}
