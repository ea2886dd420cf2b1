#include "app/watch/timeline.h"

#include "app/watch/timeline_keep.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (1u << 20)
#define EVENT_BYTES 512u /* more than the longest event */
#define WRITE_AT_BYTES 65536u
#define WRITE_EVERY_US 100000u
#define ENGINE_PID 1
#define REQUESTS_PID 2
#define STEPS_TID 1

/* A choice, by the scheduler's name. */
struct track {
    bool lives, waits;
    uint64_t tid;
    uint64_t waits_since; /* arrival, or its preemption */
    uint64_t end_us;      /* end of its last slice: slices of a track never overlap */
    uint32_t n_prompt;
    uint32_t n_computed;  /* highest number of positions so far */
    uint64_t decode_us;   /* launch of the first token after the prompt's; 0: not decoding */
    uint32_t n_decoded;
};

struct timeline {
    struct engine_watch watch;
    char *path;
    int fd;
    bool ended;
    uint64_t base_us, now_us; /* the latest time seen */
    uint64_t written_us;      /* when the buffer was last written */
    uint64_t step_end_us;
    uint64_t n_left_out;
    uint32_t n_groups;
    struct track *tracks;
    uint32_t n_tracks, n_live;
    size_t n;
    char bytes[BUFFER_BYTES];
};

/* ---- events ---------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void emit(struct timeline *t, const char *format, ...)
{
    va_list arguments;
    if (t->ended)
        return;
    if (sizeof t->bytes - t->n < EVENT_BYTES) {
        t->n_left_out++;
        return;
    }
    va_start(arguments, format);
    int n = vsnprintf(t->bytes + t->n, EVENT_BYTES, format, arguments);
    va_end(arguments);
    t->n += (size_t)n;
}

static long long since_base(const struct timeline *t, uint64_t us)
{
    return us > t->base_us ? (long long)(us - t->base_us) : 0;
}

/* One write; the rest stays in the buffer. */
static void write_out(struct timeline *t)
{
    if (t->ended || t->n == 0)
        return;
    ssize_t n = write(t->fd, t->bytes, t->n);
    t->written_us = t->now_us;
    if (n > 0) {
        t->n -= (size_t)n;
        memmove(t->bytes, t->bytes + n, t->n);
    } else if (n < 0 && errno != EINTR) {
        quire_log(QUIRE_LOG_ERROR, "trace", "%s: %s; the trace ends here, the engine continues", t->path,
                  strerror(errno));
        t->ended = true;
    }
}

static void slice(struct timeline *t, struct track *q, const char *name, uint64_t from_us, uint64_t to_us,
                  const char *args)
{
    if (from_us < q->end_us)
        from_us = q->end_us;
    if (to_us < from_us)
        to_us = from_us;
    q->end_us = to_us;
    emit(t, ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%llu,\"ts\":%lld,\"dur\":%lld,\"args\":{%s}}", name,
         REQUESTS_PID, (unsigned long long)q->tid, since_base(t, from_us),
         since_base(t, to_us) - since_base(t, from_us), args);
}

static void instant(struct timeline *t, const struct track *q, const char *name, uint64_t at_us)
{
    emit(t, ",\n{\"name\":\"%s\",\"ph\":\"i\",\"s\":\"t\",\"pid\":%d,\"tid\":%llu,\"ts\":%lld}", name, REQUESTS_PID,
         (unsigned long long)q->tid, since_base(t, at_us));
}

static void name_track(struct timeline *t, uint64_t tid, uint64_t request, uint32_t choice)
{
    char suffix[32] = "";
    if (choice > 0)
        snprintf(suffix, sizeof suffix, " choice %u", choice);
    emit(t, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%llu,\"args\":{\"name\":\"request %llu%s\"}}",
         REQUESTS_PID, (unsigned long long)tid, (unsigned long long)request, suffix);
}

/* ---- a choice's life ------------------------------------------------------------------------- */

