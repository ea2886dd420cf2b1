/* Every case of the table on one backend:
 *   against f64, within derived tolerances;
 *   against the page, bit for bit; what tensor cores compute only on the emulator, whose sums have an order;
 *   every row of the backend's table of kernels (kernels/kernel_table.h) that takes the case: the same bits;
 *   gemm_gated against gemm and the page's gate of what that gave, bit for bit;
 *   the same bits for 1, 2 and 3 threads (on a GPU: for other numbers of multiprocessors and another order of threads,
 *   as far as the emulator can be asked for them), for any cut into calls, and for any block layout;
 *   a NaN in one token's input stays in that token's output, and so does an infinity in its V;
 *   guards, inputs and other slots of the cache untouched.
 *
 * kernels_test [--backend ref] [--case SUBSTRING] [--part I/N: each Nth case] [--exact: tensor cores add as the page says, so
 * the mma form is compared bit for bit on hardware too]; `quire bench kernels` times the same table. With QUIRE_ISOLATE=1 a
 * case that dies takes no other with it. */
#include "kernels/planner.h"
#include "kernels/cases/op_run.h"
#include "kernels/open.h"
#include "tests/isolate_print.h"
#include "tests/kernels/oracle.h"
#include "tests/kernels/page.h"
#include "tests/sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_SETTINGS 3
#define CASE_LIMIT_S 60 /* isolated: the longest takes 10 s, of the page on one core */

/* What may differ from run to run and moves no bit. The emulator of GPUs takes its settings from the environment. */
static const struct {
    uint32_t n_threads;
    const char *multiprocessors, *thread_order, *streams;
} settings[N_SETTINGS] = {{1, "4", "forward", "late"}, {2, "1", "reverse", "late"}, {3, "7", "random", "random"}};

struct options {
    const char *backend;
    const char *filter;
    unsigned part, n_parts; /* part of 1...n_parts */
    bool exact;
};

struct backends { /* [form][setting]; NULL: a form that the backend does not have */
    struct k_backend *b[K_N_FORMS][N_SETTINGS];
};

static bool has_form(const char *backend, enum k_gemm_form form)
{
    bool is_gpu = strcmp(backend, "cuda") == 0;
    return form == K_FORM_LANE || form == K_FORM_INT8 || (form == K_FORM_MMA) == is_gpu;
}

static struct k_backend *open_backend(const char *name, uint32_t setting, enum k_gemm_form form)
{
    struct quire_error err;
    struct k_backend *b;
    const char *why;
    struct k_backend_options options = {.device = name, .n_threads = settings[setting].n_threads, .form = form};
    setenv("QUIRE_SIMT_SMS", settings[setting].multiprocessors, 1);
    int status = k_backend_open(&options, &b, &why, &err);
    if (status != QUIRE_OK) {
        bool is_lacking = status == QUIRE_UNSUPPORTED && strcmp(name, "ref") != 0; /* the machine */
        printf("%s backend %s: %s\n", is_lacking ? "skipped:" : "cannot open", name, err.text);
        exit(is_lacking ? 77 : 1);
    }
    return b;
}

static bool is_emulated(const struct k_backend *b)
{
    return strstr(b->description, "SIMT emulator") != NULL;
}

