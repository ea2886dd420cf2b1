#include "tools/sim/tenants.h"

#include "base/encoding/number.h"
#include "tools/bench/lib/draw.h"
#include "tools/bench/lib/random.h"
#include "tools/sim/sessions.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads a number at *text and moves *text behind it. */
static bool take_number(const char **text, double min, double max, bool whole, double *out)
{
    char *end;
    if (!whole)
        return quire_take_number(text, max, out) && *out >= min;
    if (!isdigit((unsigned char)(*text)[**text == '-']))
        return false;
    *out = (double)strtoll(*text, &end, 10);
    *text = end;
    return *out >= min && *out <= max;
}

static bool parse_lengths(const char *text, struct sim_lengths *out)
{
    double low, high;
    *out = (struct sim_lengths){0};
    if (!take_number(&text, 1, BENCH_MAX_LENGTH, true, &low))
        return false;
    high = low;
    if (*text == '~') {
        text++;
        if (!take_number(&text, 0, 10, false, &out->sigma))
            return false;
    } else if (text[0] == '.' && text[1] == '.') {
        text += 2;
        if (!take_number(&text, low, BENCH_MAX_LENGTH, true, &high))
            return false;
    }
    out->low = (uint32_t)low;
    out->high = (uint32_t)high;
    return *text == 0;
}

int sim_lengths_parse(const char *text, const char *what, struct sim_lengths *out, struct quire_error *err)
{
    if (parse_lengths(text, out))
        return QUIRE_OK;
    return quire_fail(
        err, QUIRE_INVALID,
        "%s: \"%.40s\": must be a number of tokens: 512, 100..900 (uniform) or 512~0.8 (lognormal: median and "
        "sigma), each from 1 to %u",
        what, text, BENCH_MAX_LENGTH);
}

uint32_t sim_lengths_draw(const struct sim_lengths *lengths, uint64_t *state)
{
    if (lengths->sigma > 0) {
        double n = floor(lengths->low * bench_draw_lognormal(state, lengths->sigma) + 0.5);
        return n < 1 ? 1 : n > BENCH_MAX_LENGTH ? BENCH_MAX_LENGTH : (uint32_t)n;
    }
    return lengths->low + (uint32_t)(bench_random(state) % (lengths->high - lengths->low + 1));
}

static int set_number(const char *key, const char *value, double min, double max, bool whole, double *out,
                      struct quire_error *err)
{
    const char *at = value;
    if (take_number(&at, min, max, whole, out) && *at == 0)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID, "--tenants: %s=%.40s: must be a %snumber from %g to %g", key, value,
                      whole ? "whole " : "", min, max);
}

static int parse_turns(const char *text, struct sim_lengths *out, struct quire_error *err)
{
    if (parse_lengths(text, out) && out->sigma == 0 && out->high <= SIM_MAX_TURNS)
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID, "--tenants: turns=%.40s: must be a number from 1 to %u, or a range: 10..50",
                      text, SIM_MAX_TURNS);
}

static int set_key(struct sim_tenant *t, const char *key, const char *value, struct quire_error *err)
{
    double number = 0;
    int status = QUIRE_OK;
    if (strcmp(key, "input") == 0)
        return sim_lengths_parse(value, "--tenants: input", &t->input, err);
    if (strcmp(key, "output") == 0)
        return sim_lengths_parse(value, "--tenants: output", &t->output, err);
    if (strcmp(key, "turns") == 0)
        return parse_turns(value, &t->turns, err);
    if (strcmp(key, "rate") == 0)
        return set_number(key, value, 1e-9, 1e9, false, &t->rate, err);
    if (strcmp(key, "deadline") == 0)
        return set_number(key, value, 0, 1e9, false, &t->deadline_ms, err);
    if (strcmp(key, "group") == 0) {
        if (!bench_workload_is_name(value, strlen(value)))
            return quire_fail(err, QUIRE_INVALID,
                              "--tenants: group=%.40s: a name must have 1 to %u letters, digits and ._-", value,
                              BENCH_WORKLOAD_MAX_NAME);
        strcpy(t->group, value);
    } else if (strcmp(key, "group-weight") == 0) {
        status = set_number(key, value, 1, 1000, true, &number, err);
        t->group_weight = (uint32_t)number;
    } else if (strcmp(key, "max-seats") == 0) {
        status = set_number(key, value, 0, UINT32_MAX, true, &number, err);
        t->max_seats = (uint32_t)number;
    } else if (strcmp(key, "max-kv-blocks") == 0) {
        status = set_number(key, value, 0, UINT32_MAX, true, &number, err);
        t->max_kv_blocks = (uint32_t)number;
    } else if (strcmp(key, "weight") == 0) {
        status = set_number(key, value, 1, 1000, true, &number, err);
        t->weight = (uint32_t)number;
    } else if (strcmp(key, "prefix") == 0) {
        status = set_number(key, value, 0, BENCH_MAX_LENGTH, true, &number, err);
        t->prefix = (uint32_t)number;
    } else if (strcmp(key, "class") == 0) {
        status = set_number(key, value, 0, 7, true, &number, err);
        t->class_index = (uint32_t)number;
    } else if (strcmp(key, "priority") == 0) {
        status = set_number(key, value, INT32_MIN, INT32_MAX, true, &number, err);
        t->priority = (int32_t)number;
    } else {
        status = quire_fail(err, QUIRE_INVALID,
                            "--tenants: \"%.40s\": must be weight, group, group-weight, max-seats, max-kv-blocks, "
                            "rate, input, output, prefix, turns, class, priority or deadline",
                            key);
    }
    return status;
}

