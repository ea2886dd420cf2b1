#include "tools/sim/sweep.h"

#include "app/command/progress.h"
#include "tools/sim/metrics.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct key {
    char *name;     /* as typed; points into `text` */
    const char *option;
    char *values[CLI_MAX_LIST];
    size_t n_values;
    char *text;
};

/* ---- the product ---- */

static const char *option_of(const char *name)
{
    static const char *const shorts[][2] = {{"policy", "scheduling-policy"},
                                            {"budget", "max-num-batched-tokens"},
                                            {"blocks", "num-kv-blocks"},
                                            {"seqs", "max-num-seqs"}};
    for (size_t i = 0; i < sizeof shorts / sizeof shorts[0]; i++)
        if (strcmp(name, shorts[i][0]) == 0)
            return shorts[i][1];
    return name;
}

/* Each option occurs once, and only options with an effect on a simulation. */
static int check_option(const struct key *keys, size_t n, struct quire_error *err)
{
    static const char *const of_output[] = {"sweep", "save", "html"};
    const struct key *last = &keys[n - 1];
    for (size_t i = 0; i < sizeof of_output / sizeof of_output[0]; i++)
        if (strcmp(last->option, of_output[i]) == 0)
            return quire_fail(err, QUIRE_INVALID, "--sweep: %s: has no effect in a simulation", last->name);
    for (size_t i = 0; i + 1 < n; i++)
        if (strcmp(last->option, keys[i].option) == 0)
            return quire_fail(err, QUIRE_INVALID, "--sweep: %s occurs twice: set all its values at once, %s=A,B",
                              last->name, last->name);
    return QUIRE_OK;
}

static int parse_key(const char *text, struct key *out, struct quire_error *err)
{
    char *rest = NULL;
    out->text = strdup(text);
    if (!out->text)
        return quire_fail(err, QUIRE_NO_MEMORY, "--sweep: out of memory");
    char *values = strchr(out->text, '=');
    if (!values || values == out->text)
        return quire_fail(err, QUIRE_INVALID,
                          "--sweep: \"%.60s\": must be OPTION=VALUE,VALUE,…, such as "
                          "policy=fcfs,sjf",
                          text);
    *values++ = 0;
    out->name = out->text;
    out->option = option_of(out->name);
    for (char *v = strtok_r(values, ",", &rest); v; v = strtok_r(NULL, ",", &rest)) {
        if (out->n_values == CLI_MAX_LIST)
            return quire_fail(err, QUIRE_INVALID, "--sweep: %.40s: more than %d values", out->name, CLI_MAX_LIST);
        out->values[out->n_values++] = v;
    }
    return out->n_values > 0 ? QUIRE_OK : quire_fail(err, QUIRE_INVALID, "--sweep: %.40s: has no values", out->name);
}

/* Run i of the product: the last key's value changes fastest. */
static bool make_run(const struct key *keys, size_t n_keys, size_t i, struct sim_sweep_run *run)
{
    size_t at[SIM_SWEEP_MAX_KEYS], n = 1;
    for (size_t k = n_keys; k-- > 0;) {
        at[k] = i % keys[k].n_values;
        i /= keys[k].n_values;
    }
    for (size_t k = 0; k < n_keys; k++)
        n += strlen(keys[k].name) + strlen(keys[k].values[at[k]]) + 2;
    run->label = calloc(n, 1);
    for (size_t k = 0; k < n_keys && run->label; k++) {
        sprintf(run->label + strlen(run->label), "%s%s=%s", k ? " " : "", keys[k].name, keys[k].values[at[k]]);
        if (asprintf(&run->arguments[k], "--%s=%s", keys[k].option, keys[k].values[at[k]]) < 0) {
            run->arguments[k] = NULL;
            return false;
        }
        run->n_arguments++;
    }
    return run->label != NULL;
}

