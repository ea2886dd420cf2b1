/* The fields of /completion that are not those of the other routes. */
#include "server/front/llama_cpp/llama_cpp.h"

#include <math.h>
#include <string.h>

#define NO_SEED 4294967295.0 /* with -1: a random seed */
#define REPEAT_LAST_N 64     /* llama.cpp's default, which clients send */

/* ---- fields that must be off ---- */

enum test {
    TEST_SPEED,   /* changes the speed, or belongs to a sampler that is off */
    TEST_EQUAL,   /* off at this value */
    TEST_AT_MOST, /* off up to this value */
    TEST_EMPTY,   /* off if false, empty or 0 */
};

struct row {
    const char *name;
    enum quire_kind kind;
    enum test test;
    double value;
};

static const struct row rows[] = {
    {"cache_prompt", QUIRE_BOOL, TEST_SPEED, 0},
    {"id_slot", QUIRE_NUMBER, TEST_SPEED, 0},
    {"slot_id", QUIRE_NUMBER, TEST_SPEED, 0},
    {"n_keep", QUIRE_NUMBER, TEST_SPEED, 0},
    {"n_discard", QUIRE_NUMBER, TEST_SPEED, 0},
    {"n_cache_reuse", QUIRE_NUMBER, TEST_SPEED, 0},
    {"sse_ping_interval", QUIRE_NUMBER, TEST_SPEED, 0},
    {"return_progress", QUIRE_BOOL, TEST_SPEED, 0},
    {"mirostat", QUIRE_NUMBER, TEST_EQUAL, 0},
    {"mirostat_tau", QUIRE_NUMBER, TEST_SPEED, 0},
    {"mirostat_eta", QUIRE_NUMBER, TEST_SPEED, 0},
    {"dynatemp_range", QUIRE_NUMBER, TEST_AT_MOST, 0},
    {"dynatemp_exponent", QUIRE_NUMBER, TEST_SPEED, 0},
    {"typical_p", QUIRE_NUMBER, TEST_EQUAL, 1},
    {"typ_p", QUIRE_NUMBER, TEST_EQUAL, 1},
    {"tfs_z", QUIRE_NUMBER, TEST_EQUAL, 1},
    {"top_n_sigma", QUIRE_NUMBER, TEST_AT_MOST, 0},
    {"min_keep", QUIRE_NUMBER, TEST_AT_MOST, 0},
    {"n_indent", QUIRE_NUMBER, TEST_AT_MOST, 0},
    {"xtc_probability", QUIRE_NUMBER, TEST_AT_MOST, 0},
    {"xtc_threshold", QUIRE_NUMBER, TEST_SPEED, 0},
    {"dry_multiplier", QUIRE_NUMBER, TEST_EQUAL, 0},
    {"dry_base", QUIRE_NUMBER, TEST_SPEED, 0},
    {"dry_allowed_length", QUIRE_NUMBER, TEST_SPEED, 0},
    {"dry_penalty_last_n", QUIRE_NUMBER, TEST_SPEED, 0},
    {"dry_sequence_breakers", QUIRE_ARRAY, TEST_SPEED, 0},
    {"adaptive_target", QUIRE_NUMBER, TEST_AT_MOST, -1e-9},
    {"adaptive_decay", QUIRE_NUMBER, TEST_SPEED, 0},
    {"t_max_predict_ms", QUIRE_NUMBER, TEST_AT_MOST, 0},
    {"t_max_prompt_ms", QUIRE_NUMBER, TEST_AT_MOST, 0},
    {"post_sampling_probs", QUIRE_BOOL, TEST_EMPTY, 0},
    {"grammar_lazy", QUIRE_BOOL, TEST_EMPTY, 0},
    {"grammar_triggers", QUIRE_ARRAY, TEST_EMPTY, 0},
    {"lora", QUIRE_ARRAY, TEST_EMPTY, 0},
    {"image_data", QUIRE_ARRAY, TEST_EMPTY, 0},
    {"bad_words", QUIRE_ARRAY, TEST_EMPTY, 0},
    {"echo", QUIRE_BOOL, TEST_EMPTY, 0},
};

static const char *name_of(enum quire_kind kind)
{
    return kind == QUIRE_BOOL ? "true or false" : kind == QUIRE_ARRAY ? "an array" : "a number";
}

static bool is_off(const struct row *row, struct quire_value value)
{
    switch (row->test) {
    case TEST_SPEED: return true;
    case TEST_EQUAL: return quire_value_double(value) == row->value;
    case TEST_AT_MOST: return quire_value_double(value) <= row->value;
    case TEST_EMPTY: return row->kind == QUIRE_BOOL ? value.text[0] == 'f' : quire_value_count(value) == 0;
    }
    return false;
}

bool llama_cpp_check_fields(const struct quire_doc *body, struct api_error *e)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        struct quire_value value = json_field_get(body, row->name);
        if (!value.n)
            continue;
        if (!json_is(value, row->kind))
            return api_bad(e, row->name, "must be %s", name_of(row->kind));
        if (row->test == TEST_EQUAL && !is_off(row, value))
            return api_unsupported(e, row->name, "is not supported: only %g, which switches it off, got %.*s",
                                   row->value, JSON_SHOWN(value));
        if (!is_off(row, value))
            return api_unsupported(e, row->name, "is not supported: leave it out or switch it off");
    }
    return true;
}

/* ---- the common fields ---- */

