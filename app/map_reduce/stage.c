#include "app/map_reduce/stage.h"

#include "app/bulk/job.h"
#include "base/encoding/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_DEPTH 64
#define ALL ((1u << BULK_OUTCOMES) - 1)

struct paths {
    char input[128], state[128], output[128];
};

static void name_paths(struct paths *p, const char *folder, unsigned number)
{
    snprintf(p->input, sizeof p->input, "%s/stage-%u.jsonl", folder, number);
    snprintf(p->state, sizeof p->state, "%s/stage-%u.state", folder, number);
    snprintf(p->output, sizeof p->output, "%s/stage-%u.results.jsonl", folder, number);
}

/* ---- the requests --------------------------------------------------------------------------- */

static json_t *request_json(const struct work_options *o, size_t i, const struct buffer *prompt)
{
    char id[32];
    snprintf(id, sizeof id, "item-%zu", i + 1);
    return json_pack("{s:s, s:s, s:s, s:{s:s*, s:[{s:s, s:s%}], s:i, s:i}}", "custom_id", id, "method", "POST", "url",
                     "/v1/chat/completions", "body", "model", o->model, "messages", "role", "user", "content",
                     prompt->data, prompt->n, "max_tokens", (int)o->max_tokens, "temperature", 0);
}

/* The same bytes in each run, so that the state of an earlier one fits. */
static int write_input(const struct work_options *o, const char *path, const struct texts *prompts,
                       struct quire_error *err)
{
    FILE *file = fopen(path, "w");
    bool good = file != NULL;
    for (size_t i = 0; i < prompts->n && good; i++) {
        json_t *line = request_json(o, i, &prompts->items[i]);
        good = line && json_dumpf(line, file, JSON_COMPACT) == 0 && fputc('\n', file) != EOF;
        json_decref(line);
    }
    if (file && fclose(file) != 0)
        good = false;
    return good ? QUIRE_OK : quire_fail(err, QUIRE_IO, "%s: cannot be written: %s", path, strerror(errno));
}

/* ---- the answers ---------------------------------------------------------------------------- */

static int fail_item(const json_t *line, size_t i, size_t *failed, struct quire_error *err)
{
    const json_t *response = json_object_get(line, "response"), *body = json_object_get(response, "body");
    const char *why = json_string_value(json_object_get(json_object_get(body, "error"), "message"));
    if (!why)
        why = json_string_value(json_object_get(json_object_get(line, "error"), "message"));
    *failed = i;
    return quire_fail(err, QUIRE_INVALID, "%s", why ? why : "the request failed");
}

static int read_answer(const json_t *line, size_t i, struct texts *answers, size_t *failed, struct work_report *report,
                       struct quire_error *err)
{
    const json_t *response = json_object_get(line, "response");
    const json_t *choices = json_object_get(json_object_get(response, "body"), "choices");
    const json_t *choice = json_array_get(choices, 0);
    const json_t *content = json_object_get(json_object_get(choice, "message"), "content");
    if (json_integer_value(json_object_get(response, "status_code")) != 200 || !choice)
        return fail_item(line, i, failed, err);
    const char *text = json_string_value(content);
    struct buffer *answer = texts_add(answers);
    const char *end = json_string_value(json_object_get(choice, "finish_reason"));
    report->n_cut += end && strcmp(end, "length") == 0;
    for (size_t at = 0, n = text && answer ? json_string_length(content) : 0; at < n;) {
        const size_t n_good = strnlen(text + at, n - at);
        buffer_append(answer, text + at, n_good);
        at += n_good;
        if (at++ < n) /* no request takes a NUL */
            buffer_append(answer, "\xef\xbf\xbd", 3);
    }
    return answer && !answer->failed ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
}

static int read_answers(const char *path, struct texts *answers, size_t *failed, struct work_report *report,
                        struct quire_error *err)
{
    char *text = NULL;
    size_t capacity = 0;
    ssize_t n;
    int status = QUIRE_OK;
    FILE *file = fopen(path, "r");
    if (!file)
        return quire_fail(err, QUIRE_IO, "%s: cannot be read: %s", path, strerror(errno));
    for (size_t i = 0; status == QUIRE_OK && (n = getline(&text, &capacity, file)) > 0; i++) {
        json_t *line = NULL;
        status = quire_json_parse_python(text, (size_t)n, path, &line, err); /* an answer may have a NUL */
        if (status == QUIRE_OK)
            status = read_answer(line, i, answers, failed, report, err);
        json_decref(line);
    }
    free(text);
    fclose(file);
    return status;
}

/* ---- running -------------------------------------------------------------------------------- */

static void add_report(const struct job *job, struct work_report *report)
{
    struct job_report r;
    job_report(job, &r);
    report->n_stages++;
    report->n_requests += r.counts.n_lines;
    report->n_resumed += r.n_resumed;
    report->input_tokens += r.new_input_tokens;
    report->cached_tokens += r.new_cached_tokens;
    report->output_tokens += r.new_output_tokens;
}

int stage_run(const struct work_options *o, unsigned number, const struct texts *prompts, struct texts *answers,
              size_t *failed, struct work_report *report, struct quire_error *err)
{
    struct paths paths;
    struct job *job;
    *failed = SIZE_MAX;
    name_paths(&paths, report->folder, number);
    int status = write_input(o, paths.input, prompts, err);
    if (status != QUIRE_OK)
        return status;
    const struct job_options options = {.place = o->place,
                                        .input = paths.input,
                                        .state = paths.state,
                                        .what = number == 0 ? "map" : "reduce",
                                        .concurrency = o->concurrency};
    status = job_open(&options, &job, err);
    if (status != QUIRE_OK)
        return status;
    status = job_run(job, err);
    add_report(job, report);
    if (status == QUIRE_OK)
        status = job_write(job, ALL, paths.output, err);
    job_close(job, false);
    return status == QUIRE_OK ? read_answers(paths.output, answers, failed, report, err) : status;
}

void stages_remove(const char *folder, unsigned n)
{
    char path[160];
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (unsigned i = 0; i < n; i++) {
        struct paths p;
        name_paths(&p, folder, i);
        unlink(p.input);
        unlink(p.output);
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            snprintf(path, sizeof path, "%s%s", p.state, ends[k]);
            unlink(path);
        }
    }
    rmdir(folder);
}
