/* The cuda backend without its arithmetic, on the emulated GPU: opening, memory, copies, tickets, recorded steps, and
 * the effect of any failing CUDA call. The emulator runs an operation as late as possible, so a buffer that is reused
 * too early is detected. */
#include "kernels/cuda/plan/attention_plan.h"
#include "kernels/cuda/launch.h"
#include "tests/kernels/cuda_fixture.h"
#include "kernels/planner.h"

#include <math.h>
#include <pthread.h>

/* ---- opening ----------------------------------------------------------------------------------- */

static void test_open(void **state)
{
    (void)state;
    struct k_backend *b = open_gpu();
    assert_string_equal(b->ops->planner->name, "cuda");
    assert_non_null(strstr(b->description, "sm_90, 4 SMs, 0.2 GiB, driver "));
    assert_non_null(strstr(b->description, "CUDA 13.0"));
    assert_non_null(strstr(b->placement, "GPU 0 at 0000:00:00"));
    assert_null(getenv("CUDA_MODULE_LOADING")); /* a library must not change the environment */
    assert_int_equal(b->ops->planner->overlap_depth, 1);
    assert_int_equal(b->n_threads, 1);
    uint64_t total, before, after;
    struct quire_error err;
    ok(b->ops->memory(b, &total, &before, &err), &err);
    assert_int_equal(total, 256 * MIB);
    void *p = new_memory(b, 3 * MIB, false);
    ok(b->ops->memory(b, &total, &after, &err), &err);
    assert_true(after <= before - 3 * MIB && before <= total);
    b->ops->free(b, p);
    close_gpu(b);
}

static void test_forms(void **state)
{
    (void)state;
    struct k_backend *b;
    struct quire_error err;
    static const enum k_gemm_form chosen[] = {[K_F32] = K_FORM_LANE, [K_F16] = K_FORM_MMA, [K_BF16] = K_FORM_MMA};
    for (int dtype = K_F32; dtype <= K_BF16; dtype++) {
        ok(try_open("cuda", K_FORM_AUTO, (enum k_dtype)dtype, &b, &err), &err);
        assert_int_equal(b->form, chosen[dtype]);
        assert_true(b->ops->supports(b, K_OP_GEMM, K_FORM_LANE, k_format_of((enum k_dtype)dtype)));
        assert_int_equal(b->ops->supports(b, K_OP_GEMM, K_FORM_MMA, k_format_of((enum k_dtype)dtype)), dtype != K_F32);
        assert_false(b->ops->supports(b, K_OP_GEMM, K_FORM_TILE, k_format_of((enum k_dtype)dtype)));
        assert_false(b->ops->supports(b, K_OP_GEMM, K_FORM_AUTO, k_format_of((enum k_dtype)dtype)));
        close_gpu(b);
    }
    ok(try_open("cuda:0", K_FORM_LANE, K_BF16, &b, &err), &err);
    assert_int_equal(b->form, K_FORM_LANE);
    close_gpu(b);
    assert_int_equal(try_open("cuda", K_FORM_TILE, K_BF16, &b, &err), QUIRE_UNSUPPORTED);
    assert_says(&err, "device cuda: a GPU supports the GEMM forms lane, mma and int8, not tile");
    assert_int_equal(simt_live(), 0);
}

/* "auto" must not select an emulator. */
static void test_auto(void **state)
{
    (void)state;
    struct k_backend *b;
    const char *why;
    struct k_backend_options options = {.device = "auto", .n_threads = 1};
    assert_int_equal(k_backend_open(&options, &b, &why, NULL), QUIRE_OK);
    assert_string_equal(b->ops->planner->name, "cpu");
    assert_non_null(strstr(why, "cpu: "));
    assert_non_null(strstr(why, "emulator"));
    b->ops->close(b);
    assert_int_equal(simt_calls("cudaGetDeviceCount"), simt_calls("cudaDriverGetVersion"));
}

static void assert_refused(const char *device, int status, const char *part)
{
    struct k_backend *b;
    struct quire_error err;
    assert_int_equal(try_open(device, K_FORM_AUTO, K_F16, &b, &err), status);
    assert_says(&err, device);
    assert_says(&err, part);
    assert_int_equal(simt_live(), 0);
}

