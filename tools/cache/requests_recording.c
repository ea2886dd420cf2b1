#include "tools/cache/requests_recording.h"

#include "base/id_map.h"
#include "engine/record/recording.h"
#include "request/fields.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool requests_are_recorded(const char *path)
{
    char head[8];
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool is = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                    read(fd, head, sizeof head) == (ssize_t)sizeof head && memcmp(head, "QUIREREC", sizeof head) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

/* ---- one request ---- */

static json_t *ids_of(const uint32_t *ids, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *biases_of(const struct request_bias *biases, uint32_t n)
{
    json_t *map = json_object();
    char id[16];
    for (uint32_t i = 0; i < n; i++) {
        snprintf(id, sizeof id, "%" PRIu32, biases[i].id);
        json_object_set_new(map, id, json_real((double)biases[i].bias));
    }
    return map;
}

static json_t *value_of(const struct request_field *f, const struct request_spec *spec)
{
    const struct request_list list = request_field_is_list(f) ? request_field_list(f, spec) : (struct request_list){0};
    uint64_t u64 = 0;
    uint32_t u32 = 0;
    int32_t i32 = 0;
    float f32 = 0;
    double f64 = 0;
    if (!request_field_is_list(f)) {
        const char *at = (const char *)spec + f->at;
        switch ((enum request_kind)f->kind) {
        case REQUEST_BOOL: return json_boolean(*(const bool *)at);
        case REQUEST_U32: memcpy(&u32, at, sizeof u32); return json_integer(u32);
        case REQUEST_I32: memcpy(&i32, at, sizeof i32); return json_integer(i32);
        case REQUEST_U64: memcpy(&u64, at, sizeof u64); return json_integer((json_int_t)u64);
        case REQUEST_F32: memcpy(&f32, at, sizeof f32); return json_real((double)f32);
        case REQUEST_F64: memcpy(&f64, at, sizeof f64); return json_real(f64);
        default: return NULL;
        }
    }
    if (f->kind == REQUEST_BYTES)
        return json_stringn(list.items, list.n);
    return f->kind == REQUEST_BIASES ? biases_of(list.items, list.n) : ids_of(list.items, list.n);
}

/* Removes the stop tokens that the engine added. */
static void put_stops(json_t *body, const struct request_spec *spec, const uint32_t *eos, uint32_t n_eos)
{
    uint32_t n_found = 0;
    json_t *rest = json_array();
    for (uint32_t i = 0; i < spec->n_stop_token_ids; i++) {
        bool is_eos = false;
        for (uint32_t j = 0; j < n_eos; j++)
            is_eos |= spec->stop_token_ids[i] == eos[j];
        n_found += is_eos;
        if (!is_eos)
            json_array_append_new(rest, json_integer(spec->stop_token_ids[i]));
    }
    if (n_found < n_eos || n_eos == 0) {
        json_decref(rest);
        rest = ids_of(spec->stop_token_ids, spec->n_stop_token_ids);
        json_object_set_new(body, "ignore_eos", json_true());
    }
    if (json_array_size(rest) > 0)
        json_object_set(body, "stop_token_ids", rest);
    json_decref(rest);
}

/* Returns whether the HTTP API can express all of it. */
static bool is_sayable(const struct request_spec *spec)
{
    for (uint32_t i = 0; i < spec->n_biases; i++)
        if (!(spec->biases[i].bias >= -100 && spec->biases[i].bias <= 100))
            return false;
    return spec->n_bad_words == 0 && !spec->wants_vector && spec->max_tokens > 0 && spec->temperature <= 2 &&
           !spec->background;
}

/* eos: the ids that the engine added as stop tokens to requests without ignore_eos. */
static json_t *body_of(const struct request_spec *spec, const uint32_t *eos, uint32_t n_eos)
{
    json_t *body = json_object();
    for (size_t i = 0; i < request_n_fields; i++) {
        const struct request_field *f = &request_fields[i];
        /* A checkpoint's defaults replace unset fields, so these are always set. */
        bool said = f->flags & REQUEST_MODELS || !request_field_is_default(f, spec);
        if (f->flags & REQUEST_IN_BODY && f->flags & REQUEST_DRAWS && said && strcmp(f->name, "ignore_eos") != 0 &&
            strcmp(f->name, "stop_token_ids") != 0 && !(strcmp(f->name, "seed") == 0 && spec->temperature == 0))
            json_object_set_new(body, f->name, value_of(f, spec));
    }
    put_stops(body, spec, eos, n_eos);
    json_object_set_new(body, "prompt", ids_of(spec->prompt, spec->n_prompt));
    json_object_set_new(body, "max_tokens", json_integer(spec->max_tokens));
    if (spec->n_logprobs >= 0)
        json_object_set_new(body, "logprobs", json_integer(spec->n_logprobs));
    if (spec->n_prompt_logprobs >= 0)
        json_object_set_new(body, "prompt_logprobs", json_integer(spec->n_prompt_logprobs));
    return body;
}

/* ---- the ids that end an answer of the model ---- */

struct eos {
    uint32_t *ids, n;
    int64_t n_votes;
};

/* Most requests have no stop ids of their own, so the most common list is the engine's: majority vote in one pass. */
static int vote(struct eos *eos, const struct request_spec *spec, struct quire_error *err)
{
    size_t n_bytes = spec->n_stop_token_ids * sizeof *spec->stop_token_ids;
    bool same = eos->n == spec->n_stop_token_ids &&
                (n_bytes == 0 || memcmp(eos->ids, spec->stop_token_ids, n_bytes) == 0);
    if (eos->n_votes > 0) {
        eos->n_votes += same ? 1 : -1;
        return QUIRE_OK;
    }
    uint32_t *ids = malloc(n_bytes ? n_bytes : 1);
    if (!ids)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (n_bytes)
        memcpy(ids, spec->stop_token_ids, n_bytes);
    free(eos->ids);
    *eos = (struct eos){ids, spec->n_stop_token_ids, 1};
    return QUIRE_OK;
}

static int find_eos(struct recording *r, struct eos *eos, struct quire_error *err)
{
    struct recording_entry e;
    int status;
    while ((status = recording_next(r, &e, err)) == QUIRE_OK && e.kind != RECORDING_END)
        if (e.kind == RECORDING_SUBMIT && is_sayable(e.submit->spec) &&
            (status = vote(eos, e.submit->spec, err)) != QUIRE_OK)
            break;
    recording_rewind(r);
    return status;
}

/* ---- the file ---- */

static int add(struct asked_requests *all, const struct request_spec *spec, const struct eos *eos,
               struct quire_error *err)
{
    char where[40];
    if (all->n == REQUESTS_MAX)
        return quire_fail(err, QUIRE_INVALID, "more than %zu requests", REQUESTS_MAX);
    if ((all->n & (all->n - 1)) == 0) { /* full at each power of two */
        void *more = realloc(all->items, (all->n ? 2 * all->n : 1) * sizeof *all->items);
        if (!more)
            return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        all->items = more;
    }
    json_t *body = body_of(spec, eos->ids, eos->n);
    if (!body)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    struct asked_request *r = &all->items[all->n++];
    *r = (struct asked_request){.order = all->n};
    snprintf(where, sizeof where, "request %zu", all->n);
    return requests_take(r, NULL, body, where, err);
}

static int take_all(struct recording *r, const struct eos *eos, struct id_map *by_id, struct asked_requests *out,
                    struct quire_error *err)
{
    struct recording_entry e;
    int status;
    while ((status = recording_next(r, &e, err)) == QUIRE_OK && e.kind != RECORDING_END) {
        if (e.kind == RECORDING_SUBMIT && e.submit->status == QUIRE_OK && is_sayable(e.submit->spec)) {
            status = add(out, e.submit->spec, eos, err);
            if (status == QUIRE_OK && id_map_add(by_id, e.submit->sched.id, out->n) != QUIRE_OK)
                status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
        } else if (e.kind == RECORDING_FINISH && id_map_find(by_id, e.finish.id) > 0) {
            struct asked_request *asked = &out->items[id_map_find(by_id, e.finish.id) - 1];
            asked->n_generated = 0;
            for (uint32_t i = 0; i < e.finish.n; i++)
                asked->n_generated += e.finish.choices[i].n_tokens;
        }
        if (status != QUIRE_OK)
            return status;
    }
    if (status == QUIRE_OK && out->n == 0)
        status = quire_fail(err, QUIRE_INVALID, "has no requests that can be sent again");
    return status;
}

int requests_of_recording(const char *path, struct asked_requests *out, struct quire_error *err)
{
    struct recording *r = NULL;
    struct id_map by_id = {0};
    struct eos eos = {0};
    *out = (struct asked_requests){NULL, 0};
    int status = recording_open(path, &r, err);
    if (status != QUIRE_OK)
        return status;
    status = find_eos(r, &eos, err);
    if (status == QUIRE_OK)
        status = take_all(r, &eos, &by_id, out, err);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "%.200s", path);
    id_map_free(&by_id);
    free(eos.ids);
    recording_close(r);
    return status;
}
