#include "tools/sim/workload.h"

#include "base/encoding/number.h"
#include "tools/bench/lib/draw.h"
#include "tools/bench/lib/random.h"
#include "tools/sim/sessions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES (1ull << 30)
#define DEFAULT_REQUESTS 1000u
#define MAX_REQUESTS (1u << 24)

/* Kinds of random streams. */
enum stream { STREAM_OWN = 101, STREAM_HASH, STREAM_PREFIX, STREAM_GAPS, STREAM_LENGTHS, STREAM_TENANT };

static int out_of_memory(struct quire_error *err)
{
    return quire_fail(err, QUIRE_NO_MEMORY, "the trace: out of memory");
}

/* Adds the request unless it is too long. There is space for it. */
static void take(struct sim_workload *t, const struct sim_workload_options *o, const struct sim_request *r)
{
    uint64_t total = (uint64_t)r->n_prompt + r->n_output;
    if (o->max_model_len > 0 && total > o->max_model_len) {
        t->n_left_out++;
        return;
    }
    t->requests[t->n] = *r;
    t->requests[t->n++].domain = r->tenant;
    if (r->n_prompt > t->max_prompt)
        t->max_prompt = r->n_prompt;
    if (total > t->max_total)
        t->max_total = (uint32_t)total;
}

/* ---- files ---- */

static const struct {
    const char *name;
    struct bench_workload_form form;
} formats[] = {
    {"mooncake", {.unit_ms = 1, .block_tokens = BENCH_WORKLOAD_BLOCK}},
    {"timed", {.unit_ms = 1000, .block_tokens = 16, .own_tail = true}},
    {"azure", {.unit_ms = 1, .block_tokens = BENCH_WORKLOAD_BLOCK}},
};
#define N_FORMATS (sizeof formats / sizeof formats[0])

static int read_file(const char *path, const struct bench_workload_form *form, bool needs_times,
                     struct bench_workload *out, struct quire_error *err)
{
    char *text;
    size_t n;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int status = bench_read_file(path, MAX_FILE_BYTES, &text, &n, err);
    if (status != QUIRE_OK)
        return status;
    status = bench_workload_read(text, n, name, form, out, err);
    free(text);
    if (status == QUIRE_OK && needs_times && !out->has_times)
        status = quire_fail(err, QUIRE_INVALID,
                            "%.200s: has no times; to use only its lengths: --trace-format synthetic --lengths FILE",
                            name);
    return status;
}

static bool same_lengths(const struct sim_lengths *a, const struct sim_lengths *b)
{
    return a->low == b->low && a->high == b->high && a->sigma == b->sigma;
}

static struct sim_tenant *find_tenant(const struct sim_workload *t, const char *name, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(t->tenants[i].name, name) == 0)
            return &t->tenants[i];
    return NULL;
}

/* The tenants of the file, with the values of --tenants for those it names. */
static int name_tenants(struct sim_workload *t, const struct sim_tenant *usual, struct quire_error *err)
{
    struct sim_tenant *all = calloc(t->file.n_tenants, sizeof *all);
    if (!all)
        return out_of_memory(err);
    for (uint32_t i = 0; i < t->file.n_tenants; i++) {
        const struct sim_tenant *said = find_tenant(t, t->file.tenants[i], t->n_tenants);
        all[i] = said ? *said : *usual;
        strcpy(all[i].name, t->file.tenants[i]);
    }
    free(t->tenants);
    t->tenants = all;
    t->n_tenants = t->file.n_tenants;
    return QUIRE_OK;
}

/* In a file without tenants, each request gets one, in proportion to their rates. Requests with the same second block
 * are turns of one conversation and get the same tenant, because caches are not shared between tenants. */
static uint32_t draw_tenant(const struct sim_workload *t, size_t row, double all_shares)
{
    const struct bench_workload_row *r = &t->file.rows[row];
    uint64_t key = r->n_hashes > 1 ? t->file.hashes[r->first_hash + 1] : ~(uint64_t)row;
    uint64_t state = bench_stream(t->seed, STREAM_TENANT, key);
    double at = bench_random_unit(&state) * all_shares;
    for (uint32_t i = 0; i < t->n_tenants; i++) {
        at -= t->tenants[i].rate < 0 ? 1 : t->tenants[i].rate;
        if (at < 0)
            return i;
    }
    return t->n_tenants - 1;
}