int sim_sweep_create(const struct cli_list *texts, struct sim_sweep *out, struct quire_error *err)
{
    struct key keys[SIM_SWEEP_MAX_KEYS] = {{0}};
    int status = QUIRE_OK;
    size_t n = 1;
    *out = (struct sim_sweep){0};
    if (texts->n > SIM_SWEEP_MAX_KEYS)
        return quire_fail(err, QUIRE_INVALID, "--sweep: more than %d options", SIM_SWEEP_MAX_KEYS);
    for (size_t k = 0; k < texts->n && status == QUIRE_OK; k++) {
        status = parse_key(texts->items[k], &keys[k], err);
        if (status == QUIRE_OK)
            status = check_option(keys, k + 1, err);
        n *= keys[k].n_values ? keys[k].n_values : 1;
        if (status == QUIRE_OK && n > SIM_SWEEP_MAX_RUNS)
            status = quire_fail(err, QUIRE_INVALID, "--sweep: more than %d simulations", SIM_SWEEP_MAX_RUNS);
    }
    if (status == QUIRE_OK)
        out->runs = calloc(n, sizeof *out->runs);
    if (status == QUIRE_OK && !out->runs)
        status = quire_fail(err, QUIRE_NO_MEMORY, "--sweep: out of memory");
    for (size_t i = 0; i < n && status == QUIRE_OK; i++, out->n++)
        if (!make_run(keys, texts->n, i, &out->runs[i]))
            status = quire_fail(err, QUIRE_NO_MEMORY, "--sweep: out of memory");
    for (size_t k = 0; k < texts->n; k++)
        free(keys[k].text);
    return status;
}

void sim_sweep_free(struct sim_sweep *sweep)
{
    for (size_t i = 0; i < sweep->n; i++) {
        free(sweep->runs[i].label);
        for (size_t k = 0; k < sweep->runs[i].n_arguments; k++)
            free(sweep->runs[i].arguments[k]);
        json_decref(sweep->runs[i].result);
    }
    free(sweep->runs);
    *sweep = (struct sim_sweep){0};
}

/* ---- running ---- */

struct pool {
    struct sim_sweep *sweep;
    json_t *(*one)(void *context, struct sim_sweep_run *run);
    void *context;
    pthread_mutex_t mutex;
    size_t next, done;
    struct bench_progress progress;
};

static void add_settings(const struct sim_sweep_run *run)
{
    json_t *settings = json_object();
    for (size_t k = 0; k < run->n_arguments; k++) {
        const char *name = run->arguments[k] + 2, *value = strchr(name, '=');
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)(value - name), name);
        json_object_set_new(settings, key, json_string(value + 1));
    }
    json_object_set_new(run->result, "sweep", settings);
}

