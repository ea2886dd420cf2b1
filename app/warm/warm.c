#include "app/warm/warm.h"

#include "app/warm/warm_file.h"
#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int count_tokens(struct cache_client *client, struct warm_prompt *p, struct quire_error *err)
{
    json_t *reply = NULL, *prompt = json_object_get(p->what, "prompt");
    if (json_is_array(prompt)) {
        p->n_tokens = json_array_size(prompt);
        return QUIRE_OK;
    }
    json_t *body = json_copy(p->what);
    if (!body)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (!prompt)
        json_object_set_new(body, "add_generation_prompt", json_false()); /* as the pins route does */
    int status = cache_client_call(client, "POST", "/tokenize", body, &reply, err);
    p->n_tokens = (uint64_t)json_integer_value(json_object_get(reply, "count"));
    json_decref(reply);
    json_decref(body);
    return status;
}

static int compute(struct cache_client *client, const struct warm_prompt *p, struct warm_report *report,
                   struct quire_error *err)
{
    json_t *reply = NULL, *body = json_copy(p->what);
    if (!body)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    json_object_set_new(body, "ttl_seconds", json_integer(0));
    json_object_set_new(body, "background", json_true());
    int status = cache_client_call(client, "POST", "/v1/cache/pins", body, &reply, err);
    if (status == QUIRE_OK) {
        report->n_prompts++;
        report->n_tokens += (uint64_t)json_integer_value(json_object_get(reply, "prompt_tokens"));
        report->n_cached += (uint64_t)json_integer_value(json_object_get(reply, "cached_tokens"));
    }
    json_decref(reply);
    json_decref(body);
    return status;
}

static int run(struct cache_client *client, struct warm_file *file,
               void (*progress)(void *context, uint64_t done, uint64_t total), void *context,
               struct warm_report *report, struct quire_error *err)
{
    uint64_t total = 0;
    int status = QUIRE_OK;
    size_t line = 0;
    for (size_t i = 0; i < file->n && status == QUIRE_OK; i++) {
        line = file->prompts[i].line;
        status = count_tokens(client, &file->prompts[i], err);
        total += file->prompts[i].n_tokens;
    }
    if (status == QUIRE_OK)
        warm_file_sort(file);
    for (size_t i = 0; i < file->n && status == QUIRE_OK; i++) {
        line = file->prompts[i].line;
        status = compute(client, &file->prompts[i], report, err);
        if (progress)
            progress(context, report->n_tokens, total);
    }
    if (status != QUIRE_OK && status != QUIRE_EXHAUSTED)
        quire_error_prefix(err, "line %zu", line);
    return status;
}

int warm_run(struct cache_client *client, const char *path,
             void (*progress)(void *context, uint64_t done, uint64_t total), void *context, struct warm_report *report,
             struct quire_error *err)
{
    struct warm_file file;
    *report = (struct warm_report){0};
    int status = warm_file_read(path, &file, err);
    if (status == QUIRE_OK)
        status = run(client, &file, progress, context, report, err);
    warm_file_free(&file);
    return status;
}

/* ---- in a thread ---- */

struct warming {
    pthread_t thread;
    atomic_bool stop;
    char *url, *api_key, *path;
    struct cache_client *client;
};

static void warming_free(struct warming *w)
{
    cache_client_close(w->client);
    free(w->url);
    free(w->api_key);
    free(w->path);
    free(w);
}

static void *warm_thread(void *context)
{
    struct warming *w = context;
    struct warm_report report;
    struct quire_error err;
    double began = quire_now_s();
    int status = warm_run(w->client, w->path, NULL, NULL, &report, &err);
    if (status == QUIRE_OK || report.n_prompts > 0)
        quire_log(QUIRE_LOG_INFO, "server",
                  "%zu prompts of %s are in the prefix cache, %" PRIu64 " tokens, after %.1f s", report.n_prompts,
                  w->path, report.n_tokens, quire_now_s() - began);
    if (status != QUIRE_OK && status != QUIRE_EXHAUSTED)
        quire_log(QUIRE_LOG_ERROR, "server", "--warm: %s", err.text);
    return NULL;
}

/* A pipe may have no writer, or a silent one: the thread would block in the kernel, and the server would never end. */
static int check_is_file(const char *path, struct quire_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return quire_fail(err, QUIRE_NOT_FOUND, "%s: cannot be opened: %m", path);
    return S_ISREG(st.st_mode) ? QUIRE_OK : quire_fail(err, QUIRE_INVALID, "%s: is not a regular file", path);
}

int warming_begin(const char *url, const char *api_key, const char *path, struct warming **out, struct quire_error *err)
{
    *out = NULL;
    int status = check_is_file(path, err);
    if (status != QUIRE_OK)
        return status;
    struct warming *w = calloc(1, sizeof *w);
    if (!w)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    w->url = strdup(url);
    w->path = strdup(path);
    w->api_key = api_key ? strdup(api_key) : NULL;
    /* Its certificate is for its public name. */
    const struct cache_client_options options = {
        .url = w->url, .api_key = w->api_key, .any_certificate = true, .stop = &w->stop};
    status = w->url && w->path && (w->api_key || !api_key) ? cache_client_open(&options, &w->client, err)
                                                           : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK && pthread_create(&w->thread, NULL, warm_thread, w) != 0)
        status = quire_fail(err, QUIRE_NO_MEMORY, "a thread could not be started");
    if (status != QUIRE_OK) {
        warming_free(w);
        return status;
    }
    *out = w;
    return QUIRE_OK;
}

void warming_stop(struct warming *w)
{
    if (w)
        atomic_store(&w->stop, true);
}

void warming_end(struct warming *w)
{
    if (!w)
        return;
    warming_stop(w);
    pthread_join(w->thread, NULL);
    warming_free(w);
}