static struct sim_request request_of_row(const struct sim_workload *t, const struct sim_workload_options *o, size_t i,
                                         uint32_t tenant)
{
    const struct bench_workload_row *row = &t->file.rows[i];
    const struct sim_tenant *who = &t->tenants[tenant];
    struct sim_request r = {
        .arrival_s = row->arrival_s / o->rate_scale,
        .n_prompt = row->n_input,
        .n_output = row->n_output,
        .tenant = tenant,
        .class_index = row->class_index ? row->class_index : who->class_index,
        .priority = row->priority ? row->priority : who->priority,
        .deadline_ms = row->deadline_ms > 0 ? row->deadline_ms : who->deadline_ms,
        .hashes = t->file.hashes + row->first_hash,
        .n_hashes = row->n_hashes,
    };
    if (o->full_blocks && r.n_hashes > 0)
        r.n_prompt = r.n_hashes * t->hash_tokens + 1;
    return r;
}

/* Every value of --tenants must have an effect with a file. */
static int check_tenants(const struct sim_workload *t, const struct sim_tenant *usual, bool draws,
                         struct quire_error *err)
{
    for (uint32_t i = 0; i < t->n_tenants; i++) {
        const struct sim_tenant *who = &t->tenants[i];
        bool is_there = draws;
        for (uint32_t k = 0; k < t->file.n_tenants && !is_there; k++)
            is_there = strcmp(t->file.tenants[k], who->name) == 0;
        if (!is_there)
            return quire_fail(err, QUIRE_INVALID,
                              "--tenants: %s has no request in the file; the first tenant in the file is %s", who->name,
                              t->file.tenants[1]); /* [0] has requests without a name */
        if (!same_lengths(&who->input, &usual->input) || !same_lengths(&who->output, &usual->output) ||
            who->prefix > 0 || who->turns.low > 0)
            return quire_fail(
                err, QUIRE_INVALID,
                "--tenants: %s: input, output, prefix and turns need --trace-format synthetic, because a file "
                "has its own lengths",
                who->name);
    }
    return QUIRE_OK;
}

static int take_file(struct sim_workload *t, const struct sim_workload_options *o, const struct sim_tenant *usual,
                     const struct bench_workload_form *form, struct quire_error *err)
{
    if (!o->path)
        return quire_fail(
            err, QUIRE_INVALID,
            "--trace FILE is missing (--trace-format %s); --trace-format synthetic draws requests without a file",
            o->format);
    int status = read_file(o->path, form, true, &t->file, err);
    bool draws = t->n_tenants > 0 && t->file.n_tenants == 1;
    if (status == QUIRE_OK)
        status = check_tenants(t, usual, draws, err);
    if (status == QUIRE_OK && !draws)
        status = name_tenants(t, usual, err);
    if (status != QUIRE_OK)
        return status;
    size_t n = o->num_requests > 0 && o->num_requests < t->file.n_rows ? o->num_requests : t->file.n_rows;
    double all_shares = 0;
    for (uint32_t i = 0; i < t->n_tenants; i++)
        all_shares += t->tenants[i].rate < 0 ? 1 : t->tenants[i].rate;
    t->requests = calloc(n, sizeof *t->requests);
    if (!t->requests)
        return out_of_memory(err);
    for (size_t i = 0; i < n; i++) {
        struct sim_request r = request_of_row(t, o, i, draws ? draw_tenant(t, i, all_shares) : t->file.rows[i].tenant);
        if (o->full_blocks && (uint64_t)r.n_hashes * t->hash_tokens >= BENCH_MAX_LENGTH)
            return quire_fail(err, QUIRE_INVALID, "request %zu: %u blocks of %u tokens are more than %u", i + 1,
                              r.n_hashes, t->hash_tokens, BENCH_MAX_LENGTH);
        take(t, o, &r);
    }
    return QUIRE_OK;
}

