#include "engine/run/mail/mailbox.h"

#include "engine/engine.h"
#include "engine/run/mail/admission.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUCKETS 1024u /* live requests rarely pass the queue bound's default */

#define RETRY_DRAINING_MS 5000u /* about a restart */

/* Hits that the response cache reported, three numbers each. */
struct served {
    uint32_t n;
    uint32_t ids[3 * ENGINE_MAX_SERVED];
    uint32_t drained[3 * ENGINE_MAX_SERVED]; /* the engine thread's */
};

struct tenant_reports {
    uint32_t n;
    struct sched_tenant_stats items[]; /* [n], as last published */
};

struct mailbox {
    pthread_mutex_t mutex;
    pthread_cond_t wake;

    struct request *submitted, **submitted_end;
    struct request *cancels, *predicted;
    struct request *live[BUCKETS];
    struct admission *admission;
    struct mailbox_orders orders;
    bool draining, closing, woken;
    char death[QUIRE_ERROR_BYTES]; /* why the engine is dead; empty while it lives */

    struct engine_stats stats; /* as last published */
    struct tenant_reports *tenants; /* owned */
    uint64_t n_orders; /* with a number */
    struct served *served; /* owned */
};

/* A condition whose timeouts no change of the date touches. */
static int init_wake(pthread_cond_t *wake)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0)
        return -1;
    int status = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    if (status == 0)
        status = pthread_cond_init(wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return status;
}

static void free_memory(struct mailbox *m)
{
    admission_free(m->admission);
    free(m->served);
    free(m->tenants);
    free(m);
}

int mailbox_create(uint32_t max_choices, uint64_t max_tokens, uint32_t n_tenants, struct mailbox **out,
                   struct quire_error *err)
{
    struct mailbox *m = calloc(1, sizeof *m);
    if (!m)
        return quire_fail(err, QUIRE_NO_MEMORY, "mailbox: out of memory");
    m->tenants = calloc(1, sizeof *m->tenants + n_tenants * sizeof m->tenants->items[0]);
    m->served = calloc(1, sizeof *m->served);
    m->admission = admission_new(max_choices, max_tokens);
    if (!m->tenants || !m->served || !m->admission) {
        free_memory(m);
        return quire_fail(err, QUIRE_NO_MEMORY, "mailbox: out of memory");
    }
    if (pthread_mutex_init(&m->mutex, NULL) != 0) {
        free_memory(m);
        return quire_fail(err, QUIRE_INTERNAL, "mailbox: no mutex");
    }
    if (init_wake(&m->wake) != 0) {
        pthread_mutex_destroy(&m->mutex);
        free_memory(m);
        return quire_fail(err, QUIRE_INTERNAL, "mailbox: no condition");
    }
    m->submitted_end = &m->submitted;
    m->tenants->n = n_tenants;
    *out = m;
    return QUIRE_OK;
}

void mailbox_destroy(struct mailbox *m)
{
    if (!m)
        return;
    for (struct request *r = m->submitted, *next; r; r = next) {
        next = r->next;
        request_free(r);
    }
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->mutex);
    free_memory(m);
}

static struct request **bucket(struct mailbox *m, uint64_t id)
{
    return &m->live[(id * 0x9E3779B97F4A7C15u) >> 54];
}

static struct request *find(struct mailbox *m, uint64_t id)
{
    struct request *r = *bucket(m, id);
    while (r && r->engine_id != id)
        r = r->mail.next_live;
    return r;
}

/* ---- any thread -------------------------------------------------------------------------------- */

static struct admission_load load_of(const struct request *r)
{
    return (struct admission_load){.choices = r->spec->n, .tokens = r->spec->n_prompt};
}

/* Under the mutex. */
static int admit(const struct mailbox *m, const struct request *r, uint32_t *retry_after_ms, struct quire_error *err)
{
    if (m->death[0] || m->closing)
        return quire_fail(err, m->death[0] ? QUIRE_UNAVAILABLE : QUIRE_INTERNAL, "the engine has stopped: %s",
                          m->death[0] ? m->death : "it is being closed");
    if (m->draining) {
        *retry_after_ms = RETRY_DRAINING_MS;
        return quire_fail(err, QUIRE_EXHAUSTED, "the server is shutting down");
    }
    return admission_check(m->admission, load_of(r), retry_after_ms, err);
}

