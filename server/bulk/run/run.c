#include "server/bulk/run/run.h"

#include "base/clock.h"
#include "server/bulk/run/sending.h"

#include <stdlib.h>
#include <string.h>

#define QUICK_LINES 64 /* lines without a request in one turn of the loop: others have their turn */
#define FULL_MS 100 /* between two looks at results that wait for the disk */
#define SHORT_MS 1000 /* before memory is tried again */
#define US_PER_MINUTE UINT64_C(60000000)

struct bulk_run {
    struct bulk_run_options options;
    const uint32_t *order; /* NULL: the input's */
    uint32_t n_lines, next, limit, n_running;
    struct sending **all, **idle; /* [max_concurrent] */
    uint32_t n_all, n_idle;
    struct sending *skipping; /* reads lines that do not run */
    struct event *pump;
    uint64_t begins_us; /* when the rate allows the next request */
    bool is_ending, is_over;
    enum bulk_outcome outcome; /* the outcome of lines that do not run */
    struct buffer text; /* of one result */
};

static void pump_in(struct bulk_run *r, uint64_t ms)
{
    const struct timeval tv = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
    if (ms == 0)
        event_active(r->pump, EV_TIMEOUT, 0);
    else
        event_add(r->pump, &tv);
}

/* ---- results -------------------------------------------------------------------------------- */

/* Stores r->text. Returns false if memory is short. */
static bool put(struct bulk_run *r, uint32_t line, enum bulk_outcome outcome, const struct bulk_tokens *tokens)
{
    struct quire_error err;
    if (r->text.failed || bulk_results_put(r->options.results, line, outcome, r->text.data, r->text.n, tokens, &err))
        return false;
    if (r->options.on_result)
        r->options.on_result(r->options.context);
    return true;
}