static void test_machines_that_will_not_do(void **state)
{
    (void)state;
    static const char *const bad[] = {"cuda:", "cuda:x", "cuda:-1", "cuda:0x", "cuda: 0", "cuda:99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(bad[i], QUIRE_INVALID, "as in cuda:0");
    assert_refused("cuda:1", QUIRE_UNSUPPORTED, "shows 1 GPU, numbered from 0");
    setenv("QUIRE_SIMT_DEVICES", "0", 1);
    assert_refused("cuda", QUIRE_UNSUPPORTED, "no NVIDIA GPU on this machine (driver");
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    assert_refused("cuda", QUIRE_UNSUPPORTED, "CUDA_VISIBLE_DEVICES=7");
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("QUIRE_SIMT_DEVICES");
    setenv("QUIRE_SIMT_DRIVER", "0", 1);
    assert_refused("cuda", QUIRE_UNSUPPORTED, "no NVIDIA driver on this machine");
    setenv("QUIRE_SIMT_DRIVER", "12020", 1);
    simt_fail_call("cudaGetDeviceCount", 1, cudaErrorInsufficientDriver);
    assert_refused("cuda", QUIRE_UNSUPPORTED, "too old: it is ");
    simt_fail_call("cudaGetDeviceCount", 1, cudaErrorInsufficientDriver);
    assert_refused("cuda", QUIRE_UNSUPPORTED, "CUDA 12.2, and this build needs one of CUDA 13.0");
    unsetenv("QUIRE_SIMT_DRIVER");
    setenv("QUIRE_SIMT_CAPABILITY", "75", 1);
    assert_refused("cuda", QUIRE_UNSUPPORTED, "is sm_75: the kernels need sm_80");
    unsetenv("QUIRE_SIMT_CAPABILITY");
    simt_fail_call("cudaSetDevice", 1, cudaErrorDevicesUnavailable);
    assert_refused("cuda", QUIRE_UNSUPPORTED, "busy");
    simt_fail_call("cudaFuncGetAttributes", 1, cudaErrorNoKernelImageForDevice);
    assert_refused("cuda", QUIRE_UNSUPPORTED, "does not load the kernel ");
    unsigned long before = simt_calls("cudaFuncGetAttributes");
    close_gpu(open_gpu()); /* and closing releases everything */
    unsigned long n_kernels = simt_calls("cudaFuncGetAttributes") - before;
    assert_true(n_kernels >= 40); /* each is loaded before recording can start */
    simt_fail_call("cudaFuncGetAttributes", (unsigned)n_kernels, cudaErrorNoKernelImageForDevice);
    assert_refused("cuda", QUIRE_UNSUPPORTED, "does not load the kernel ");
}

static void test_second_gpu(void **state)
{
    (void)state;
    struct k_backend *b;
    struct quire_error err;
    setenv("QUIRE_SIMT_DEVICES", "2", 1);
    ok(try_open("cuda:1", K_FORM_AUTO, K_F16, &b, &err), &err);
    assert_non_null(strstr(b->placement, "GPU 1 at 0000:01:00"));
    close_gpu(b);
    assert_refused("cuda:2", QUIRE_UNSUPPORTED, "shows 2 GPUs");
    unsetenv("QUIRE_SIMT_DEVICES");
}

struct seen {
    struct k_gpu_id ids[3];
    uint32_t n;
};

/* Selects the last visible GPU. */
static int take_last(void *context, const struct k_gpu_id *seen, uint32_t n, uint32_t *out, struct quire_error *err)
{
    struct seen *s = context;
    (void)err;
    memcpy(s->ids, seen, n * sizeof *seen);
    s->n = n;
    *out = n - 1;
    return QUIRE_OK;
}

static int take_none(void *context, const struct k_gpu_id *seen, uint32_t n, uint32_t *out, struct quire_error *err)
{
    (void)context;
    (void)seen;
    (void)n;
    (void)out;
    return quire_fail(err, QUIRE_INVALID, "all are taken");
}

static void test_a_caller_that_chooses(void **state)
{
    (void)state;
    struct seen all, later;
    struct k_gpu_choice choice = {&all, take_last};
    struct k_backend_options options = {.device = "cuda", .n_threads = 1, .choice = &choice};
    struct k_backend *b;
    struct quire_error err;
    const char *why;
    setenv("QUIRE_SIMT_DEVICES", "3", 1);
    ok(k_backend_open(&options, &b, &why, &err), &err);
    assert_non_null(strstr(b->placement, "GPU 2 at 0000:02:00"));
    close_gpu(b);
    assert_int_equal(all.n, 3);
    assert_memory_not_equal(&all.ids[0], &all.ids[1], sizeof all.ids[0]);
    choice.context = &later;
    options.device = "cuda:1"; /* numbers start there */
    ok(k_backend_open(&options, &b, &why, &err), &err);
    assert_non_null(strstr(b->placement, "GPU 2 at 0000:02:00"));
    close_gpu(b);
    assert_int_equal(later.n, 2);
    assert_memory_equal(later.ids, &all.ids[1], 2 * sizeof all.ids[0]);
    choice.choose = take_none;
    assert_int_equal(k_backend_open(&options, &b, &why, &err), QUIRE_INVALID);
    assert_says(&err, "device cuda:1: all are taken");
    simt_fail_call("cudaGetDeviceProperties", 2, cudaErrorSystemNotReady);
    assert_int_equal(k_backend_open(&options, &b, &why, &err), QUIRE_UNSUPPORTED);
    assert_says(&err, "GPU 2: cannot be asked what it is: system not yet initialized");
    assert_int_equal(simt_live(), 0);
    unsetenv("QUIRE_SIMT_DEVICES");
}

/* Any call may fail while the backend opens: the error names it, and nothing leaks. */
static void test_opening_fails_anywhere(void **state)
{
    (void)state;
    static const char *const calls[] = {
        "cudaDriverGetVersion",    "cudaGetDeviceCount", "cudaGetDeviceProperties",   "cudaSetDevice",
        "cudaFuncGetAttributes",   "cudaMemGetInfo",     "cudaStreamCreateWithFlags", "cudaHostAlloc",
        "cudaEventCreateWithFlags"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        unsigned n_failed = 0;
        for (unsigned nth = 1;; nth++) {
            struct k_backend *b;
            struct quire_error err = {.text = ""};
            simt_fail_call(calls[i], nth, cudaErrorMemoryAllocation);
            int status = try_open("cuda", K_FORM_AUTO, K_F16, &b, &err);
            simt_fail_call(calls[i], 0, cudaSuccess);
            if (status == QUIRE_OK) {
                close_gpu(b);
                break;
            }
            n_failed++;
            assert_true(strlen(err.text) > strlen("device cuda: "));
            assert_int_equal(simt_live(), 0);
        }
        assert_true(n_failed >= 1);
    }
}

/* ---- memory and copies -------------------------------------------------------------------------- */

static void test_memory(void **state)
{
    (void)state;
    struct k_backend *b = open_gpu();
    struct quire_error err;
    void *p;
    for (int on_host = 0; on_host < 2; on_host++) {
        for (uint64_t bytes = 0; bytes < 200; bytes += 33) {
            p = new_memory(b, bytes, on_host);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % 64, 0);
            b->ops->free(b, p);
        }
        int (*alloc)(struct k_backend *, uint64_t, void **, struct quire_error *) = on_host ? b->ops->alloc_host
                                                                                            : b->ops->alloc;
        assert_int_equal(alloc(b, UINT64_MAX, &p, &err), QUIRE_NO_MEMORY);
        assert_null(p);
        assert_int_equal(alloc(b, (UINT64_C(9) << 30) + 12345, &p, &err), QUIRE_NO_MEMORY);
        assert_null(p);
    }
    assert_int_equal(b->ops->alloc(b, 300 * MIB + 1, &p, &err), QUIRE_NO_MEMORY);
    assert_says(&err, "cannot allocate 300.0 MiB of GPU memory");
    assert_says(&err, "of the GPU's 256.0 MiB are free");
    b->ops->free(b, NULL);
    struct k_weight *w; /* a shortage is not fatal, and does not become the error of the next launch */
    static const uint16_t data[8] = {1};
    const struct k_weight_view view = k_plain_view(data, K_BF16, 1, 8, 16);
    ok(b->ops->weight_create(b, &view, 1, 1, &w, &err), &err);
    b->ops->weight_destroy(b, w);
    close_gpu(b);
}

