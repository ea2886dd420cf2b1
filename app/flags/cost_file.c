#include "app/flags/cost_file.h"

#include "base/encoding/json.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES (64u << 10)
#define MAX_DEPTH 3
#define MAX_SIZE 100000000 /* upper bound of a model's sizes */

struct member {
    const char *key;
    size_t offset; /* of a double in struct sched_cost */
};
static const struct member members[] = {
    {"row_us", offsetof(struct sched_cost, row_us)},
    {"logit_us", offsetof(struct sched_cost, logit_us)},
    {"context_us", offsetof(struct sched_cost, context_us)},
    {"pair_us", offsetof(struct sched_cost, pair_us)},
    {"block_copy_us", offsetof(struct sched_cost, block_copy_us)},
};
#define N_MEMBERS (sizeof members / sizeof members[0])

/* ---- reading ---- */

static bool is_known(const char *key)
{
    static const char *const others[] = {"about", "points", "model", "micro_batch_tokens"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(key, others[i]) == 0)
            return true;
    for (size_t i = 0; i < N_MEMBERS; i++)
        if (strcmp(key, members[i].key) == 0)
            return true;
    return false;
}

static int check_keys(const json_t *object, const char *where, struct quire_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (is_known(key))
            continue;
        char shown[33] = {0}; /* its bytes are untrusted */
        for (size_t i = 0; i < sizeof shown - 1 && key[i]; i++)
            shown[i] = key[i] >= 0x20 && key[i] < 0x7f ? key[i] : '?';
        return quire_fail(err, QUIRE_INVALID, "%s: \"%s\" is not a member of a cost model", where, shown);
    }
    return QUIRE_OK;
}

/* Reads only the numbers; sched_cost_check() checks their order. */
static int read_points(const json_t *object, const char *where, struct sched_cost *out, struct quire_error *err)
{
    json_t *points = NULL, *point;
    size_t i;
    int status = quire_json_array(object, where, "points", &points, err);
    if (status != QUIRE_OK)
        return status;
    if (!points || json_array_size(points) == 0)
        return quire_fail(err, QUIRE_INVALID, "%s: points: is missing, such as [[1, 6400], [512, 20000]]", where);
    if (json_array_size(points) > SCHED_COST_MAX_POINTS)
        return quire_fail(err, QUIRE_INVALID, "%s: points: at most %d, got %zu", where, SCHED_COST_MAX_POINTS,
                          json_array_size(points));
    json_array_foreach(points, i, point)
    {
        json_t *n_tokens = json_array_get(point, 0), *us = json_array_get(point, 1);
        if (json_array_size(point) != 2 || !json_is_integer(n_tokens) || !json_is_number(us))
            return quire_fail(err, QUIRE_INVALID, "%s: points[%zu]: must be [tokens, microseconds]", where, i);
        json_int_t n = json_integer_value(n_tokens);
        if (n < 1 || n > UINT32_MAX)
            return quire_fail(err, QUIRE_INVALID, "%s: points[%zu]: %lld tokens", where, i, (long long)n);
        out->points[i].n_tokens = (uint32_t)n;
        out->points[i].us = json_number_value(us);
    }
    out->n_points = (uint32_t)json_array_size(points);
    return QUIRE_OK;
}

static int read_size(const json_t *number, const char *where, const char *name, uint32_t *out, struct quire_error *err)
{
    if (!json_is_integer(number) || json_integer_value(number) < 1 || json_integer_value(number) > MAX_SIZE)
        return quire_fail(err, QUIRE_INVALID, "%s: %s: must be a whole number from 1 to %d", where, name, MAX_SIZE);
    *out = (uint32_t)json_integer_value(number);
    return QUIRE_OK;
}

/* All members of the model, or none. */
static int read_shape(const json_t *object, const char *where, struct cost_shape *out, struct quire_error *err)
{
    static const char *const keys[] = {"n_layers", "hidden_size", "vocab_size"};
    uint32_t *const numbers[] = {&out->n_layers, &out->hidden_size, &out->vocab_size};
    const json_t *model = json_object_get(object, "model"), *least = json_object_get(object, "micro_batch_tokens");
    *out = (struct cost_shape){0};
    int status = least ? read_size(least, where, "micro_batch_tokens", &out->micro_batch_tokens, err) : QUIRE_OK;
    if (!model || status != QUIRE_OK)
        return status;
    if (!json_is_object(model) || json_object_size(model) != 3)
        return quire_fail(err, QUIRE_INVALID, "%s: model: must be {\"n_layers\", \"hidden_size\", \"vocab_size\"}",
                          where);
    for (size_t i = 0; i < 3 && status == QUIRE_OK; i++) {
        char name[32];
        snprintf(name, sizeof name, "model.%s", keys[i]);
        status = read_size(json_object_get(model, keys[i]), where, name, numbers[i], err);
    }
    return status;
}