static struct track *track_of(struct timeline *t, uint32_t seq)
{
    return seq < t->n_tracks && t->tracks[seq].lives ? &t->tracks[seq] : NULL;
}

static struct track *new_track(struct timeline *t, uint32_t seq)
{
    if (seq >= t->n_tracks) {
        uint32_t n = 2 * (seq + 1);
        struct track *tracks = realloc(t->tracks, n * sizeof *tracks);
        if (!tracks)
            return NULL;
        memset(tracks + t->n_tracks, 0, (n - t->n_tracks) * sizeof *tracks);
        t->tracks = tracks;
        t->n_tracks = n;
    }
    return &t->tracks[seq];
}

static void end_queued(struct timeline *t, struct track *q, uint64_t at_us)
{
    if (q->waits)
        slice(t, q, "queued", q->waits_since, at_us, "");
    q->waits = false;
}

static void end_decode(struct timeline *t, struct track *q, uint64_t at_us)
{
    char args[32];
    if (q->decode_us == 0)
        return;
    snprintf(args, sizeof args, "\"tokens\":%u", q->n_decoded);
    slice(t, q, "decode", q->decode_us, at_us, args);
    q->decode_us = 0;
    q->n_decoded = 0;
}

static void see_time(struct timeline *t, uint64_t us)
{
    if (us > t->now_us)
        t->now_us = us;
}

static void on_submitted(void *context, const struct engine_watch_submit *s)
{
    struct timeline *t = context;
    const struct sched_request *r = s->sched;
    uint64_t tid = r->id * 128 + 1;
    see_time(t, r->arrival_us);
    if (s->status != QUIRE_OK) {
        name_track(t, tid, s->request, 0);
        instant(t, &(struct track){.tid = tid}, "refused", r->arrival_us);
        return;
    }
    for (uint32_t i = 0; i < r->n; i++) {
        struct track *q = new_track(t, s->seqs[i]);
        if (!q)
            continue;
        *q = (struct track){
            .lives = true, .waits = true, .tid = tid + i, .waits_since = r->arrival_us, .n_prompt = r->n_prompt};
        t->n_live++;
        name_track(t, q->tid, s->request, i);
    }
}