static void test_copies(void **state)
{
    (void)state;
    struct k_backend *b = open_gpu();
    struct quire_error err;
    static const uint64_t sizes[] = {1, 3, 255, 4096, 65537, 4 * MIB, 4 * MIB + 1, 9 * MIB + 77};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t n = sizes[i];
        unsigned char *src = malloc(n), *dst = malloc(n), *expected = malloc(n);
        unsigned char *pinned = new_memory(b, n, true), *back = new_memory(b, n, true);
        unsigned char *dev = new_memory(b, n, false), *dev2 = new_memory(b, n, false);
        uint64_t ticket;
        fill(expected, n, i);
        memcpy(src, expected, n);
        ok(b->ops->copy_in(b, dev, src, n, &err), &err);
        memset(src, 0, n); /* the call has read it */
        ok(b->ops->copy_out(b, dst, dev, n, &err), &err);
        assert_memory_equal(dst, expected, n);
        /* Pinned memory belongs to the device until a fence, so the call does not wait. */
        unsigned long n_waits = simt_calls("cudaEventSynchronize") + simt_calls("cudaStreamSynchronize");
        memcpy(pinned, expected, n);
        ok(b->ops->copy_in(b, dev2, pinned, n, &err), &err);
        ok(b->ops->copy_out(b, back, dev2, n, &err), &err);
        ok(b->ops->fence(b, &ticket, &err), &err);
        assert_int_equal(n_waits, simt_calls("cudaEventSynchronize") + simt_calls("cudaStreamSynchronize"));
        ok(b->ops->wait(b, ticket, &err), &err);
        assert_memory_equal(back, expected, n);
        ok(b->ops->copy_in(b, back, src, n, &err), &err); /* backend memory may be host memory */
        ok(b->ops->copy_out(b, dst, back, n, &err), &err);
        assert_memory_equal(dst, src, n);
        b->ops->free(b, dev);
        b->ops->free(b, dev2);
        b->ops->free(b, pinned);
        b->ops->free(b, back);
        free(src);
        free(dst);
        free(expected);
    }
    ok(b->ops->copy_in(b, NULL, NULL, 0, &err), &err);
    ok(b->ops->copy_out(b, NULL, NULL, 0, &err), &err);
    close_gpu(b);
}