/* ---- synthetic ---- */

struct source { /* one tenant's requests */
    uint64_t gaps, stream; /* states */
    double next_s;
    uint64_t n;
};

static uint64_t name_number(const char *name)
{
    uint64_t number = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++)
        number = (number ^ (unsigned char)*name) * 0x100000001b3u;
    return number;
}

static int parse_ramp(const char *text, double *from, double *to, struct quire_error *err)
{
    const char *at = text;
    *from = *to = 1;
    if (!text || (quire_take_number(&at, 1e6, from) && *at++ == ':' && quire_take_number(&at, 1e6, to) && !*at &&
                  *from > 0 && *to > 0))
        return QUIRE_OK;
    return quire_fail(err, QUIRE_INVALID,
                      "--ramp: \"%.40s\": must be FROM:TO, factors of the rates at the beginning and at the end, "
                      "both above 0, such as 0.5:2",
                      text);
}

static void step_source(struct source *s, const struct sim_workload_options *o, double rate, double factor)
{
    if (rate > 0)
        s->next_s += bench_draw_gamma(&s->gaps, o->burstiness) / (o->burstiness * rate * factor);
}

static struct sim_request draw_request(const struct sim_workload *t, uint32_t tenant, const struct source *s,
                                       uint64_t *state)
{
    const struct sim_tenant *who = &t->tenants[tenant];
    struct sim_request r = {.arrival_s = s->next_s,
                            .tenant = tenant,
                            .class_index = who->class_index,
                            .priority = who->priority,
                            .deadline_ms = who->deadline_ms};
    if (t->file.n_rows > 0) {
        const struct bench_workload_row *row = &t->file.rows[bench_random(state) % t->file.n_rows];
        r.n_prompt = row->n_input;
        r.n_output = row->n_output;
    } else {
        r.n_prompt = sim_lengths_draw(&who->input, state);
        r.n_output = sim_lengths_draw(&who->output, state);
    }
    if (who->prefix >= r.n_prompt)
        r.n_prompt = who->prefix + 1;
    return r;
}

/* Draws the next request of the source, or all turns of its next session. Returns their number, at most SIM_MAX_TURNS. */
static uint32_t draw_turns(const struct sim_workload *t, uint32_t tenant, struct source *s, struct sim_request *turns)
{
    const struct sim_lengths *length = &t->tenants[tenant].turns;
    uint64_t state = bench_stream(s->stream, STREAM_LENGTHS, s->n++);
    uint32_t n = length->low > 0 ? sim_lengths_draw(length, &state) : 1;
    for (uint32_t k = 0; k < n; k++) {
        turns[k] = draw_request(t, tenant, s, &state);
        turns[k].gap_s = k > 0 ? sim_session_gap(&state) : 0;
    }
    if (n > 1)
        sim_session_grow(turns, n, &state);
    return n;
}

/* Adds a session; it ends before a turn that is too long. */
static void take_turns(struct sim_workload *t, const struct sim_workload_options *o, struct sim_request *turns,
                       uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        size_t before = t->n;
        turns[k].arrival_s /= o->rate_scale;
        turns[k].previous = k > 0 ? (uint32_t)t->n : 0;
        take(t, o, &turns[k]);
        if (t->n == before) {
            t->n_left_out += n - 1 - k;
            return;
        }
        if (k > 0)
            t->requests[t->n - 2].next = (uint32_t)t->n;
    }
}

static int reserve_turns(struct sim_workload *t, size_t *capacity, struct quire_error *err)
{
    if (*capacity - t->n >= SIM_MAX_TURNS)
        return QUIRE_OK;
    *capacity = 2 * *capacity + SIM_MAX_TURNS;
    struct sim_request *grown = realloc(t->requests, *capacity * sizeof *grown);
    if (!grown)
        return out_of_memory(err);
    t->requests = grown;
    return QUIRE_OK;
}