static void on_retired(void *context, uint32_t seq)
{
    struct timeline *t = context;
    struct track *q = track_of(t, seq);
    if (!q)
        return;
    end_queued(t, q, t->now_us);
    end_decode(t, q, t->now_us);
    q->lives = false;
    if (--t->n_live == 0)
        write_out(t);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void count(struct timeline *t, uint64_t now_us, const struct sched *sched)
{
    struct sched_stats s = sched_stats(sched);
    long long ts = since_base(t, now_us);
    emit(t, ",\n{\"name\":\"sequences\",\"ph\":\"C\",\"pid\":%d,\"ts\":%lld,\"args\":{\"running\":%u,\"waiting\":%u}}",
         ENGINE_PID, ts, s.n_running, s.n_waiting);
    for (uint32_t g = 0; g < t->n_groups; g++) {
        struct kv_usage usage = sched_kv_usage(sched, g);
        emit(t, ",\n{\"name\":\"KV blocks, group %u\",\"ph\":\"C\",\"pid\":%d,\"ts\":%lld,\"args\":{\"used\":%u}}", g,
             ENGINE_PID, ts, usage.n_blocks - usage.n_free);
    }
}

static void on_planned(void *context, uint64_t now_us, const struct sched_plan *plan, const struct sched *sched)
{
    struct timeline *t = context;
    see_time(t, now_us);
    for (uint32_t i = 0; i < plan->n_preempted; i++) {
        struct track *q = track_of(t, plan->preempted[i]);
        if (!q)
            continue;
        end_decode(t, q, now_us);
        instant(t, q, "preempted", now_us);
        q->waits = true;
        q->waits_since = now_us;
    }
    for (uint32_t i = 0; i < plan->n_admitted; i++) {
        struct track *q = track_of(t, plan->admitted[i]);
        if (q)
            end_queued(t, q, now_us);
    }
    for (uint32_t i = 0; i < plan->n_refused; i++) {
        struct track *q = track_of(t, plan->refused[i].seq);
        if (!q)
            continue;
        end_queued(t, q, now_us);
        instant(t, q, "refused", now_us);
    }
    if (plan->n_rows > 0)
        count(t, now_us, sched);
}

/* A row with drafts and its result; NULL: its sequence was over. */
static void on_verified(struct timeline *t, struct track *q, const struct sched_row *row,
                        const struct sched_result *result, uint64_t from_us, uint64_t to_us)
{
    char args[96];
    uint32_t n_accepted = result ? result->n_accepted : 0;
    end_decode(t, q, from_us);
    snprintf(args, sizeof args, "\"first\":%u,\"drafts\":%u,\"accepted\":%u,\"tokens\":%u", row->first, row->n_draft,
             n_accepted, result ? n_accepted + 1 : 0);
    slice(t, q, "verify", from_us, to_us, args);
}

static void on_row(struct timeline *t, const struct sched_row *row, const struct sched_result *result, uint64_t from_us,
                   uint64_t to_us)
{
    char args[64];
    struct track *q = track_of(t, row->seq);
    uint32_t known = row->count - row->n_draft, end = row->first + known;
    if (!q)
        return;
    if (row->n_draft > 0) {
        on_verified(t, q, row, result, from_us, to_us);
        end += result ? result->n_accepted : 0;
    } else if (row->outputs.tokens && known == 1 && row->first >= q->n_prompt && end > q->n_computed) {
        if (q->decode_us == 0)
            q->decode_us = from_us;
        q->n_decoded++;
    } else {
        end_decode(t, q, from_us);
        snprintf(args, sizeof args, "\"first\":%u,\"tokens\":%u", row->first, known);
        slice(t, q, row->first < q->n_computed ? "recompute" : "prefill", from_us, to_us, args);
    }
    if (end > q->n_computed)
        q->n_computed = end;
}

/* For the next planned step. */
static void on_lengths_chosen(void *context, const struct length_reason *r)
{
    struct timeline *t = context;
    emit(
        t,
        ",\n{\"name\":\"drafts\",\"ph\":\"i\",\"s\":\"t\",\"pid\":%d,\"tid\":%d,\"ts\":%lld,\"args\":{\"running\":%u,"
        "\"with drafts\":%u,\"offered\":%u,\"chosen\":%u,\"expected right\":%.2f,\"us without\":%.0f,\"us with\":%.0f}}",
        ENGINE_PID, STEPS_TID, since_base(t, t->now_us), r->n_rows, r->n_items, r->n_offered, r->n_chosen, r->n_right,
        r->us_without, r->us_with);
}

static void on_gated(void *context, uint32_t seq, bool gated)
{
    struct timeline *t = context;
    const struct track *q = track_of(t, seq);
    if (q)
        instant(t, q, gated ? "drafts" : "no drafts", t->now_us);
}

/* Results are in the order of the rows; those of ended sequences may be missing. */
static void on_rows(struct timeline *t, const struct engine_watch_commit *c, uint64_t from_us, uint64_t to_us)
{
    const struct sched_plan *p = c->plan;
    for (uint32_t i = 0, n = 0; i < p->n_rows; i++) {
        bool has_result = n < c->n_results && c->results[n].seq == p->rows[i].seq;
        on_row(t, &p->rows[i], has_result ? &c->results[n] : NULL, from_us, to_us);
        n += has_result;
    }
}

static void on_committed(void *context, const struct engine_watch_commit *c)
{
    struct timeline *t = context;
    uint64_t from_us = c->launched_us > t->step_end_us ? c->launched_us : t->step_end_us;
    uint64_t to_us = c->done_us > from_us ? c->done_us : from_us;
    const struct sched_plan *p = c->plan;
    uint32_t n_drafts = 0, n_accepted = 0;
    for (uint32_t i = 0; i < p->n_rows; i++)
        n_drafts += p->rows[i].n_draft;
    for (uint32_t i = 0; i < c->n_results; i++)
        n_accepted += c->results[i].n_accepted;
    see_time(t, to_us);
    t->step_end_us = to_us;
    emit(t,
         ",\n{\"name\":\"step\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%lld,\"dur\":%lld,\"args\":{\"step\":%llu,"
         "\"tokens\":%u,\"rows\":%u,\"logits\":%u,\"drafts\":%u,\"accepted\":%u,\"budget\":%u,\"copies\":%u,"
         "\"results\":%u}}",
         ENGINE_PID, STEPS_TID, since_base(t, from_us), since_base(t, to_us) - since_base(t, from_us),
         (unsigned long long)p->step, p->n_tokens, p->n_rows, p->n_logits, n_drafts, n_accepted, p->token_budget,
         p->n_moves, c->n_results);
    on_rows(t, c, from_us, to_us);
    if (t->n >= WRITE_AT_BYTES || t->now_us - t->written_us >= WRITE_EVERY_US)
        write_out(t);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void on_opened(void *context, const struct engine_info *info, const struct sched_config *config)
{
    struct timeline *t = context;
    (void)info;
    t->n_groups = config->kv.n_groups;
}

static void begin_array(struct timeline *t)
{
    emit(t, TIMELINE_BEGIN "\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"engine\"}}", ENGINE_PID);
    emit(t, ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":\"requests\"}}",
         REQUESTS_PID);
    emit(t, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"steps\"}}",
         ENGINE_PID, STEPS_TID);
    write_out(t);
}

/* A trace that cannot be kept is overwritten. */
static void keep_last(const char *path)
{
    struct quire_error err;
    bool kept;
    if (timeline_keep(path, &kept, &err) != QUIRE_OK)
        quire_log(QUIRE_LOG_WARN, "trace", "%s", err.text);
    else if (kept)
        quire_log(QUIRE_LOG_INFO, "trace", "%s: the last process did not close it; it is now %s.unfinished", path,
                  path);
}

int timeline_open(const char *path, struct timeline **out, struct quire_error *err)
{
    *out = NULL;
    keep_last(path);
    struct timeline *t = calloc(1, sizeof *t);
    char *copy = strdup(path);
    if (!t || !copy) {
        free(t);
        free(copy);
        return quire_fail(err, QUIRE_NO_MEMORY, "trace: out of memory");
    }
    t->path = copy;
    t->watch = (struct engine_watch){
        .context = t,
        .opened = on_opened,
        .submitted = on_submitted,
        .lengths_chosen = on_lengths_chosen,
        .gated = on_gated,
        .planned = on_planned,
        .committed = on_committed,
        .retired = on_retired,
    };
    t->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (t->fd < 0) {
        int status = quire_fail(err, QUIRE_IO, "--trace-file %s: cannot be created: %s", path, strerror(errno));
        free(t->path);
        free(t);
        return status;
    }
    t->base_us = t->now_us = quire_now_us();
    begin_array(t);
    *out = t;
    return QUIRE_OK;
}

const struct engine_watch *timeline_watch(struct timeline *t)
{
    return &t->watch;
}

static void drain(struct timeline *t)
{
    while (t->n > 0 && !t->ended)
        write_out(t);
}

void timeline_close(struct timeline *t)
{
    if (!t)
        return;
    t->now_us = quire_now_us();
    for (uint32_t i = 0; i < t->n_tracks; i++)
        if (t->tracks[i].lives)
            on_retired(t, i);
    if (t->n_left_out)
        quire_log(QUIRE_LOG_WARN, "trace", "%s: %llu events were dropped because the disk was too slow", t->path,
                  (unsigned long long)t->n_left_out);
    drain(t);
    emit(t, "\n]\n");
    drain(t);
    close(t->fd);
    free(t->tracks);
    free(t->path);
    free(t);
}