/* Uploads of every size, far more than the staging memory holds, whose sources change immediately afterwards. */
static void test_uploads_are_not_overwritten(void **state)
{
    (void)state;
    struct k_backend *b = open_gpu();
    struct quire_error err;
    const uint64_t bytes = 160 * MIB;
    unsigned char *dev = new_memory(b, bytes, false), *all = malloc(bytes), *piece = malloc(6 * MIB);
    fill(all, bytes, 1);
    uint64_t x = 9;
    for (uint64_t done = 0; done < bytes;) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t n = (x >> 60) == 0   ? 5 * MIB + (x >> 40) % MIB
                     : (x >> 61) == 1 ? 1 + (x >> 33) % MIB
                                      : 1 + (x >> 33) % 70000;
        n = n < bytes - done ? n : bytes - done;
        memcpy(piece, all + done, n);
        ok(cuda_upload(b, dev + done, piece, n, &err), &err);
        memset(piece, 0xEE, n);
        done += n;
    }
    unsigned char *back = malloc(bytes);
    ok(b->ops->copy_out(b, back, dev, bytes, &err), &err);
    assert_memory_equal(back, all, bytes);
    free(back);
    free(piece);
    free(all);
    b->ops->free(b, dev);
    close_gpu(b);
}

static void test_tickets(void **state)
{
    (void)state;
    struct k_backend *b = open_gpu();
    struct quire_error err;
    uint64_t tickets[40], value = 0;
    uint64_t *dev = new_memory(b, sizeof value, false), *got = new_memory(b, sizeof tickets, true);
    assert_int_equal(b->ops->wait(b, 0, &err), QUIRE_INVALID);
    assert_int_equal(b->ops->wait(b, 1, &err), QUIRE_INVALID);
    assert_says(&err, "no fence has returned this ticket");
    for (int i = 0; i < 40; i++) {
        value = (uint64_t)i;
        ok(b->ops->copy_in(b, dev, &value, sizeof value, &err), &err);
        ok(b->ops->copy_out(b, got + i, dev, sizeof value, &err), &err);
        ok(b->ops->fence(b, &tickets[i], &err), &err);
        assert_true(i == 0 || tickets[i] > tickets[i - 1]);
    }
    assert_int_equal(b->ops->wait(b, tickets[39] + 1, &err), QUIRE_INVALID);
    ok(b->ops->wait(b, tickets[0], &err), &err); /* its event stands for a later ticket now */
    assert_int_equal(got[0], 0);
    ok(b->ops->wait(b, tickets[38], &err), &err);
    assert_int_equal(got[38], 38);
    ok(b->ops->wait(b, tickets[39], &err), &err);
    ok(b->ops->wait(b, tickets[39], &err), &err);
    ok(b->ops->wait(b, tickets[5], &err), &err);
    assert_int_equal(got[39], 39);
    assert_int_equal(simt_pending(), 0);
    b->ops->free(b, got);
    b->ops->free(b, dev);
    close_gpu(b);
}

struct other_thread {
    struct k_backend *b;
    float *dev;
    int status;
    struct quire_error err;
};

static void *run_other_thread(void *context)
{
    struct other_thread *t = context;
    float x = 1;
    t->status = t->b->ops->copy_in(t->b, t->dev, &x, sizeof x, &t->err);
    return NULL;
}

/* CUDA's current GPU belongs to a thread, and the engine's thread is not the one that opened the backend. */
static void test_another_thread_computes(void **state)
{
    (void)state;
    struct k_backend *b = open_gpu();
    struct other_thread t = {.b = b, .dev = new_memory(b, sizeof(float), false)};
    unsigned long n = simt_calls("cudaSetDevice");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_other_thread, &t), 0);
    pthread_join(thread, NULL);
    ok(t.status, &t.err);
    assert_int_equal(simt_calls("cudaSetDevice"), n + 1);
    b->ops->free(b, t.dev);
    assert_int_equal(simt_calls("cudaSetDevice"), n + 1);
    close_gpu(b);
}

