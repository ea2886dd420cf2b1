#include "app/bulk/job.h"

#include "app/command/progress.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/bulk/run/run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LINES 100000000u
#define DRAW_MS 200
#define RETRY_MS 1000 /* pause before another try when the disk is full at the end */

enum end { RUNNING, DONE, INTERRUPTED };

struct job {
    struct job_options options;
    enum bulk_dialect dialect;
    struct bulk_input *input;
    struct bulk_results *results;
    struct bulk_run *run;
    struct bulk_counts before; /* of earlier runs */
    struct bench_progress progress;
    struct event *interrupt, *terminate, *draw, *retry;
    enum end end;
    double began, ended;
};

/* ---- opening -------------------------------------------------------------------------------- */

/* Lines with "params" are Anthropic's. */
static bool is_anthropic(const struct bulk_input *in)
{
    struct buffer text = {0};
    struct bulk_line line;
    struct quire_error err;
    bulk_input_read(in, 0, &text, &line, &err);
    const bool is = text.data && bulk_line_read(text.data, text.n, BULK_ANTHROPIC, NULL, &line, &err) == QUIRE_OK;
    buffer_free(&text);
    return is;
}

static int open_input(struct job *j, struct quire_error *err)
{
    int status = bulk_input_open(j->options.input, BULK_OPENAI, NULL, MAX_LINES, &j->input, err);
    if (status == QUIRE_OK && is_anthropic(j->input)) {
        bulk_input_close(j->input);
        j->dialect = BULK_ANTHROPIC;
        status = bulk_input_open(j->options.input, BULK_ANTHROPIC, NULL, MAX_LINES, &j->input, err);
    }
    if (status != QUIRE_OK)
        quire_error_prefix(err, "%s", j->options.input);
    return status;
}

int job_open(const struct job_options *options, struct job **out, struct quire_error *err)
{
    struct job *j = calloc(1, sizeof *j);
    *out = NULL;
    if (!j)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    j->options = *options;
    int status = open_input(j, err);
    if (status == QUIRE_OK) {
        const uint64_t digest = bulk_input_digest(j->input) * 31 + place_identity(options->place);
        status = bulk_results_open(options->state, digest, bulk_input_lines(j->input), &j->results, err);
        if (status == QUIRE_INVALID)
            quire_error_prefix(err, "the state of an earlier run does not fit this input, model and options");
    }
    if (status != QUIRE_OK) {
        job_close(j, false);
        return status;
    }
    bulk_results_count(j->results, &j->before);
    *out = j;
    return QUIRE_OK;
}

void job_close(struct job *j, bool is_done)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    char path[4096];
    if (!j)
        return;
    bulk_results_close(j->results);
    bulk_input_close(j->input);
    for (size_t i = 0; i < 3 && is_done; i++)
        if (snprintf(path, sizeof path, "%s%s", j->options.state, ends[i]) < (int)sizeof path)
            unlink(path);
    free(j);
}

/* ---- running -------------------------------------------------------------------------------- */

static void stop(struct job *j, enum end end)
{
    j->end = end;
    event_base_loopbreak(place_base(j->options.place));
}

static void add_timer(struct event *timer, uint32_t ms)
{
    const struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_add(timer, &tv);
}

/* The results wait for the disk as long as it takes. */
static void on_retry(evutil_socket_t fd, short what, void *context)
{
    struct job *j = context;
    struct quire_error err;
    (void)fd;
    (void)what;
    if (bulk_results_flush(j->results, &err) == QUIRE_OK)
        stop(j, DONE);
    else
        add_timer(j->retry, RETRY_MS);
}

static void on_end(void *context)
{
    on_retry(-1, 0, context);
}

static void on_signal(evutil_socket_t number, short what, void *context)
{
    (void)number;
    (void)what;
    stop(context, INTERRUPTED);
}

static void on_draw(evutil_socket_t fd, short what, void *context)
{
    struct job *j = context;
    struct bulk_counts c;
    const double past = quire_now_s() - j->began;
    (void)fd;
    (void)what;
    bulk_results_count(j->results, &c);
    const uint64_t n = c.input_tokens + c.output_tokens - j->before.input_tokens - j->before.output_tokens;
    snprintf(j->progress.note, sizeof j->progress.note, "%.0f tokens/s", (double)n / (past > 0 ? past : 1));
    bench_progress_set(&j->progress, c.n_done);
    add_timer(j->draw, DRAW_MS);
}

