#include "server/front/finished/finished.h"

#include "server/front/front_internal.h"

static void count(const struct finished_request *f)
{
    struct metrics *m = f->spec->background ? f->served->background : f->served->counts;
    histogram_observe(&m->e2e, (double)(f->timing->now_us - f->timing->arrived_us) * 1e-6);
    histogram_observe(&m->n, f->spec->n);
    histogram_observe(&m->most_tokens, (double)f->n_most);
}

void finished_request_say(struct finished_request *f)
{
    const struct front *front = f->served->front;
    const bool traces = front->otlp != NULL;
    if (!f->error && f->status == 200)
        count(f);
    if (traces && !f->context->trace_id[0]) {
        trace_random_id(f->context->trace_id, 16);
        f->context->sampled = true;
    }
    if (front->log_requests)
        finished_request_log(f);
    if (traces && f->context->sampled)
        finished_request_send_spans(f);
}