/* ---- recorded steps ------------------------------------------------------------------------------ */

struct recorded { /* records a kernel that computes the exponents of a weight */
    struct k_backend *b;
    struct k_weight *w;
    uint16_t data[8];
};

static void start(struct recorded *r)
{
    struct quire_error err;
    r->b = open_gpu();
    memset(r->data, 0, sizeof r->data);
    const struct k_weight_view view = k_plain_view(r->data, K_BF16, 1, 8, 16);
    ok(r->b->ops->weight_create(r->b, &view, 1, 1, &r->w, &err), &err);
}

static void finish(struct recorded *r)
{
    r->b->ops->weight_destroy(r->b, r->w);
    close_gpu(r->b);
}

static struct k_graph *record(struct recorded *r)
{
    struct quire_error err;
    struct k_graph *graph;
    ok(r->b->ops->graph_begin(r->b, &err), &err);
    ok(cuda_check(r->b, launch_weight_exponents(cuda_of(r->b)->stream, r->w, r->w->row_stride_bytes), "test", &err),
       &err);
    ok(r->b->ops->graph_end(r->b, &graph, &err), &err);
    assert_non_null(graph);
    return graph;
}

static void set_weight(struct recorded *r, float value)
{
    struct quire_error err;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    r->data[3] = (uint16_t)(bits >> 16);
    ok(r->b->ops->copy_in(r->b, r->w->data_dev, r->data, sizeof r->data, &err), &err);
}

static int exponent(struct recorded *r)
{
    struct quire_error err;
    int8_t e;
    ok(r->b->ops->copy_out(r->b, &e, r->w->exponents_dev, 1, &err), &err);
    return e;
}

static void test_graphs_run_on_what_buffers_hold(void **state)
{
    (void)state;
    struct recorded r;
    struct quire_error err;
    start(&r);
    set_weight(&r, 16384);
    struct k_graph *graph = record(&r), *second = record(&r);
    assert_int_equal(exponent(&r), 0); /* recorded and not run: still that of the zeros */
    for (int e = -100; e <= 100; e += 50) {
        set_weight(&r, ldexpf(1.5f, 14 + e));
        assert_int_not_equal(exponent(&r), e);
        ok(r.b->ops->graph_launch(r.b, e % 100 ? graph : second, &err), &err);
        assert_int_equal(exponent(&r), e);
    }
    set_weight(&r, ldexpf(1.5f, 14 + 7));
    ok(r.b->ops->graph_launch(r.b, graph, &err), &err); /* destroyed while it may run */
    r.b->ops->graph_destroy(r.b, graph);
    assert_int_equal(exponent(&r), 7);
    r.b->ops->graph_destroy(r.b, second);
    r.b->ops->graph_destroy(r.b, NULL);
    finish(&r);
}

enum misuse {
    COPY_IN,
    COPY_PINNED,
    COPY_OUT,
    UPLOAD,
    FENCE,
    WAIT,
    ALLOC,
    ALLOC_HOST,
    MEMORY,
    WEIGHT,
    BEGIN,
    LAUNCH,
    N_MISUSES
};

static int misuse(struct recorded *r, enum misuse which, struct k_graph *graph, void *pinned, struct quire_error *err)
{
    struct k_backend *b = r->b;
    struct k_weight *w;
    const struct k_weight_view view = k_plain_view(r->data, K_BF16, 1, 8, 16);
    void *p;
    uint64_t n, m;
    switch (which) {
    case COPY_IN: return b->ops->copy_in(b, r->w->data_dev, r->data, 16, err);
    case COPY_PINNED: return b->ops->copy_in(b, r->w->data_dev, pinned, 16, err);
    case COPY_OUT: return b->ops->copy_out(b, r->data, r->w->data_dev, 16, err);
    case UPLOAD: return cuda_upload(b, r->w->data_dev, r->data, 16, err);
    case FENCE: return b->ops->fence(b, &n, err);
    case WAIT: return b->ops->wait(b, 1, err);
    case ALLOC: return b->ops->alloc(b, 64, &p, err);
    case ALLOC_HOST: return b->ops->alloc_host(b, 64, &p, err);
    case MEMORY: return b->ops->memory(b, &n, &m, err);
    case WEIGHT: return b->ops->weight_create(b, &view, 1, 1, &w, err);
    case BEGIN: return b->ops->graph_begin(b, err);
    case LAUNCH: return b->ops->graph_launch(b, graph, err);
    case N_MISUSES: break;
    }
    return QUIRE_OK;
}

/* For a sequence that is divided among all blocks: one launch, which leaves the plan unchanged, so that it can run
 * again with the same plan, recorded or not. */