static int begin(struct job *j, struct quire_error *err)
{
    struct place *place = j->options.place;
    struct event_base *base = place_base(place);
    struct bulk_run_options o = {
        .base = base,
        .remote = place_remote(place),
        .socket = place_socket(place),
        .base_url = place_url(place),
        .dialect = j->dialect,
        .id = "batch_req",
        .input = j->input,
        .results = j->results,
        .max_concurrent = place_concurrency(place, j->options.concurrency),
        .ordered = true,
        .on_end = on_end,
        .context = j,
    };
    o.headers = place_headers(place, &o.n_headers);
    if (o.max_concurrent > BULK_RUN_MAX_CONCURRENT)
        o.max_concurrent = BULK_RUN_MAX_CONCURRENT;
    j->interrupt = evsignal_new(base, SIGINT, on_signal, j);
    j->terminate = evsignal_new(base, SIGTERM, on_signal, j);
    j->draw = evtimer_new(base, on_draw, j);
    j->retry = evtimer_new(base, on_retry, j);
    if (!j->interrupt || !j->terminate || !j->draw || !j->retry || evsignal_add(j->interrupt, NULL) != 0 ||
        evsignal_add(j->terminate, NULL) != 0)
        return quire_fail(err, QUIRE_INTERNAL, "signals cannot be watched");
    return bulk_run_begin(&o, &j->run, err);
}

static void finish(struct job *j)
{
    struct event **events[] = {&j->interrupt, &j->terminate, &j->draw, &j->retry};
    bulk_run_free(j->run);
    j->run = NULL;
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (*events[i])
            event_free(*events[i]);
        *events[i] = NULL;
    }
}

int job_run(struct job *j, struct quire_error *err)
{
    struct quire_error why;
    j->end = RUNNING;
    j->began = quire_now_s();
    bench_progress_begin(&j->progress, j->options.what, j->before.n_lines);
    j->progress.before = j->before.n_done;
    j->progress.line_every_s = BENCH_PROGRESS_LINE_S;
    int status = begin(j, err);
    if (status == QUIRE_OK) {
        on_draw(-1, 0, j);
        event_base_dispatch(place_base(j->options.place));
    }
    bench_progress_end(&j->progress);
    finish(j);
    j->ended = quire_now_s();
    if (status != QUIRE_OK || j->end == DONE)
        return status;
    if (bulk_results_flush(j->results, &why) != QUIRE_OK)
        quire_log(QUIRE_LOG_ERROR, "batch", "%s", why.text);
    return j->end == INTERRUPTED ? quire_fail(err, QUIRE_EXHAUSTED, "interrupted")
                                 : quire_fail(err, QUIRE_UNAVAILABLE, "the engine has failed");
}

/* ---- results -------------------------------------------------------------------------------- */

void job_report(const struct job *j, struct job_report *out)
{
    bulk_results_count(j->results, &out->counts);
    out->n_resumed = j->before.n_done;
    out->new_input_tokens = out->counts.input_tokens - j->before.input_tokens;
    out->new_cached_tokens = out->counts.cached_tokens - j->before.cached_tokens;
    out->new_output_tokens = out->counts.output_tokens - j->before.output_tokens;
    out->elapsed_s = j->ended - j->began;
}

int job_check_output(const char *path, struct quire_error *err)
{
    struct stat st;
    return stat(path, &st) != 0 || S_ISREG(st.st_mode)
               ? QUIRE_OK
               : quire_fail(err, QUIRE_INVALID, "%s: is not a regular file", path);
}

int job_write(struct job *j, unsigned outcomes, const char *path, struct quire_error *err)
{
    char part[4096];
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return quire_fail(err, QUIRE_INVALID, "%.200s...: the path is too long", path);
    int status = job_check_output(path, err);
    if (status != QUIRE_OK)
        return status;
    FILE *file = fopen(part, "w");
    if (!file)
        return quire_fail(err, QUIRE_IO, "%s: cannot be written: %s", part, strerror(errno));
    status = bulk_results_write(j->results, outcomes, file, err);
    if (status == QUIRE_OK && fsync(fileno(file)) != 0)
        status = quire_fail(err, QUIRE_IO, "%s: cannot be written: %s", part, strerror(errno));
    if (fclose(file) != 0 && status == QUIRE_OK)
        status = quire_fail(err, QUIRE_IO, "%s: cannot be written: %s", part, strerror(errno));
    if (status == QUIRE_OK && rename(part, path) != 0)
        status = quire_fail(err, QUIRE_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (status != QUIRE_OK)
        unlink(part);
    return status;
}
