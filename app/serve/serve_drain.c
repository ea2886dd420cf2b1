#include "app/serve/serve_drain.h"

#include "app/serving/notify.h"
#include "server/bulk/bulk.h"
#include "server/front/front.h"

static void on_front_idle(void *context)
{
    event_base_loopbreak(((struct serve *)context)->base);
}

static void on_drain(void *context)
{
    struct serve *s = context;
    s->draining = true;
    notify_stopping();
    warming_stop(s->warming);
    s->n_unfinished = bulk_stop(s->bulk);
    front_drain(s->front, on_front_idle, s);
}

static void on_give_up(void *context)
{
    front_cancel(((struct serve *)context)->front);
}

int serve_drain_begin(struct serve *s, struct quire_error *err)
{
    const struct serving_drain drain = {on_drain, on_give_up, s, s->flags->says->shutdown_timeout_s};
    return serving_signals_begin(s->base, &drain, &s->signals, err);
}