/* The backend of a setting, for the next operations. */
static struct k_backend *with(struct k_backend *const *b, uint32_t setting)
{
    setenv("QUIRE_SIMT_ORDER", settings[setting].thread_order, 1);
    setenv("QUIRE_SIMT_STREAMS", settings[setting].streams, 1);
    return b[setting];
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Equal bits, except that any NaN equals any other. */
static bool same_element(const struct op_array *a, const unsigned char *x, const unsigned char *y)
{
    if (a->element_bytes == 1)
        return *x == *y;
    if (a->element_bytes == 2) {
        uint16_t p, q;
        memcpy(&p, x, 2);
        memcpy(&q, y, 2);
        return p == q || ((p & 0x7fff) > 0x7c00 && (q & 0x7fff) > 0x7c00);
    }
    float p, q;
    memcpy(&p, x, 4);
    memcpy(&q, y, 4);
    return memcmp(x, y, 4) == 0 || (isnan(p) && isnan(q));
}

static bool same_result(const struct k_sample_result *a, const struct k_sample_result *b)
{
    if (a->bad_logits || b->bad_logits)
        return a->bad_logits == b->bad_logits;
    if (a->token != b->token || a->rank != b->rank || a->n_top != b->n_top ||
        memcmp(&a->logprob, &b->logprob, sizeof a->logprob) != 0)
        return false;
    return memcmp(a->top_ids, b->top_ids, a->n_top * sizeof *a->top_ids) == 0 &&
           memcmp(a->top_logprobs, b->top_logprobs, a->n_top * sizeof *a->top_logprobs) == 0;
}

/* Rows of all tokens but `skip`. */
static bool same_output(const struct op_case *c, const struct op_output *x, const struct op_output *y, uint32_t skip,
                        const char *what)
{
    for (uint32_t a = 0; a < x->n_outputs; a++) {
        const struct op_array *array = &x->arrays[a];
        size_t step = array->element_bytes;
        for (uint64_t t = 0; t < x->n_tokens; t++) {
            for (size_t at = t * array->token_bytes; t != skip && at < (t + 1) * array->token_bytes; at += step) {
                const unsigned char *p = array->bytes + at, *q = y->arrays[a].bytes + at;
                bool same = c->op == K_OP_SAMPLE ? same_result((const void *)p, (const void *)q)
                                                 : same_element(array, p, q);
                if (!same) {
                    printf("  %s: output %u, token %llu, element %zu differs\n", what, a, (unsigned long long)t,
                           (at - t * array->token_bytes) / step);
                    return false;
                }
            }
        }
    }
    return true;
}

static bool has_nan(const struct op_output *out, uint32_t token)
{
    const struct op_array *a = &out->arrays[0];
    for (size_t i = 0; i < a->token_bytes / 4; i++) {
        float x;
        memcpy(&x, a->bytes + token * a->token_bytes + 4 * i, 4);
        if (isnan(x))
            return true;
    }
    return false;
}

/* ---- one case -------------------------------------------------------------------------------- */

static bool is_child; /* of a test that runs its cases in processes of their own */

/* op_run(), whose failure is printed. A device that failed may be broken: the next cases need another process. */
static bool run(struct k_backend *b, const struct op_case *c, const struct op_data *d, const struct op_variant *variant,
                struct op_output *out)
{
    struct quire_error err;
    if (op_run(b, c, d, variant, out, &err) == QUIRE_OK)
        return true;
    printf("FAILED: %s\n", err.text);
    fflush(stdout);
    if (is_child)
        _exit(ISOLATE_BROKEN);
    return false;
}

static bool variant_equals(struct k_backend *b, const struct op_case *c, const struct op_data *d,
                           const struct op_variant *variant, const struct op_output *want, const char *what)
{
    struct op_output out;
    bool ok = run(b, c, d, variant, &out) && same_output(c, want, &out, UINT32_MAX, what);
    op_output_free(&out);
    return ok;
}

/* More than a second for each run of it, where a GPU is emulated: it gets the fewest runs that differ in everything. */
static bool is_heavy(const struct k_backend *b, const struct op_case *c)
{
    return is_emulated(b) && op_is_gemm(c) && (uint64_t)c->n_tokens * c->n_rows > 1u << 17;
}

static bool check_invariance(struct k_backend *const *b, const struct op_case *c, const struct op_data *d,
                             const struct op_output *want)
{
    static const uint32_t chunks[] = {1, 3, 16};
    bool ok = true;
    if (is_heavy(b[0], c))
        return variant_equals(with(b, 2), c, d, &(struct op_variant){.chunk = 16}, want, "chunks");
    /* Attention's block layouts below come with cuts and settings: enough where a GPU is emulated, which takes its time. */
    bool is_covered = is_emulated(b[0]) && c->op == K_OP_ATTENTION;
    for (uint32_t i = 0; i < N_SETTINGS && !is_covered; i++)
        ok = variant_equals(with(b, i), c, d, &(struct op_variant){0}, want, "settings") && ok;
    for (uint32_t i = 0; i < 3 && !is_covered; i++) {
        struct op_variant variant = {.chunk = chunks[i]};
        ok = variant_equals(with(b, i), c, d, &variant, want, "chunks") && ok;
    }
    if (c->op == K_OP_KV_COPY)
        ok = variant_equals(with(b, 2), c, d, &(struct op_variant){.table_seed = 7}, want, "block layout") && ok;
    if (c->op == K_OP_ROPE_KV || c->op == K_OP_ATTENTION) {
        static const uint32_t blocks[] = {8, 16, 32, 1, 48};
        for (uint32_t i = 0; i < 5; i++) {
            struct op_variant variant = {.chunk = i, .block_tokens = blocks[i], .table_seed = 7 + i};
            ok = variant_equals(with(b, i % N_SETTINGS), c, d, &variant, want, "block layout") && ok;
        }
    }
    return ok;
}

#define MOST_ROWS 64u
static uint32_t row_cases[K_N_OPERATIONS][MOST_ROWS]; /* cases that each row has computed because it was forced */

/* Forces each row of the operation's table. A row of another form, or that does not take the case, leaves the choice to
 * the table: the case has run already. */
static bool check_rows(struct k_backend *b, const struct op_case *c, const struct op_data *d,
                       const struct op_output *want)
{
    const struct k_kernel *row;
    bool ok = true;
    for (uint32_t i = 0; b->ops->kernel_at && (row = b->ops->kernel_at(c->op, i)) && !is_heavy(b, c); i++) {
        if (!(row->forms & K_FORM_BIT(b->form)) && c->op != K_OP_ATTENTION)
            continue;
        const uint64_t before = b->choice.n_only;
        b->choice.only = row;
        ok = variant_equals(b, c, d, &(struct op_variant){0}, want, row->name) && ok;
        row_cases[c->op][i] += b->choice.n_only > before;
    }
    b->choice.only = NULL;
    return ok;
}

static void print_rows(const struct k_backend *b)
{
    const struct k_kernel *row;
    for (int op = 0; op < K_N_OPERATIONS && b->ops->kernel_at; op++)
        for (uint32_t i = 0; (row = b->ops->kernel_at((enum k_operation)op, i)); i++)
            printf("%s, kernel %s: forced on %u cases\n", k_operation_name((enum k_operation)op), row->name,
                   row_cases[op][i]);
}

/* A NaN in the middle token's input: that token's output has one, all others are as they were. */
static bool check_isolation(struct k_backend *b, const struct op_case *c, struct op_data *d,
                            const struct op_output *want)
{
    uint32_t n_tokens = op_n_tokens(c), token = n_tokens / 2;
    const bool is_per_token = c->op != K_OP_GATHER && c->op != K_OP_SAMPLE && c->op != K_OP_POOL;
    if (n_tokens < 2 || d->x_width == 0 || !is_per_token)
        return true;
    float *at = &d->x[(uint64_t)token * d->x_width], saved = *at;
    *at = NAN;
    float *second = d->sink_q ? &d->sink_q[(uint64_t)token * c->n_q_heads * c->head_dim] : NULL;
    const float saved_second = second ? *second : 0;
    if (second) /* both come from the same q */
        *second = NAN;
    struct op_output out;
    const bool has_run = run(b, c, d, &(struct op_variant){0}, &out);
    bool ok = has_run && same_output(c, want, &out, token, "a NaN elsewhere");
    /* A scale that is stated knows no NaN: it makes a zero of it. */
    const bool is_swallowed = c->form == K_FORM_INT8 && op_stored(c).x_scale != 0;
    if (has_run && !is_swallowed && !has_nan(&out, token)) {
        printf("  a NaN was swallowed\n");
        ok = false;
    }
    op_output_free(&out);
    *at = saved;
    if (second)
        *second = saved_second;
    return ok;
}

/* An infinity in V of a sequence's last position: its other tokens do not read it and are as they were, whoever they share
 * a tile with. */
static bool check_masked_values(struct k_backend *b, const struct op_case *c, struct op_data *d,
                                const struct op_output *want)
{
    uint32_t last = 0, seq = 0;
    for (uint32_t s = 0, token = 0; c->op == K_OP_ATTENTION && s < op_n_seqs(c); s++) {
        token += c->seqs[s].n_tokens;
        if (c->seqs[s].n_tokens > 1 && last == 0) {
            last = token - 1;
            seq = s;
        }
    }
    if (last == 0 || c->whole)
        return true;
    uint64_t position = c->seqs[seq].position + c->seqs[seq].n_tokens - 1,
             width = (uint64_t)c->n_kv_heads * c->head_dim;
    const bool is_byte = op_has_byte_cache(c); /* whose infinities are a scale of NaN */
    size_t bytes = is_byte ? sizeof(float) : k_dtype_bytes(c->dtype);
    uint64_t row = d->kv_start[seq] + position;
    unsigned char saved[4], *at = is_byte ? (unsigned char *)(d->v_scales + row * c->n_kv_heads)
                                          : (unsigned char *)d->v + row * width * bytes;
    memcpy(saved, at, bytes);
    if (c->dtype == K_F16)
        memcpy(at, &(uint16_t){0x7c00}, bytes);
    else if (is_byte)
        memcpy(at, &(float){NAN}, bytes);
    else
        memcpy(at, &(float){INFINITY}, bytes);
    struct op_output out;
    bool ok = run(b, c, d, &(struct op_variant){0}, &out) &&
              same_output(c, want, &out, last, "an infinite V that is masked");
    op_output_free(&out);
    memcpy(at, saved, bytes);
    return ok;
}

/* The MLP's gate in one operation and in two: the same bits. */
static bool check_two_steps(struct k_backend *b, const struct op_case *c, struct op_data *d,
                            const struct op_output *want)
{
    struct op_case alone = *c;
    struct op_output gate_up, out;
    if (c->op != K_OP_GEMM_GATED)
        return true;
    alone.op = K_OP_GEMM;
    if (!run(b, &alone, d, &(struct op_variant){0}, &gate_up))
        return false;
    if (op_output_make(c, &out, NULL) != QUIRE_OK) {
        op_output_free(&gate_up);
        return false;
    }
    const float *y = (const float *)(void *)gate_up.arrays[0].bytes;
    for (uint64_t t = 0; t < c->n_tokens; t++)
        page_gate(op_gate(c), y + t * c->n_rows, c->n_rows / 2,
                  (float *)(void *)out.arrays[0].bytes + t * (c->n_rows / 2));
    bool ok = same_output(c, want, &out, UINT32_MAX, "gemm and then the gate");
    op_output_free(&gate_up);
    op_output_free(&out);
    return ok;
}

static bool check_case(const struct backends *all, const struct op_case *c, bool exact, double *worst)
{
    struct k_backend *const *b = all->b[c->form];
    /* A backend without experts takes no format of theirs. */
    const bool lacks_experts = b[0] && c->moe && !b[0]->ops->supports(b[0], K_OP_MOE_GEMM, c->form, op_format(c, 0));
    if (!b[0] || lacks_experts ||
        ((op_is_gemm(c) || c->op == K_OP_EMBED || op_has_cache(c)) &&
         !b[0]->ops->supports(b[0], c->op, c->form, op_format(c, 0)))) {
        printf("%-60s not supported\n", op_name(c));
        return true;
    }
    struct op_data d;
    struct op_output out, page;
    struct quire_error err;
    if (op_data_make(c, &d, &err) != QUIRE_OK) {
        printf("FAILED: %s\n", err.text);
        return false;
    }
    if (!run(with(b, 0), c, &d, &(struct op_variant){0}, &out)) {
        op_data_free(&d);
        return false;
    }
    bool ok = oracle_check(c, &d, &out, worst);
    if (c->form != K_FORM_MMA || exact || is_emulated(b[0])) {
        page_run(c, &d, &page);
        ok = same_output(c, &page, &out, UINT32_MAX, "the page") && ok;
        op_output_free(&page);
    }
    ok = check_two_steps(with(b, 2), c, &d, &out) && ok;
    ok = check_invariance(b, c, &d, &out) && ok;
    ok = check_rows(with(b, 0), c, &d, &out) && ok;
    ok = check_isolation(with(b, 1), c, &d, &out) && ok;
    ok = check_masked_values(with(b, 2), c, &d, &out) && ok;
    op_output_free(&out);
    op_data_free(&d);
    return ok;
}

#define LARGE_CASE 4000000u

/* That a GEMM or attention's scores are made of. */
static uint64_t products_of(const struct op_case *c)
{
    if (op_is_gemm(c))
        return (uint64_t)op_n_tokens(c) * c->n_rows * c->n_cols;
    uint64_t n = 0;
    for (uint32_t i = 0; op_has_cache(c) && i < op_n_seqs(c); i++) {
        const struct op_seq *seq = &c->seqs[i];
        n += (uint64_t)seq->n_tokens * (seq->position + seq->n_tokens) * c->n_q_heads * c->head_dim;
    }
    return n;
}

static int run_tests(const struct options *options, const struct isolate_range *range)
{
    struct backends all = {0};
    for (int form = 0; form < K_N_FORMS; form++)
        for (uint32_t i = 0; i < N_SETTINGS && has_form(options->backend, (enum k_gemm_form)form); i++)
            all.b[form][i] = open_backend(options->backend, i, (enum k_gemm_form)form);
    uint32_t n_failed = 0, n_run = 0, n_wanted = 0;
    /* Emulated, or under a sanitizer, a case takes its time, and a tenth of them two thirds of it; and the table is run for
     * every instruction set. */
    const bool is_slow = is_emulated(all.b[K_FORM_LANE][0]) || SAMPLE_IS_SANITIZED;
    struct sample sample = sample_of(SAMPLE_IS_FOR_RACES ? 48 : is_slow ? 8 : 4);
    struct sample large = sample_of(SAMPLE_IS_FOR_RACES ? 48 : is_slow ? 32 : 4);
    for (size_t i = 0; i < op_n_test_cases; i++) {
        const struct op_case *c = &op_test_cases[i];
        if ((options->filter && !strstr(op_name(c), options->filter)) ||
            !sample_takes(products_of(c) > LARGE_CASE ? &large : &sample))
            continue;
        if (n_wanted++ % options->n_parts + 1 != options->part || i < range->first || i >= range->end)
            continue;
        double worst = 0;
        isolate_enter(i, op_name(c));
        bool ok = check_case(&all, c, options->exact, &worst);
        printf("%-4s %-76s %.3f of tolerance\n", ok ? "ok" : "FAIL", op_name(c), worst);
        n_failed += !ok;
        n_run++;
    }
    printf("%s: %u cases, %u failed\n", options->backend, n_run, n_failed);
    sample_report(&sample, "cases");
    sample_report(&large, "large cases");
    print_rows(all.b[K_FORM_LANE][0]);
    for (int form = 0; form < K_N_FORMS; form++)
        for (uint32_t i = 0; i < N_SETTINGS && all.b[form][i]; i++)
            all.b[form][i]->ops->close(all.b[form][i]);
    /* No case at all is a failure. A child that begins behind a lost case may have none left. */
    return n_failed > 0 || (n_run == 0 && range->first == 0);
}

int main(int argc, char **argv)
{
    struct options options = {.backend = "ref", .part = 1, .n_parts = 1};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc)
            options.backend = argv[++i];
        else if (strcmp(argv[i], "--case") == 0 && i + 1 < argc)
            options.filter = argv[++i];
        else if (strcmp(argv[i], "--part") == 0 && i + 1 < argc &&
                 sscanf(argv[i + 1], "%u/%u", &options.part, &options.n_parts) == 2 && options.n_parts > 0)
            i++;
        else if (strcmp(argv[i], "--exact") == 0)
            options.exact = true;
        else {
            printf("usage: %s [--backend NAME] [--case TEXT] [--part I/N] [--exact]\n", argv[0]);
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    const struct isolate_range range = isolate_range(op_n_test_cases);
    const struct isolate_job job = {.n = op_n_test_cases, .limit_s = CASE_LIMIT_S};
    is_child = range.is_child;
    if (!is_child && getenv("QUIRE_ISOLATE"))
        return isolate_run_printing(job, true);
    return run_tests(&options, &range);
}