static void done(void *context, struct sending *s)
{
    struct bulk_run *r = context;
    struct bulk_tokens tokens;
    buffer_clear(&r->text);
    const enum bulk_outcome outcome = sending_result(s, &r->text, &tokens);
    if (!put(r, sending_line(s), outcome, &tokens)) {
        sending_hold(s);
        return;
    }
    r->idle[r->n_idle++] = s;
    r->n_running--;
    pump_in(r, 0);
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Returns how long the rate holds back the next request. */
static uint64_t wait_ms(const struct bulk_run *r, uint64_t now_us)
{
    return r->options.per_minute && r->begins_us > now_us ? (r->begins_us - now_us) / 1000 + 1 : 0;
}

static void count_rate(struct bulk_run *r, uint64_t now_us)
{
    if (!r->options.per_minute)
        return;
    if (r->begins_us < now_us)
        r->begins_us = now_us;
    r->begins_us += US_PER_MINUTE / r->options.per_minute;
}

static struct sending *take_sending(struct bulk_run *r, struct quire_error *err)
{
    if (r->n_idle == 0 && sending_open(&r->options, done, r, &r->all[r->n_all], err) == QUIRE_OK)
        r->idle[r->n_idle++] = r->all[r->n_all++];
    return r->n_idle ? r->idle[--r->n_idle] : NULL;
}

enum step {
    STEP_SENT,
    STEP_QUICK, /* the line has its result */
    STEP_SHORT, /* of memory */
};

static enum step begin_line(struct bulk_run *r, uint32_t line)
{
    struct quire_error err;
    struct sending *s = take_sending(r, &err);
    if (!s)
        return STEP_SHORT;
    const int status = sending_begin(s, line, &err);
    if (status == QUIRE_OK) {
        r->n_running++;
        return STEP_SENT;
    }
    r->idle[r->n_idle++] = s;
    if (status == QUIRE_NO_MEMORY)
        return STEP_SHORT;
    buffer_clear(&r->text);
    sending_refuse(s, err.text, &r->text);
    return put(r, line, BULK_ERRORED, NULL) ? STEP_QUICK : STEP_SHORT;
}

static enum step skip_line(struct bulk_run *r, uint32_t line)
{
    buffer_clear(&r->text);
    sending_skip(r->skipping, line, r->outcome, &r->text);
    return put(r, line, r->outcome, NULL) ? STEP_QUICK : STEP_SHORT;
}

/* Whether the next line may be taken now; if not, and nothing else would wake the run, a time is set. */
static bool may_take(struct bulk_run *r, unsigned n_quick)
{
    uint64_t ms = 0;
    if (bulk_results_is_full(r->options.results))
        ms = FULL_MS;
    else if (n_quick == QUICK_LINES)
        ms = 0;
    else if (r->is_ending)
        return true;
    else if (r->n_running >= r->limit)
        return false;
    else if ((ms = wait_ms(r, quire_now_us())) == 0)
        return true;
    pump_in(r, ms);
    return false;
}

static void on_pump(evutil_socket_t fd, short what, void *context)
{
    struct bulk_run *r = context;
    unsigned n_quick = 0;
    (void)fd;
    (void)what;
    while (r->next < r->n_lines) {
        const uint32_t line = r->order ? r->order[r->next] : r->next;
        if (bulk_results_has(r->options.results, line)) {
            r->next++;
            continue;
        }
        if (!may_take(r, n_quick))
            return;
        const enum step step = r->is_ending ? skip_line(r, line) : begin_line(r, line);
        if (step == STEP_SHORT) {
            pump_in(r, SHORT_MS);
            return;
        }
        n_quick += step == STEP_QUICK;
        if (step == STEP_SENT)
            count_rate(r, quire_now_us());
        r->next++;
    }
    if (r->n_running > 0 || r->is_over)
        return;
    r->is_over = true;
    r->options.on_end(r->options.context);
}

/* ---- opening -------------------------------------------------------------------------------- */

int bulk_run_begin(const struct bulk_run_options *o, struct bulk_run **out, struct quire_error *err)
{
    *out = NULL;
    if (o->max_concurrent == 0 || o->max_concurrent > BULK_RUN_MAX_CONCURRENT || o->n_headers > BULK_RUN_MAX_HEADERS ||
        strlen(o->id) > BULK_RUN_MAX_ID || (o->base_url && strlen(o->base_url) > BULK_RUN_MAX_BASE_URL))
        return quire_fail(err, QUIRE_INTERNAL, "a batch's options are out of range");
    struct bulk_run *r = calloc(1, sizeof *r);
    if (!r)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    r->options = *o;
    r->n_lines = bulk_input_lines(o->input);
    r->order = o->ordered ? bulk_input_order(o->input) : NULL;
    r->limit = o->max_concurrent;
    r->all = calloc(o->max_concurrent, sizeof(struct sending *));
    r->idle = calloc(o->max_concurrent, sizeof(struct sending *));
    r->pump = evtimer_new(o->base, on_pump, r);
    int status = r->all && r->idle && r->pump ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK)
        status = sending_open(&r->options, done, r, &r->skipping, err);
    if (status != QUIRE_OK) {
        bulk_run_free(r);
        return status;
    }
    pump_in(r, 0);
    *out = r;
    return QUIRE_OK;
}

void bulk_run_limit(struct bulk_run *r, uint32_t max_concurrent)
{
    r->limit = max_concurrent < r->options.max_concurrent ? max_concurrent : r->options.max_concurrent;
    pump_in(r, 0);
}

/* The lines that ran have no result: the next turn finds them again. */
void bulk_run_end(struct bulk_run *r, enum bulk_outcome outcome)
{
    r->is_ending = true;
    r->outcome = outcome;
    r->n_idle = 0;
    for (uint32_t i = 0; i < r->n_all; i++) {
        sending_cancel(r->all[i]);
        r->idle[r->n_idle++] = r->all[i];
    }
    r->n_running = r->next = 0;
    pump_in(r, 0);
}

void bulk_run_free(struct bulk_run *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < r->n_all; i++)
        sending_close(r->all[i]);
    sending_close(r->skipping);
    if (r->pump)
        event_free(r->pump);
    free(r->all);
    free(r->idle);
    buffer_free(&r->text);
    free(r);
}

uint32_t bulk_run_running(const struct bulk_run *r)
{
    return r->n_running;
}