static void test_attention_is_one_launch(void **state)
{
    (void)state;
    enum { D = 64, N_KV = 2, N_Q = 4, POSITION = 4200, BLOCK = 4224, OUT = N_Q * D, QKV = (N_Q + 2 * N_KV) * D };
    static uint16_t cache[N_KV * BLOCK * D];
    static float qkv[QKV], nothing[OUT], want[OUT], got[OUT];
    static const struct k_attn_row row = {0, 1, POSITION, 0};
    static const struct k_kv_shape kv = {K_FORMAT_F16, N_KV, D, BLOCK, D};
    const struct k_plan_dims dims = {
        .n_tokens = 1, .n_seqs = 1, .n_q_heads = N_Q, .n_kv_heads = N_KV, .head_dim = D, .max_model_len = BLOCK};
    fill((unsigned char *)cache, sizeof cache, 1);
    for (size_t i = 0; i < sizeof cache / sizeof *cache; i++)
        cache[i] = (cache[i] & 0x83ff) | 0x3000; /* 1/8 to 1/4, with either sign */
    for (uint32_t i = 0; i < QKV; i++)
        qkv[i] = (float)(i % 37) - 18.0f;
    memset(nothing, 0xff, sizeof nothing);

    struct quire_error err;
    struct k_plan_bytes bytes;
    struct k_graph *graph;
    struct k_backend *b = open_gpu();
    k_planner_find("cuda")->workspace(&dims, &bytes);
    struct k_kv_layer layer = {new_memory(b, sizeof cache, false), new_memory(b, sizeof cache, false)};
    const struct k_attention_args a = {.qkv_dev = new_memory(b, sizeof qkv, false),
                                       .out_dev = new_memory(b, sizeof want, false),
                                       .rows = &row,
                                       .rows_dev = new_memory(b, sizeof row, false),
                                       .plan_dev = new_memory(b, bytes.attention_plan, false),
                                       .tables_dev = new_memory(b, sizeof(uint32_t), false),
                                       .kv = &kv,
                                       .layer = &layer,
                                       .workspace_dev = new_memory(b, bytes.attention, false),
                                       .n_rows = 1,
                                       .n_tokens = 1,
                                       .n_q_heads = N_Q,
                                       .scale = 0.125f};
    struct attn_plan *plan = calloc(1, bytes.attention_plan);
    assert_non_null(plan);
    ok(b->ops->copy_in(b, layer.k_dev, cache, sizeof cache, &err), &err);
    ok(b->ops->copy_in(b, layer.v_dev, cache, sizeof cache, &err), &err);
    ok(b->ops->copy_in(b, (void *)a.qkv_dev, qkv, sizeof qkv, &err), &err);
    ok(b->ops->copy_in(b, (void *)a.tables_dev, &(uint32_t){0}, sizeof(uint32_t), &err), &err);
    ok(b->ops->attention_plan(b, &(struct k_attention_plan_args){&row, &kv, plan, 1, 1, N_Q, 0, false}, &err), &err);
    assert_true(plan->n_merges == N_KV && plan->n_units > 4);
    ok(b->ops->copy_in(b, a.plan_dev, plan, bytes.attention_plan, &err), &err);
    free(plan);
    ok(b->ops->graph_begin(b, &err), &err);
    ok(b->ops->attention(b, &a, &err), &err);
    ok(b->ops->graph_end(b, &graph, &err), &err);
    for (int i = 0; i < 5; i++) {
        unsigned long n_launches = simt_calls("launch");
        ok(b->ops->copy_in(b, a.out_dev, nothing, sizeof nothing, &err), &err);
        ok(i % 2 ? b->ops->graph_launch(b, graph, &err) : b->ops->attention(b, &a, &err), &err);
        ok(b->ops->copy_out(b, i == 0 ? want : got, a.out_dev, sizeof got, &err), &err);
        assert_true(i % 2 || simt_calls("launch") == n_launches + 1);
        for (uint32_t d = 0; i == 0 && d < OUT; d++)
            assert_true(fabsf(want[d]) <= 0.25f);
        assert_true(i == 0 || memcmp(got, want, sizeof got) == 0);
    }
    b->ops->graph_destroy(b, graph);
    void *const all[] = {layer.k_dev,        layer.v_dev, (void *)a.qkv_dev,    a.out_dev,
                         (void *)a.rows_dev, a.plan_dev,  (void *)a.tables_dev, a.workspace_dev};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        b->ops->free(b, all[i]);
    close_gpu(b);
}