/* What of a text can stand in one line. */
static void copy_about(const char *about, char *out, size_t size)
{
    size_t n = 0;
    for (; about && about[n] && n + 1 < size; n++)
        out[n] = about[n] >= 0x20 && about[n] < 0x7f ? about[n] : '?';
    out[n] = '\0';
}

static int read_object(const json_t *object, const char *where, struct sched_cost *out, struct cost_shape *shape,
                       struct quire_error *err)
{
    struct sched_cost cost = {0};
    struct cost_shape found;
    const char *about = NULL; /* stays if it is absent */
    if (!json_is_object(object))
        return quire_fail(err, QUIRE_INVALID, "%s: must be a JSON object", where);
    int status = check_keys(object, where, err);
    if (status == QUIRE_OK)
        status = quire_json_string(object, where, "about", &about, err);
    if (status == QUIRE_OK)
        status = read_points(object, where, &cost, err);
    for (size_t i = 0; i < N_MEMBERS && status == QUIRE_OK; i++)
        status = quire_json_f64(object, where, members[i].key, 0, DBL_MAX,
                                (double *)((char *)&cost + members[i].offset), err);
    if (status == QUIRE_OK) {
        status = sched_cost_check(&cost, err);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "%s", where);
    }
    if (status == QUIRE_OK)
        status = read_shape(object, where, &found, err);
    if (status == QUIRE_OK)
        *out = cost;
    if (status == QUIRE_OK && shape) {
        *shape = found;
        copy_about(about, shape->about, sizeof shape->about);
    }
    return status;
}

int cost_file_read(const char *path, struct sched_cost *out, struct cost_shape *shape, struct quire_error *err)
{
    const char *slash = strrchr(path, '/');
    json_t *object;
    int status = quire_json_read_file(path, MAX_FILE_BYTES, &object, err);
    if (status != QUIRE_OK)
        return status;
    status = read_object(object, slash ? slash + 1 : path, out, shape, err);
    json_decref(object);
    return status;
}

int cost_file_parse(const char *text, size_t n_bytes, const char *where, struct sched_cost *out,
                    struct cost_shape *shape, struct quire_error *err)
{
    json_t *object;
    int status = quire_json_parse(text, n_bytes, MAX_DEPTH, where, &object, err);
    if (status != QUIRE_OK)
        return status;
    status = read_object(object, where, out, shape, err);
    json_decref(object);
    return status;
}

/* ---- writing ---- */

json_t *cost_file_json(const struct sched_cost *cost, const char *about, const struct cost_shape *shape)
{
    json_t *object = json_object(), *points = json_array();
    int bad = about ? json_object_set_new(object, "about", json_string(about)) : 0;
    for (uint32_t i = 0; i < cost->n_points; i++)
        bad |= json_array_append_new(points,
                                     json_pack("[I, f]", (json_int_t)cost->points[i].n_tokens, cost->points[i].us));
    bad |= json_object_set_new(object, "points", points);
    for (size_t i = 0; i < N_MEMBERS; i++)
        bad |= json_object_set_new(object, members[i].key,
                                   json_real(*(const double *)((const char *)cost + members[i].offset)));
    if (shape && shape->n_layers)
        bad |= json_object_set_new(object, "model",
                                   json_pack("{s:I, s:I, s:I}", "n_layers", (json_int_t)shape->n_layers, "hidden_size",
                                             (json_int_t)shape->hidden_size, "vocab_size",
                                             (json_int_t)shape->vocab_size));
    if (shape && shape->micro_batch_tokens)
        bad |= json_object_set_new(object, "micro_batch_tokens", json_integer(shape->micro_batch_tokens));
    if (bad) {
        json_decref(object);
        return NULL;
    }
    return object;
}

int cost_file_write(const char *path, const struct sched_cost *cost, const char *about, const struct cost_shape *shape,
                    struct quire_error *err)
{
    int status = QUIRE_OK;
    json_t *object = cost_file_json(cost, about, shape);
    if (!object)
        status = quire_fail(err, QUIRE_NO_MEMORY, "%s: out of memory", path);
    else if (json_dump_file(object, path, JSON_REAL_PRECISION(17)) != 0)
        status = quire_fail(err, QUIRE_IO, "%s: cannot be written: %m", path);
    json_decref(object);
    return status;
}