/* "a:weight=2:rate=1"; modifies the text. */
static int parse_tenant(char *text, struct sim_tenant *out, struct quire_error *err)
{
    char *rest, *name = strtok_r(text, ":", &rest);
    if (!name || !bench_workload_is_name(name, strlen(name)))
        return quire_fail(err, QUIRE_INVALID, "--tenants: \"%.40s\": a name must have 1 to %u letters, digits and ._-",
                          name ? name : "", BENCH_WORKLOAD_MAX_NAME);
    strcpy(out->name, name);
    for (char *pair = strtok_r(NULL, ":", &rest); pair; pair = strtok_r(NULL, ":", &rest)) {
        char *value = strchr(pair, '=');
        if (!value)
            return quire_fail(err, QUIRE_INVALID, "--tenants: %s: \"%.40s\": must be KEY=VALUE", name, pair);
        *value++ = 0;
        int status = set_key(out, pair, value, err);
        if (status != QUIRE_OK)
            return status;
    }
    return QUIRE_OK;
}

static int check_pair(const struct sim_tenant *a, const struct sim_tenant *b, struct quire_error *err)
{
    if (strcmp(a->name, b->name) == 0)
        return quire_fail(err, QUIRE_INVALID, "--tenants: %s occurs twice", a->name);
    if (a->group[0] && strcmp(a->group, b->group) == 0 && a->group_weight != b->group_weight)
        return quire_fail(err, QUIRE_INVALID, "--tenants: group-weight: %s has %u in %s and %u in %s", a->group,
                          a->group_weight, a->name, b->group_weight, b->name);
    return QUIRE_OK;
}

static int add_tenants(char *text, const struct sim_tenant *usual, struct sim_tenant *tenants, uint32_t *n,
                       struct quire_error *err)
{
    char *rest;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        tenants[*n] = *usual;
        int status = parse_tenant(one, &tenants[*n], err);
        for (uint32_t i = 0; status == QUIRE_OK && i < *n; i++)
            status = check_pair(&tenants[i], &tenants[*n], err);
        if (status != QUIRE_OK)
            return status;
        ++*n;
    }
    return *n > 0 ? QUIRE_OK : quire_fail(err, QUIRE_INVALID, "--tenants: has no tenant");
}

int sim_tenants_parse(const char *text, const struct sim_tenant *usual, struct sim_tenant **out, uint32_t *n,
                      struct quire_error *err)
{
    size_t most = 1;
    for (const char *c = text; *c; c++)
        most += *c == ',';
    *out = NULL;
    *n = 0;
    if (most > BENCH_WORKLOAD_MAX_TENANTS)
        return quire_fail(err, QUIRE_INVALID, "--tenants: more than %u tenants", BENCH_WORKLOAD_MAX_TENANTS);
    char *copy = strdup(text);
    struct sim_tenant *tenants = calloc(most, sizeof *tenants);
    int status = copy && tenants ? add_tenants(copy, usual, tenants, n, err)
                                 : quire_fail(err, QUIRE_NO_MEMORY, "--tenants: out of memory");
    free(copy);
    if (status != QUIRE_OK) {
        free(tenants);
        return status;
    }
    *out = tenants;
    return QUIRE_OK;
}

struct sched_tenant sim_tenant_share(const struct sim_tenant *tenants, uint32_t index)
{
    const struct sim_tenant *t = &tenants[index];
    struct sched_tenant share = {.weight = t->weight,
                                 .group_weight = t->group_weight,
                                 .max_seats = t->max_seats,
                                 .max_kv_blocks = t->max_kv_blocks};
    for (uint32_t i = 0; t->group[0] && i <= index; i++)
        if (strcmp(tenants[i].group, t->group) == 0) {
            share.group = i + 1; /* of its first tenant */
            return share;
        }
    return share;
}