static void *work(void *argument)
{
    struct pool *p = argument;
    pthread_mutex_lock(&p->mutex);
    while (p->next < p->sweep->n) {
        struct sim_sweep_run *run = &p->sweep->runs[p->next++];
        pthread_mutex_unlock(&p->mutex);
        run->result = p->one(p->context, run);
        if (run->result)
            add_settings(run);
        pthread_mutex_lock(&p->mutex);
        bench_progress_set(&p->progress, ++p->done);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

static size_t count_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0 ? (size_t)CPU_COUNT(&set) : 1;
}

int sim_sweep_execute(struct sim_sweep *sweep, json_t *(*one)(void *context, struct sim_sweep_run *run), void *context,
                      struct quire_error *err)
{
    struct pool p = {.sweep = sweep, .one = one, .context = context};
    size_t n = count_cores(), started = 0;
    if (n > sweep->n)
        n = sweep->n;
    pthread_t *threads = calloc(n, sizeof *threads);
    if (!threads)
        return quire_fail(err, QUIRE_NO_MEMORY, "--sweep: out of memory");
    pthread_mutex_init(&p.mutex, NULL);
    bench_progress_begin(&p.progress, "simulations", sweep->n);
    while (started + 1 < n && pthread_create(&threads[started], NULL, work, &p) == 0)
        started++;
    work(&p);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    bench_progress_end(&p.progress);
    pthread_mutex_destroy(&p.mutex);
    free(threads);
    return QUIRE_OK;
}

/* ---- the table ---- */

static const struct column {
    const char *heading, *path[3]; /* members, the outermost first; the first of a time ends in _ms */
    double scale;
    int better; /* -1: less, 1: more */
} columns[] = {
    {"TTFT mean", {"ttft_ms", "mean"}, 1, -1},
    {"TTFT p95", {"ttft_ms", "p95"}, 1, -1},
    {"TPOT mean", {"tpot_ms", "mean"}, 1, -1},
    {"ITL p99", {"itl_ms", "p99"}, 1, -1},
    {"E2E mean", {"e2el_ms", "mean"}, 1, -1},
    {"E2E p95", {"e2el_ms", "p95"}, 1, -1},
    {"out tok/s", {"output_throughput"}, 1, 1},
    {"goodput/s", {"goodput"}, 1, 1},
    {"hits %", {"prefix_hit_rate_blocks"}, 100, 1},
    {"preempted", {"preemptions"}, 1, -1},
    {"gap", {"fairness_gap_tokens"}, 1, -1},
    {"tokens/step", {"speculation", "tokens_per_step"}, 1, 1},
    {"TPOT gain", {"speculation", "gain", "tpot_ms"}, 1, 1},
    {"out gain", {"speculation", "gain", "output_throughput"}, 1, 1},
};
#define N_COLUMNS (sizeof columns / sizeof columns[0])

static double value_of(const struct sim_sweep_run *run, const struct column *c)
{
    const json_t *value = run->result;
    for (size_t i = 0; i < 3 && c->path[i]; i++)
        value = json_object_get(value, c->path[i]);
    return json_is_number(value) ? json_number_value(value) * c->scale : NAN;
}

/* Not every sweep has drafts or limits. */
static bool is_known(const struct sim_sweep *sweep, const struct column *c)
{
    size_t i = 0;
    while (i < sweep->n && isnan(value_of(&sweep->runs[i], c)))
        i++;
    return i < sweep->n;
}

static double best_of(const struct sim_sweep *sweep, const struct column *c)
{
    double best = NAN, worst = NAN;
    for (size_t i = 0; i < sweep->n; i++) {
        double x = value_of(&sweep->runs[i], c);
        if (!(x * c->better <= best * c->better))
            best = isnan(x) ? best : x;
        if (!(x * c->better >= worst * c->better))
            worst = isnan(x) ? worst : x;
    }
    return best != worst ? best : NAN; /* no best value if all are equal */
}

static void print_value(const struct column *c, double x, bool is_best)
{
    char text[24];
    int decimals = fabs(x) < 100 ? 2 : 0;
    if (strstr(c->path[0], "_ms"))
        sim_time_text(x, decimals, text);
    else
        snprintf(text, sizeof text, "%.*f", decimals, x);
    printf(" %11s%c", text, is_best ? '*' : ' ');
}

void sim_sweep_print(const struct sim_sweep *sweep)
{
    double best[N_COLUMNS];
    bool known[N_COLUMNS];
    size_t width = 10;
    for (size_t i = 0; i < sweep->n; i++)
        width = strlen(sweep->runs[i].label) > width ? strlen(sweep->runs[i].label) : width;
    printf("%-*s", (int)width, "");
    for (size_t c = 0; c < N_COLUMNS; c++) {
        best[c] = best_of(sweep, &columns[c]);
        known[c] = is_known(sweep, &columns[c]);
        if (known[c])
            printf(" %11s ", columns[c].heading);
    }
    for (size_t i = 0; i < sweep->n; i++) {
        const struct sim_sweep_run *run = &sweep->runs[i];
        printf("\n%-*s", (int)width, run->label);
        if (!run->result)
            printf(" %s", run->err.text);
        for (size_t c = 0; run->result && c < N_COLUMNS; c++) {
            double x = value_of(run, &columns[c]);
            if (known[c] && isnan(x))
                printf(" %11s ", "-");
            else if (known[c])
                print_value(&columns[c], x, x == best[c]);
        }
    }
    puts("\n* best value of its column. Times are in milliseconds, or seconds (s), the gap in weighted tokens.");
    /* A sweep over cost models has the machine in each label. */
    const char *machine = json_string_value(json_object_get(sweep->runs[0].result, "machine")),
               *label = sweep->runs[0].label;
    if (machine && !strstr(label, "cost-model="))
        printf("Machine: %s\n", machine);
}