static void test_what_may_not_be_recorded(void **state)
{
    (void)state;
    struct recorded r;
    struct quire_error err;
    struct k_graph *graph;
    uint64_t ticket;
    start(&r);
    void *pinned = new_memory(r.b, 64, true);
    ok(r.b->ops->fence(r.b, &ticket, &err), &err);
    assert_int_equal(r.b->ops->graph_end(r.b, &graph, &err), QUIRE_INVALID);
    assert_says(&err, "nothing is being recorded");
    struct k_graph *good = record(&r);
    for (int which = 0; which < N_MISUSES; which++) {
        ok(r.b->ops->graph_begin(r.b, &err), &err);
        ok(cuda_check(r.b, launch_weight_exponents(cuda_of(r.b)->stream, r.w, r.w->row_stride_bytes), "test", &err),
           &err);
        assert_int_equal(misuse(&r, (enum misuse)which, good, pinned, &err), QUIRE_INVALID);
        assert_says(&err, "cannot be recorded");
        graph = good;
        assert_int_equal(r.b->ops->graph_end(r.b, &graph, &err), QUIRE_INVALID);
        assert_null(graph);
        set_weight(&r, ldexpf(1, which)); /* and everything continues to work */
        ok(r.b->ops->graph_launch(r.b, good, &err), &err);
        assert_int_equal(exponent(&r), which - 14);
    }
    /* Freeing memory also ends a recording, and so does closing. */
    ok(r.b->ops->graph_begin(r.b, &err), &err);
    r.b->ops->free(r.b, pinned);
    assert_int_equal(r.b->ops->graph_end(r.b, &graph, &err), QUIRE_INVALID);
    r.b->ops->graph_destroy(r.b, good);
    r.b->ops->weight_destroy(r.b, r.w);
    ok(r.b->ops->graph_begin(r.b, &err), &err);
    close_gpu(r.b);
}

static void test_graph_without_memory(void **state)
{
    (void)state;
    static const char *const calls[] = {"cudaGraphInstantiate", "cudaGraphUpload"};
    struct recorded r;
    struct quire_error err;
    struct k_graph *graph;
    start(&r);
    for (int i = 0; i < 2; i++) {
        ok(r.b->ops->graph_begin(r.b, &err), &err);
        ok(cuda_check(r.b, launch_weight_exponents(cuda_of(r.b)->stream, r.w, r.w->row_stride_bytes), "test", &err),
           &err);
        simt_fail_call(calls[i], 1, cudaErrorMemoryAllocation);
        assert_int_equal(r.b->ops->graph_end(r.b, &graph, &err), QUIRE_NO_MEMORY);
        assert_null(graph);
        r.b->ops->graph_destroy(r.b, record(&r));
    }
    finish(&r);
}

/* ---- death -------------------------------------------------------------------------------------- */

/* Makes the calls of a step one after the other. The first failure ends it. */
static int whole_step(struct recorded *r, void *pinned, struct quire_error *err)
{
    struct k_backend *b = r->b;
    struct k_graph *graph = NULL;
    uint64_t ticket, total, available;
    uint16_t back[8];
    int status = b->ops->step_begin(b, err);
    if (status == QUIRE_OK)
        status = b->ops->memory(b, &total, &available, err);
    if (status == QUIRE_OK)
        status = b->ops->copy_in(b, r->w->data_dev, r->data, sizeof r->data, err);
    if (status == QUIRE_OK)
        status = b->ops->copy_in(b, r->w->data_dev, pinned, sizeof r->data, err);
    if (status == QUIRE_OK)
        status = b->ops->graph_begin(b, err);
    if (status == QUIRE_OK)
        status = cuda_check(b, launch_weight_exponents(cuda_of(b)->stream, r->w, r->w->row_stride_bytes), "test", err);
    if (status == QUIRE_OK)
        status = b->ops->graph_end(b, &graph, err);
    if (status == QUIRE_OK)
        status = b->ops->graph_launch(b, graph, err);
    if (status == QUIRE_OK)
        status = b->ops->fence(b, &ticket, err);
    if (status == QUIRE_OK)
        status = b->ops->wait(b, ticket, err);
    if (status == QUIRE_OK)
        status = b->ops->copy_out(b, back, r->w->data_dev, sizeof back, err);
    if (status == QUIRE_OK)
        status = b->ops->step_end(b, err);
    b->ops->graph_destroy(b, graph);
    return status;
}

