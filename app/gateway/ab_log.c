#include "app/gateway/ab_data.h"

#include "base/encoding/json.h"
#include "server/gateway/file/models_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_FIELDS 32
#define MARK " gateway: request" /* of a line as text */

/* ---- a line --------------------------------------------------------------------------------- */

/* The fields of a request's line, as texts. */
struct line {
    struct {
        char key[24], value[224];
    } fields[MAX_FIELDS];
    size_t n;
};

static const char *field(const struct line *l, const char *key)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->fields[i].key, key) == 0)
            return l->fields[i].value;
    return NULL;
}

static void add_field(struct line *l, const char *key, size_t n_key, const char *value, size_t n)
{
    if (l->n == MAX_FIELDS || n_key >= sizeof l->fields[0].key || n >= sizeof l->fields[0].value)
        return;
    snprintf(l->fields[l->n].key, sizeof l->fields[0].key, "%.*s", (int)n_key, key);
    snprintf(l->fields[l->n].value, sizeof l->fields[0].value, "%.*s", (int)n, value);
    l->n++;
}

/* key=value and key="value" (base/log.h). No value that is needed here has an escape: other fields may keep theirs. */
static void read_text(const char *text, struct line *l)
{
    while (*text) {
        const char *key = text + strspn(text, " ");
        const size_t n_key = strcspn(key, "= ");
        const char *value = key + n_key + (key[n_key] == '=');
        if (key[n_key] != '=') { /* "; the client has gone" */
            text = value;
            continue;
        }
        const bool is_quoted = *value == '"';
        const char *end = value += is_quoted;
        while (*end && *end != (is_quoted ? '"' : ' '))
            end += *end == '\\' && end[1] ? 2 : 1;
        add_field(l, key, n_key, value, (size_t)(end - value));
        text = end + (*end == '"');
    }
}

static void read_json(const json_t *object, struct line *l)
{
    const char *key;
    const json_t *value;
    char number[40];
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_is_number(value))
            snprintf(number, sizeof number, "%.17g", json_number_value(value));
        if (json_is_number(value) || json_is_string(value))
            add_field(l, key, strlen(key), json_is_number(value) ? number : json_string_value(value),
                      json_is_number(value) ? strlen(number) : json_string_length(value));
    }
}

/* Returns whether it is the line of a request that belongs to an experiment. */
static bool read_line(char *text, size_t n, struct line *l)
{
    json_t *object = NULL;
    l->n = 0;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        text[--n] = '\0';
    const char *mark = strstr(text, MARK);
    if (text[0] == '{' && quire_json_parse(text, n, 8, "line", &object, &(struct quire_error){.text = ""}) == QUIRE_OK)
        read_json(object, l);
    else if (mark)
        read_text(mark + strlen(MARK), l);
    json_decref(object);
    return field(l, "experiment") && field(l, "arm") && field(l, "run");
}

/* ---- a request ------------------------------------------------------------------------------ */

static double number(const struct line *l, const char *key)
{
    const char *text = field(l, key);
    const double value = text ? strtod(text, NULL) : 0;
    return value > 0 && value < 1e15 ? value : 0;
}

/* Dollars with at most twelve decimals. */
static uint64_t picodollars(const char *text)
{
    uint64_t sum = 0;
    int decimals = -1;
    for (; text && *text && sum < UINT64_MAX / 20 && decimals < 12; text++) {
        if (*text == '.' && decimals < 0) {
            decimals = 0;
            continue;
        }
        if (*text < '0' || *text > '9')
            break;
        sum = sum * 10 + (uint64_t)(*text - '0');
        decimals += decimals >= 0;
    }
    for (decimals = decimals < 0 ? 0 : decimals; decimals < 12 && sum < UINT64_MAX / 20; decimals++)
        sum *= 10;
    return sum;
}

/* Seconds since 1970 of "2026-01-31T12:00:00.123Z"; 0: unknown. */
static int64_t time_of(const char *text)
{
    struct tm utc = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    return end ? (int64_t)timegm(&utc) : 0;
}

static void add_request(struct ab_experiment *e, const struct line *l, const char *text)
{
    const char *arm = field(l, "arm"), *stamp = field(l, "ts");
    const struct trial_outcome o = {.status = (int)number(l, "status"),
                                    .total_us = (uint64_t)llround(number(l, "total_ms") * 1000),
                                    .ttft_us = (uint64_t)llround(number(l, "ttft_ms") * 1000),
                                    .output = (uint64_t)number(l, "generated_tokens"),
                                    .cached_input = (uint64_t)number(l, "cached_tokens"),
                                    .cost = picodollars(field(l, "cost")),
                                    .from_cache = field(l, "cache") != NULL};
    struct trial_request r;
    if (!field(l, "bucket") || !trial_read(&o, (uint32_t)number(l, "bucket"), &r))
        return;
    for (uint32_t i = 0; i < e->trial->n_arms; i++)
        if (strcmp(e->trial->arms[i].name, arm) == 0)
            trial_add(e->trial, i, &r, time_of(stamp ? stamp : text));
}

/* ---- the file ------------------------------------------------------------------------------- */

static int begin(const struct gateway_config *config, uint32_t model, struct ab_experiment *e, struct quire_error *err)
{
    const struct gateway_experiment *from = config->models[model].route.experiment;
    char warning[VARIABLES_WARNING_BYTES];
    e->name = strdup(config->models[model].name);
    e->by_request = from->by_request;
    e->has_metric = from->has_metric;
    e->metric = from->metric;
    e->warnings = json_array();
    e->trial = trial_new(config, model);
    if (!e->name || !e->warnings || !e->trial)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < from->n_arms; i++) {
        e->models[i] = strdup(config->models[from->arms[i].model].name);
        e->weights[i] = from->arms[i].weight;
        if (!e->models[i])
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        if (variables_warn(config, model, i, warning))
            json_array_append_new(e->warnings, json_string(warning));
    }
    return QUIRE_OK;
}

static int begin_all(const char *models, struct ab_list *out, struct quire_error *err)
{
    const struct gateway_config *config;
    int status = models_file_read(models, &config, err);
    for (uint32_t i = 0; status == QUIRE_OK && i < config->n_models; i++)
        if (config->models[i].route.experiment)
            status = begin(config, i, &out->items[out->n++], err);
    models_file_release(config);
    return status;
}

static void read_lines(FILE *file, struct ab_list *out)
{
    char *text = NULL;
    size_t capacity = 0;
    struct line l;
    for (ssize_t n; (n = getline(&text, &capacity, file)) > 0;) {
        if (!read_line(text, (size_t)n, &l))
            continue;
        for (size_t i = 0; i < out->n; i++) {
            if (strcmp(out->items[i].name, field(&l, "experiment")) != 0)
                continue;
            if (strcmp(out->items[i].trial->run, field(&l, "run")) == 0)
                add_request(&out->items[i], &l, text);
            else
                out->items[i].n_other++;
        }
    }
    free(text);
}

int ab_read_log(const char *path, const char *models, struct ab_list *out, struct quire_error *err)
{
    int status = begin_all(models, out, err);
    if (status != QUIRE_OK)
        return status;
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
    if (!file)
        return quire_fail(err, QUIRE_NOT_FOUND, "%s: cannot be opened: %s", path, strerror(errno));
    read_lines(file, out);
    if (ferror(file))
        status = quire_fail(err, QUIRE_IO, "%s: cannot be read", path);
    if (file != stdin)
        fclose(file);
    return status;
}