static int draw_all(struct sim_workload *t, const struct sim_workload_options *o, size_t most, struct source *sources,
                    struct quire_error *err)
{
    double from, to;
    int status = parse_ramp(o->ramp, &from, &to, err);
    if (status != QUIRE_OK)
        return status;
    for (uint32_t i = 0; i < t->n_tenants; i++) {
        uint64_t stream = bench_stream(t->seed, STREAM_GAPS, name_number(t->tenants[i].name));
        sources[i] = (struct source){.gaps = stream, .stream = bench_random(&stream)};
        step_source(&sources[i], o, t->tenants[i].rate, from);
    }
    struct sim_request turns[SIM_MAX_TURNS];
    size_t capacity = 0;
    for (size_t made = 0; made < most && status == QUIRE_OK;) {
        uint32_t first = 0;
        for (uint32_t i = 1; i < t->n_tenants; i++)
            if (sources[i].next_s < sources[first].next_s)
                first = i;
        struct source *s = &sources[first];
        if (o->duration_s > 0 && s->next_s > o->duration_s)
            break;
        status = reserve_turns(t, &capacity, err);
        if (status != QUIRE_OK)
            break;
        uint32_t n = draw_turns(t, first, s, turns);
        double past = o->duration_s > 0 ? s->next_s / o->duration_s : (double)made / (double)most;
        step_source(s, o, t->tenants[first].rate, from + (to - from) * past);
        n = n < most - made ? n : (uint32_t)(most - made);
        take_turns(t, o, turns, n);
        made += n;
    }
    return status;
}

static int make_synthetic(struct sim_workload *t, const struct sim_workload_options *o, const struct sim_tenant *usual,
                          struct quire_error *err)
{
    size_t most = o->num_requests ? o->num_requests : o->duration_s > 0 ? MAX_REQUESTS : DEFAULT_REQUESTS;
    int status = QUIRE_OK;
    if (o->path)
        return quire_fail(err, QUIRE_INVALID,
                          "--trace-format synthetic reads no trace: leave --trace out, or set the format mooncake, "
                          "timed or azure");
    if (o->lengths_path)
        status = read_file(o->lengths_path, &bench_workload_mooncake, false, &t->file, err);
    if (status == QUIRE_OK && t->n_tenants == 0) {
        t->tenants = malloc(sizeof *t->tenants);
        if (!t->tenants)
            return out_of_memory(err);
        t->tenants[t->n_tenants++] = *usual;
    }
    if (status != QUIRE_OK)
        return status;
    for (uint32_t i = 0; i < t->n_tenants; i++) {
        if (t->tenants[i].rate < 0)
            t->tenants[i].rate = o->request_rate;
        if (o->lengths_path && (!same_lengths(&t->tenants[i].input, &usual->input) ||
                                !same_lengths(&t->tenants[i].output, &usual->output)))
            return quire_fail(err, QUIRE_INVALID,
                              "--tenants: %s: --lengths sets all lengths: leave input and output out",
                              t->tenants[i].name);
        if (t->tenants[i].rate == 0 && most == MAX_REQUESTS)
            return quire_fail(err, QUIRE_INVALID, "--duration needs --request-rate, or a rate for each of --tenants");
    }
    struct source *sources = calloc(t->n_tenants, sizeof *sources);
    status = sources ? draw_all(t, o, most, sources, err) : out_of_memory(err);
    free(sources);
    return status;
}

/* ---- opening ---- */

static int read_options(const struct sim_workload_options *o, struct sim_workload *t, struct sim_tenant *usual,
                        struct quire_error *err)
{
    *usual = (struct sim_tenant){.name = "default", .weight = 1, .group_weight = 1, .rate = -1};
    int status = sim_lengths_parse(o->input_len ? o->input_len : "512", "--input-len", &usual->input, err);
    if (status == QUIRE_OK)
        status = sim_lengths_parse(o->output_len ? o->output_len : "128", "--output-len", &usual->output, err);
    if (status == QUIRE_OK && o->tenants)
        status = sim_tenants_parse(o->tenants, usual, &t->tenants, &t->n_tenants, err);
    return status;
}