/* Every function of the table that can fail returns the same error. */
static void assert_dead(struct k_backend *b, struct k_weight *w, const struct quire_error *death)
{
    struct quire_error err;
    struct k_graph *graph;
    struct k_weight *w2;
    uint64_t n, m;
    void *p;
    char data[16] = {0};
    const struct k_weight_view view = k_plain_view(data, K_BF16, 1, 8, 16);
#define DEAD(call) \
    do { \
        memset(&err, 0, sizeof err); \
        assert_int_equal((call), QUIRE_INTERNAL); \
        assert_string_equal(err.text, death->text); \
    } while (0)
    DEAD(b->ops->memory(b, &n, &m, &err));
    DEAD(b->ops->alloc(b, 64, &p, &err));
    DEAD(b->ops->alloc_host(b, 64, &p, &err));
    DEAD(b->ops->weight_create(b, &view, 1, 1, &w2, &err));
    DEAD(b->ops->step_begin(b, &err));
    DEAD(b->ops->step_end(b, &err));
    DEAD(b->ops->copy_in(b, w->data_dev, data, 16, &err));
    DEAD(b->ops->copy_out(b, data, w->data_dev, 16, &err));
    DEAD(b->ops->fence(b, &n, &err));
    DEAD(b->ops->wait(b, 1, &err));
    DEAD(b->ops->graph_begin(b, &err));
    DEAD(b->ops->graph_end(b, &graph, &err));
    DEAD(cuda_upload(b, w->data_dev, data, 16, &err));
}

static void test_any_failing_call_is_death(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        cudaError_t error;
        const char *said;
    } cases[] = {
        {"cudaMemGetInfo", cudaErrorUnknown, "asking for the GPU's memory: unknown error (cudaErrorUnknown)"},
        {"cudaMemcpyAsync", cudaErrorIllegalAddress, "an illegal memory access"},
        {"cudaStreamBeginCapture", cudaErrorUnknown, "graph_begin"},
        {"cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated, "graph_end"},
        {"cudaGraphInstantiate", cudaErrorUnknown, "graph_end"},
        {"cudaGraphUpload", cudaErrorUnknown, "graph_end"},
        {"cudaGraphLaunch", cudaErrorLaunchFailure, "graph_launch"},
        {"launch", cudaErrorLaunchOutOfResources, "too many resources"},
        {"kernel", cudaErrorIllegalAddress, "an illegal memory access was encountered (cudaErrorIllegalAddress)"},
        {"kernel", cudaErrorECCUncorrectable, "ECC"},
        {"cudaEventRecord", cudaErrorUnknown, "fence"},
        {"cudaEventSynchronize", cudaErrorLaunchTimeout, "timed out"},
        {"cudaStreamSynchronize", cudaErrorLaunchFailure, "copy_out: unspecified launch failure"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned n_failed = 0;
        for (unsigned nth = 1; nth < 10; nth++) {
            struct recorded r;
            struct quire_error err = {.text = ""};
            simt_new_device();
            start(&r);
            void *pinned = new_memory(r.b, 64, true);
            memset(pinned, 0, 64);
            set_weight(&r, 1);
            exponent(&r);
            simt_fail_call(cases[i].call, nth, cases[i].error);
            int status = whole_step(&r, pinned, &err);
            simt_fail_call(cases[i].call, 0, cudaSuccess);
            if (status != QUIRE_OK) {
                n_failed++;
                assert_int_equal(status, QUIRE_INTERNAL);
                assert_says(&err, cases[i].said);
                assert_says(&err, "the engine must be restarted");
                assert_dead(r.b, r.w, &err);
            }
            r.b->ops->free(r.b, pinned);
            if (status != QUIRE_OK)
                assert_dead(r.b, r.w, &err); /* still the first cause */
            r.b->ops->weight_destroy(r.b, r.w);
            r.b->ops->close(r.b);
            assert_int_equal(simt_live(), 0);
            if (status == QUIRE_OK)
                break;
        }
        if (n_failed == 0)
            print_message("%s never failed\n", cases[i].call);
        assert_true(n_failed >= 1);
    }
    simt_new_device();
    close_gpu(open_gpu());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_open, set_up),
        cmocka_unit_test_setup(test_forms, set_up),
        cmocka_unit_test_setup(test_auto, set_up),
        cmocka_unit_test_setup(test_machines_that_will_not_do, set_up),
        cmocka_unit_test_setup(test_second_gpu, set_up),
        cmocka_unit_test_setup(test_a_caller_that_chooses, set_up),
        cmocka_unit_test_setup(test_opening_fails_anywhere, set_up),
        cmocka_unit_test_setup(test_memory, set_up),
        cmocka_unit_test_setup(test_copies, set_up),
        cmocka_unit_test_setup(test_uploads_are_not_overwritten, set_up),
        cmocka_unit_test_setup(test_tickets, set_up),
        cmocka_unit_test_setup(test_another_thread_computes, set_up),
        cmocka_unit_test_setup(test_graphs_run_on_what_buffers_hold, set_up),
        cmocka_unit_test_setup(test_attention_is_one_launch, set_up),
        cmocka_unit_test_setup(test_what_may_not_be_recorded, set_up),
        cmocka_unit_test_setup(test_graph_without_memory, set_up),
        cmocka_unit_test_setup(test_any_failing_call_is_death, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
