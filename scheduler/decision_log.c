#include "scheduler/decision_log.h"

#include "base/encoding/little_endian.h"

/* Buffers bytes for the hash, whose cost per call is small for large pieces. */
struct pieces {
    struct quire_sha256_state *state;
    size_t n;
    uint8_t bytes[1024];
};

static void put_u32(struct pieces *p, uint32_t value)
{
    if (p->n + 4 > sizeof p->bytes) {
        quire_sha256_add(p->state, p->bytes, p->n);
        p->n = 0;
    }
    le_store_u32(p->bytes + p->n, value);
    p->n += 4;
}

static void put_u64(struct pieces *p, uint64_t value)
{
    put_u32(p, (uint32_t)value);
    put_u32(p, (uint32_t)(value >> 32));
}

static void put_seqs(struct pieces *p, const uint32_t *seqs, uint32_t n)
{
    put_u32(p, n);
    for (uint32_t i = 0; i < n; i++)
        put_u32(p, seqs[i]);
}

static void put_rows(struct pieces *p, const struct sched_plan *plan)
{
    put_u32(p, plan->n_rows);
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct sched_row *row = &plan->rows[i];
        put_u32(p, row->seq);
        put_u32(p, row->first);
        put_u32(p, row->count);
        put_u32(p, row->first_logit);
        put_u32(p, row->outputs.tokens | (uint32_t)row->outputs.vector << 1 | row->n_draft << 8);
        put_u32(p, row->adapter);
    }
}

static void put_moves(struct pieces *p, const struct sched_plan *plan)
{
    put_u32(p, plan->n_moves);
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        const struct kv_move *move = &plan->moves[i];
        put_u32(p, move->group);
        put_u32(p, move->device_block);
        put_u32(p, move->host_block);
        put_u32(p, move->to_host);
    }
}

void decision_log_begin(struct decision_log *log)
{
    quire_sha256_begin(&log->state);
}

void decision_log_add(struct decision_log *log, uint64_t now_us, const struct sched_plan *plan)
{
    struct pieces p;
    p.state = &log->state;
    p.n = 0;
    put_u64(&p, now_us);
    put_u64(&p, plan->step);
    put_u32(&p, plan->token_budget);
    put_rows(&p, plan);
    put_seqs(&p, plan->preempted, plan->n_preempted);
    put_seqs(&p, plan->admitted, plan->n_admitted);
    put_u32(&p, plan->n_refused);
    for (uint32_t i = 0; i < plan->n_refused; i++) {
        put_u32(&p, plan->refused[i].seq);
        put_u64(&p, plan->refused[i].retry_us);
    }
    put_moves(&p, plan);
    quire_sha256_add(&log->state, p.bytes, p.n);
}

struct key256 decision_log_now(const struct decision_log *log)
{
    return quire_sha256_now(&log->state);
}