int sim_workload_open(const struct sim_workload_options *options, struct sim_workload *out, struct quire_error *err)
{
    struct sim_workload_options o = *options;
    struct sim_tenant usual;
    *out = (struct sim_workload){.seed = o.seed};
    o.rate_scale = o.rate_scale > 0 ? o.rate_scale : 1;
    o.burstiness = o.burstiness > 0 ? o.burstiness : 1;
    int status = read_options(&o, out, &usual, err);
    if (status != QUIRE_OK)
        return status;
    size_t f = 0;
    while (f < N_FORMATS && strcmp(formats[f].name, o.format) != 0)
        f++;
    if (f < N_FORMATS) {
        struct bench_workload_form form = formats[f].form;
        if (o.milliseconds)
            form.unit_ms = 1;
        if (o.hash_tokens > 0)
            form.block_tokens = o.hash_tokens;
        out->hash_tokens = form.block_tokens;
        status = take_file(out, &o, &usual, &form, err);
    } else if (strcmp(o.format, "synthetic") == 0) {
        status = make_synthetic(out, &o, &usual, err);
    } else {
        status = quire_fail(err, QUIRE_INVALID,
                            "--trace-format: \"%.40s\": must be mooncake, timed, azure, synthetic or "
                            "recording",
                            o.format);
    }
    out->n_domains = out->n_tenants;
    if (status == QUIRE_OK && out->n == 0)
        status = quire_fail(err, QUIRE_INVALID, "the trace has no request%s",
                            out->n_left_out ? " that fits into --max-model-len" : "");
    return status;
}

void sim_workload_close(struct sim_workload *workload)
{
    free(workload->requests);
    free(workload->tenants);
    bench_workload_free(&workload->file);
    *workload = (struct sim_workload){0};
}

/* ---- prompts ---- */

/* Ids for (number, offset): two words of 31 bits of the number, alternately. Two numbers give equal ids with a
 * probability of 2^-62, and computing them costs no more than storing them. */
static void fill(uint64_t number, uint32_t *out, size_t n)
{
    uint32_t low = (uint32_t)number, high = (uint32_t)(number >> 32);
    for (size_t i = 0; i < n; i++)
        out[i] = ((i & 1 ? high : low) + (uint32_t)i * 0x9e3779b1u) & 0x7fffffffu;
}

uint32_t sim_workload_token(uint32_t i, uint32_t at)
{
    return (i * 0x9e3779b1u + at * 0x85ebca6bu) & 0x7fffffffu;
}

/* The prompt of a later turn goes on from the prompt and the answer before it. */
static void write_turn(const struct sim_workload *workload, size_t i, uint32_t *out)
{
    const struct sim_request *r = &workload->requests[i], *before = &workload->requests[r->previous - 1];
    uint32_t at = before->n_prompt;
    sim_workload_prompt(workload, r->previous - 1, out);
    for (uint32_t k = 0; k < before->n_output && at < r->n_prompt; k++)
        out[at++] = sim_workload_token(r->previous - 1, k);
    fill(bench_stream(workload->seed, STREAM_OWN, i), out + at, r->n_prompt - at);
}

void sim_workload_prompt(const struct sim_workload *workload, size_t i, uint32_t *out)
{
    const struct sim_request *r = &workload->requests[i];
    uint32_t at = 0;
    if (workload->read_prompt) {
        workload->read_prompt(workload->context, i, out);
        return;
    }
    if (r->previous > 0) {
        write_turn(workload, i, out);
        return;
    }
    for (uint32_t h = 0; h < r->n_hashes && at < r->n_prompt; h++) {
        uint32_t left = r->n_prompt - at, n = left < workload->hash_tokens ? left : workload->hash_tokens;
        fill(bench_stream(workload->seed, STREAM_HASH, r->hashes[h]), out + at, n);
        at += n;
    }
    if (r->n_hashes == 0) {
        at = workload->tenants[r->tenant].prefix < r->n_prompt ? workload->tenants[r->tenant].prefix : r->n_prompt;
        fill(bench_stream(workload->seed, STREAM_PREFIX, r->tenant), out, at);
    }
    fill(bench_stream(workload->seed, STREAM_OWN, i), out + at, r->n_prompt - at);
}