bool llama_cpp_number(const struct quire_doc *body, const char *name, double low, double high, double *out,
                      struct api_error *e)
{
    struct quire_value value = json_field_get(body, name);
    if (!value.n)
        return true;
    if (!json_is(value, QUIRE_NUMBER))
        return api_bad(e, name, "must be a number");
    const double got = quire_value_double(value);
    if (!(got >= low && got <= high))
        return api_bad(e, name, "must be between %g and %g, got %.*s", low, high, JSON_SHOWN(value));
    *out = got;
    return true;
}

static bool is_one_of(struct quire_value key, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (quire_value_is(key, names[i]))
            return true;
    return false;
}

/* Values below 0 mean 0. */
static void put_value(struct buffer *o, struct quire_value key, struct quire_value value)
{
    static const char *const clipped[] = {"temperature", "top_k"};
    const bool is_below = json_is(value, QUIRE_NUMBER) && quire_value_double(value) < 0;
    if (is_below && is_one_of(key, clipped, sizeof clipped / sizeof *clipped))
        json_out_raw(o, "0");
    else
        buffer_append(o, value.text, value.n);
}

bool llama_cpp_put_body(struct buffer *o, const struct quire_doc *body, struct api_error *e)
{
    static const char *const own[] = {"prompt", "logit_bias", "n_cmpl", "bad_words"};
    struct quire_value rest = quire_doc_root(body), key, value, choices = json_field_get(body, "n_cmpl");
    const bool has_choices = choices.n > 0;
    const char *comma = "";
    int64_t n = 1;
    if (!json_field_i64(body, "n_cmpl", 1, REQUEST_MAX_CHOICES, &n, e))
        return false;
    json_out_raw(o, "{");
    while (quire_value_next(&rest, &key, &value)) {
        if (is_one_of(key, own, sizeof own / sizeof *own) || (has_choices && quire_value_is(key, "n")))
            continue;
        json_out_raw(o, comma);
        buffer_append(o, key.text, key.n);
        json_out_raw(o, ":");
        put_value(o, key, value);
        comma = ",";
    }
    if (has_choices) {
        json_out_raw(o, comma);
        json_out_raw(o, "\"n\":");
        json_out_i64(o, n);
    }
    json_out_raw(o, "}");
    return !o->failed || api_no_memory(e);
}

/* ---- samplers ---- */

/* In llama.cpp's order. Quire's samplers have a fixed order, so that another one cannot be served. */
static const char *const order[] = {"penalties", "dry",   "top_n_sigma", "top_k",      "typical_p",
                                    "top_p",     "min_p", "xtc",         "temperature"};
#define N_ORDER (sizeof order / sizeof *order)

static size_t place_of(struct quire_value name)
{
    for (size_t i = 0; i < N_ORDER; i++)
        if (quire_value_is(name, order[i]))
            return i;
    return quire_value_is(name, "typ_p") || quire_value_is(name, "tfs_z") ? 4 : N_ORDER;
}

/* A sampler that is not in the list is off. */
static void drop_missing(struct request_spec *spec, const bool listed[N_ORDER])
{
    if (!listed[0]) {
        spec->repetition_penalty = 1;
        spec->presence_penalty = spec->frequency_penalty = 0;
    }
    if (!listed[3])
        spec->top_k = 0;
    if (!listed[5])
        spec->top_p = 1;
    if (!listed[6])
        spec->min_p = 0;
    if (!listed[8])
        spec->temperature = 1;
}

static bool read_list(struct request_spec *spec, const struct quire_doc *body, struct api_error *e)
{
    struct quire_value list = json_field_get(body, "samplers"), rest = list, item;
    bool listed[N_ORDER] = {false};
    size_t next = 0;
    if (!list.n)
        return true;
    if (!json_is(list, QUIRE_ARRAY))
        return api_bad(e, "samplers", "must be an array of names");
    while (quire_value_next(&rest, NULL, &item)) {
        const size_t at = place_of(item);
        if (at == N_ORDER)
            return api_bad(e, "samplers", "there is no sampler %.*s", JSON_SHOWN(item));
        if (at < next && !(at == 4 && next == 5))
            return api_unsupported(e, "samplers",
                                   "only llama.cpp's order is supported: penalties, dry, top_n_sigma, "
                                   "top_k, typ_p, top_p, min_p, xtc, temperature");
        listed[at] = true;
        next = at + 1;
    }
    drop_missing(spec, listed);
    return true;
}

/* Penalties count all tokens of the context: another window would give another answer. */
static bool read_window(struct request_spec *spec, const struct quire_doc *body, struct api_error *e)
{
    int64_t n = -1;
    if (!json_field_i64(body, "repeat_last_n", -1, INT32_MAX, &n, e))
        return false;
    const bool is_used = spec->repetition_penalty != 1 || spec->presence_penalty != 0 || spec->frequency_penalty != 0;
    if (n == 0) {
        spec->repetition_penalty = 1;
        spec->presence_penalty = spec->frequency_penalty = 0;
    } else if (is_used && n != -1 && n != REPEAT_LAST_N) {
        return api_unsupported(e, "repeat_last_n",
                               "only -1, 0 and the default %d are supported with a penalty, got %lld: "
                               "penalties count the whole context",
                               REPEAT_LAST_N, (long long)n);
    }
    return true;
}

bool llama_cpp_read_samplers(struct request_spec *spec, const struct quire_doc *body, struct api_error *e)
{
    double penalty = (double)spec->repetition_penalty;
    const double seed = quire_value_double(json_field_get(body, "seed"));
    if (!llama_cpp_number(body, "repeat_penalty", 0.001, 1000, &penalty, e))
        return false;
    spec->repetition_penalty = (float)penalty;
    if (seed == -1 || seed == NO_SEED) {
        spec->has_seed = false;
        spec->seed = 0;
    }
    return read_list(spec, body, e) && read_window(spec, body, e);
}