int mailbox_submit(struct mailbox *m, struct request *r, uint32_t *retry_after_ms, struct quire_error *err)
{
    pthread_mutex_lock(&m->mutex);
    int status = admit(m, r, retry_after_ms, err);
    if (status == QUIRE_OK && find(m, r->engine_id))
        status = quire_fail(err, QUIRE_INVALID, "id: %llu is in use", (unsigned long long)r->engine_id);
    if (status == QUIRE_OK) {
        struct request **head = bucket(m, r->engine_id);
        r->mail.next_live = *head;
        *head = r;
        r->next = NULL;
        r->mail.has_prediction = r->spec->n_prediction > 0;
        *m->submitted_end = r;
        m->submitted_end = &r->next;
        admission_accept(m->admission, load_of(r));
    }
    pthread_mutex_unlock(&m->mutex);
    if (status == QUIRE_OK)
        pthread_cond_signal(&m->wake); /* after the unlock, because the woken thread takes the mutex */
    return status;
}

void mailbox_cancel(struct mailbox *m, uint64_t id, uint32_t choice)
{
    pthread_mutex_lock(&m->mutex);
    struct request *r = find(m, id);
    if (r && (choice == MAILBOX_ALL_CHOICES || choice < r->spec->n)) {
        for (uint32_t i = 0; i < r->spec->n; i++)
            if (choice == MAILBOX_ALL_CHOICES || i == choice)
                r->choices[i].cancel_asked = true;
        if (!r->mail.in_cancels) {
            r->mail.in_cancels = true;
            r->mail.next_cancel = m->cancels;
            m->cancels = r;
        }
        pthread_cond_signal(&m->wake);
    }
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_predict(struct mailbox *m, uint64_t id, uint32_t *tokens, uint32_t n)
{
    pthread_mutex_lock(&m->mutex);
    struct request *r = find(m, id);
    const bool takes = r && !r->mail.has_prediction && n > 0;
    if (takes) {
        r->mail.has_prediction = true;
        r->mail.late_prediction = tokens;
        r->mail.n_late_prediction = n;
        r->mail.next_predicted = m->predicted;
        m->predicted = r;
        pthread_cond_signal(&m->wake);
    }
    pthread_mutex_unlock(&m->mutex);
    if (!takes)
        free(tokens);
}

void mailbox_report_hits(struct mailbox *m, const uint32_t *served, uint32_t n_served)
{
    pthread_mutex_lock(&m->mutex);
    for (uint32_t i = 0; i < n_served; i++, served += 3) {
        if ((served[0] | served[1]) == 0) /* nothing before it counts any more */
            m->served->n = 0;
        if (m->served->n < ENGINE_MAX_SERVED)
            memcpy(&m->served->ids[3 * (size_t)m->served->n++], served, 3 * sizeof *served);
    }
    if (m->served->n > 0)
        pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_refuse_new(struct mailbox *m)
{
    pthread_mutex_lock(&m->mutex);
    m->draining = true;
    pthread_mutex_unlock(&m->mutex);
    mailbox_no_more(m);
}

void mailbox_no_more(struct mailbox *m)
{
    pthread_mutex_lock(&m->mutex);
    m->orders.no_more = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->mutex);
}

/* Under the mutex. */
static uint64_t order_numbered(struct mailbox *m)
{
    pthread_cond_signal(&m->wake);
    return m->orders.number = ++m->n_orders;
}

uint64_t mailbox_set_policy(struct mailbox *m, const struct sched_policy *policy,
                            const struct sched_policy_options *options)
{
    pthread_mutex_lock(&m->mutex);
    m->orders.policy = policy;
    m->orders.options = *options;
    uint64_t number = order_numbered(m);
    pthread_mutex_unlock(&m->mutex);
    return number;
}

uint64_t mailbox_unpin(struct mailbox *m, uint32_t tenant)
{
    pthread_mutex_lock(&m->mutex);
    m->orders.unpin = true;
    if (tenant == MAILBOX_ALL_TENANTS)
        m->orders.unpin_all = true;
    else
        m->orders.unpin_tenants[tenant / 64] |= (uint64_t)1 << tenant % 64;
    uint64_t number = order_numbered(m);
    pthread_mutex_unlock(&m->mutex);
    return number;
}

void mailbox_wake(struct mailbox *m)
{
    pthread_mutex_lock(&m->mutex);
    m->woken = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_close(struct mailbox *m)
{
    pthread_mutex_lock(&m->mutex);
    m->closing = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_stats(struct mailbox *m, struct engine_stats *out)
{
    pthread_mutex_lock(&m->mutex);
    const struct admission_load more = admission_unreported(m->admission);
    *out = m->stats;
    out->n_waiting += (uint32_t)more.choices;
    out->n_waiting_tokens += more.tokens;
    out->draining = m->draining;
    out->dead = m->death[0] != 0;
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_tenant_stats(struct mailbox *m, uint32_t tenant, struct sched_tenant_stats *out)
{
    pthread_mutex_lock(&m->mutex);
    *out = m->tenants->items[tenant];
    pthread_mutex_unlock(&m->mutex);
}

uint64_t mailbox_next_number(struct mailbox *m)
{
    pthread_mutex_lock(&m->mutex);
    uint64_t number = admission_next_number(m->admission);
    pthread_mutex_unlock(&m->mutex);
    return number;
}

/* ---- the engine thread ----------------------------------------------------------------------- */

static bool has_mail(const struct mailbox *m)
{
    const bool has_orders = m->orders.number || m->orders.no_more;
    return m->submitted || m->predicted || m->cancels || m->served->n > 0 || has_orders || m->closing || m->woken;
}

/* Under the mutex. */
static void sleep_until(struct mailbox *m, uint64_t until_us)
{
    const struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                                   .tv_nsec = (long)(until_us % 1000000) * 1000};
    if (until_us == MAILBOX_FOREVER)
        while (!has_mail(m))
            pthread_cond_wait(&m->wake, &m->mutex);
    else
        while (!has_mail(m) && pthread_cond_timedwait(&m->wake, &m->mutex, &until) == 0) {
        }
}

void mailbox_drain(struct mailbox *m, uint64_t until_us, struct mailbox_mail *out)
{
    pthread_mutex_lock(&m->mutex);
    if (until_us > 0)
        sleep_until(m, until_us);
    out->submitted = m->submitted;
    out->cancels = NULL;
    out->closing = m->closing;
    m->woken = false;
    out->orders = m->orders;
    m->orders = (struct mailbox_orders){0};
    m->submitted = NULL;
    m->submitted_end = &m->submitted;
    admission_drained(m->admission);
    /* The list is copied, because a cancel may link a request again while the engine walks the list. */
    for (struct request *r = m->cancels; r; r = r->mail.next_cancel) {
        r->mail.in_cancels = false;
        r->next_to_end = out->cancels;
        out->cancels = r;
        for (uint32_t i = 0; i < r->spec->n; i++) {
            r->choices[i].cancel_now |= r->choices[i].cancel_asked;
            r->choices[i].cancel_asked = false;
        }
    }
    m->cancels = NULL;
    out->predicted = m->predicted;
    m->predicted = NULL;
    memcpy(m->served->drained, m->served->ids, 3 * m->served->n * sizeof m->served->ids[0]);
    out->served = m->served->drained;
    out->n_served = m->served->n;
    m->served->n = 0;
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_publish(struct mailbox *m, const struct mailbox_report *report)
{
    pthread_mutex_lock(&m->mutex);
    m->stats = report->stats;
    admission_report(m->admission,
                     &(struct admission_report){.waiting = {report->stats.n_waiting, report->stats.n_waiting_tokens},
                                                .busy_us = report->busy_us,
                                                .n_tokens = report->n_tokens,
                                                .n_finished = report->n_finished});
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_publish_tenants(struct mailbox *m, const struct sched_tenant_stats *tenants)
{
    pthread_mutex_lock(&m->mutex);
    memcpy(m->tenants->items, tenants, m->tenants->n * sizeof *tenants);
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_forget(struct mailbox *m, struct request *r)
{
    pthread_mutex_lock(&m->mutex);
    struct request **at = bucket(m, r->engine_id);
    while (*at && *at != r)
        at = &(*at)->mail.next_live;
    if (*at)
        *at = r->mail.next_live;
    if (r->mail.in_cancels) {
        for (at = &m->cancels; *at && *at != r;)
            at = &(*at)->mail.next_cancel;
        if (*at)
            *at = r->mail.next_cancel;
        r->mail.in_cancels = false;
    }
    for (at = &m->predicted; *at && *at != r;)
        at = &(*at)->mail.next_predicted;
    if (*at)
        *at = r->mail.next_predicted;
    pthread_mutex_unlock(&m->mutex);
}

void mailbox_die(struct mailbox *m, const char *reason)
{
    pthread_mutex_lock(&m->mutex);
    snprintf(m->death, sizeof m->death, "%s", reason[0] ? reason : "unknown error");
    pthread_mutex_unlock(&m->mutex);
}

struct request *mailbox_any_live(struct mailbox *m)
{
    struct request *r = NULL;
    pthread_mutex_lock(&m->mutex);
    for (uint32_t i = 0; i < BUCKETS && !r; i++)
        r = m->live[i];
    pthread_mutex_unlock(&m->mutex);
    return r;
}
