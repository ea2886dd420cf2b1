/* Options that engine_open() accepts and rejects, and the memory plan to the byte. */
#include "tests/engine/fixtures/step_options.h"
#include "tests/engine/fixtures/client.h"
#include "engine/engine.h"
#include "engine/info.h"
#include "engine/plan_model.h"
#include "tests/engine/fixtures/described.h"
#include "engine/model/describe.h"
#include "engine/model/tensors.h"
#include "tests/engine/fixtures/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct engine_options small_options(void)
{
    struct engine_options o;
    engine_options_default(&o);
    o.steps = client_steps();
    o.n_threads = 1;
    o.num_kv_blocks = 64;
    return o;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static void refuse_model(const struct tiny_spec *spec, int n_words, const char *const *words)
{
    struct tiny_model model;
    struct engine_options o = small_options();
    struct quire_error err;
    tiny_model_write(spec, &model);
    assert_null(client_try_open(model.dir, &o, &err));
    for (int i = 0; i < n_words; i++)
        if (!strstr(err.text, words[i]))
            fail_msg("\"%s\" does not say \"%s\"", err.text, words[i]);
    tiny_model_remove(&model);
}

static void wrong_shapes(void **state)
{
    (void)state;
    struct tiny_spec spec = {.seed = 1, .nan_token = -1, .prefix = "model."};
    spec.break_shape = "model.layers.1.mlp.up_proj.weight";
    refuse_model(&spec, 4,
                 (const char *const[]){"model.safetensors", spec.break_shape, "expected [48, 32]", "got [49, 32]"});
    spec.break_shape = "model.layers.0.input_layernorm.weight";
    refuse_model(&spec, 3, (const char *const[]){spec.break_shape, "expected [32]", "got [33]"});
    spec.break_shape = "lm_head.weight";
    refuse_model(&spec, 2, (const char *const[]){spec.break_shape, "expected [200, 32]"});
}

static void missing_tensors(void **state)
{
    (void)state;
    static const char *const names[] = {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
                                        "model.layers.1.self_attn.k_proj.weight",
                                        "model.layers.0.post_attention_layernorm.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tiny_spec spec = {.seed = 1, .nan_token = -1, .prefix = "model.", .omit = names[i]};
        refuse_model(&spec, 2, (const char *const[]){names[i], "missing"});
    }
}

static void names_without_prefix(void **state)
{
    (void)state;
    struct answer *answers[2];
    struct client *clients[2];
    struct engine_options o = small_options();
    uint32_t prompt[30];
    client_random_prompt(prompt, 30, TINY_VOCAB, 1);
    for (int i = 0; i < 2; i++) {
        struct tiny_model model;
        tiny_model_write(&(struct tiny_spec){.seed = 4, .nan_token = -1, .prefix = i ? "" : "model."}, &model);
        clients[i] = client_open(model.dir, &o);
        tiny_model_remove(&model); /* mapped by now */
        struct request_spec r = client_request(prompt, 30, 10);
        r.n_logprobs = 3;
        answers[i] = client_ask(clients[i], &r);
    }
    assert_true(answers_equal(answers[0], answers[1]));
    client_close(clients[0]);
    client_close(clients[1]);
}

/* ---- options --------------------------------------------------------------------------------- */

static struct tiny_model model;

static int set_up(void **state)
{
    (void)state;
    tiny_model_plain(1, &model);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tiny_model_remove(&model);
    return 0;
}

static void refuse(const struct engine_options *o, int status, const char *word)
{
    struct quire_error err = {.text = ""};
    struct engine *e;
    struct engine_options options = *o;
    options.model_dir = model.dir;
    assert_int_equal(engine_open(&options, NULL, NULL, &e, &err), status);
    assert_null(e);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not say \"%s\"", err.text, word);
}

#define REFUSE(field, value, status, word) \
    do { \
        struct engine_options o_ = small_options(); \
        o_.field = value; \
        refuse(&o_, status, word); \
    } while (0)

static void bad_options(void **state)
{
    (void)state;
    REFUSE(device, "tpu", QUIRE_INVALID, "tpu");
    REFUSE(device, "cuda", QUIRE_UNSUPPORTED, "cuda");
    REFUSE(dtype, "int8", QUIRE_INVALID, "--dtype");
    REFUSE(dtype, "bfloat16", QUIRE_UNSUPPORTED, "stored as float32");
    REFUSE(kv_cache_dtype, "fp4", QUIRE_UNSUPPORTED, "--kv-cache-dtype");
    REFUSE(kv_cache_dtype, "bfloat16", QUIRE_UNSUPPORTED, "--kv-cache-dtype");
    REFUSE(kv_cache_dtype, "nvfp4", QUIRE_UNSUPPORTED, "int8, fp8, fp8_e4m3 or fp8_e5m2, got 'nvfp4'");
    REFUSE(gemm_form, "tile", QUIRE_UNSUPPORTED, "--gemm-form tile");
    REFUSE(gemm_form, "round", QUIRE_INVALID, "--gemm-form");
    REFUSE(activation_dtype, "float16", QUIRE_INVALID, "--activation-dtype");
    REFUSE(activation_dtype, "bfloat16", QUIRE_UNSUPPORTED, "--activation-dtype bfloat16 takes bfloat16");
    REFUSE(steps->scheduling_policy, "lottery", QUIRE_INVALID, "fcfs");
    REFUSE(max_model_len, 257, QUIRE_INVALID, "max_position_embeddings");
    REFUSE(block_size, 12, QUIRE_INVALID, "--block-size");
    REFUSE(kv_cache_memory, 1 << 20, QUIRE_INVALID, "give one");
    REFUSE(num_kv_blocks, UINT32_MAX, QUIRE_INVALID, "--num-kv-blocks");
    REFUSE(kv_cache_memory, 1, QUIRE_INVALID, "--kv-cache-memory");
    REFUSE(num_kv_blocks, 1u << 27, QUIRE_NO_MEMORY, "are free");
    REFUSE(max_num_seqs, 1u << 17, QUIRE_INVALID, "--max-num-seqs");
    REFUSE(max_num_batched_tokens, UINT32_MAX, QUIRE_INVALID, "--max-num-batched-tokens");
    REFUSE(n_threads, 100000, QUIRE_INVALID, "threads");
    REFUSE(max_queued_requests, UINT32_MAX, QUIRE_INVALID, "--max-num-queued-reqs");
}

static void dtype_names(void **state)
{
    (void)state;
    static const char *const names[] = {"auto", "float32", "float", "fp32"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct engine_options o = small_options();
        o.dtype = names[i];
        struct client *c = client_open(model.dir, &o);
        assert_int_equal(engine_info(client_engine(c))->plan->kv_format.kind, K_F32);
        client_close(c);
    }
}

/* ---- the identity of the arithmetic ---------------------------------------------------------- */

static struct engine_identity identity_of(const char *dir, const struct engine_options *o)
{
    struct client *c = client_open(dir, o);
    struct engine_identity identity = engine_info(client_engine(c))->identity;
    client_close(c);
    return identity;
}

static void same(const struct engine_identity *a, const struct engine_identity *b)
{
    assert_string_equal(a->text, b->text);
    assert_memory_equal(&a->digest, &b->digest, sizeof a->digest);
}

static void differ(const struct engine_identity *a, const struct engine_identity *b)
{
    assert_string_not_equal(a->text, b->text);
    assert_memory_not_equal(&a->digest, &b->digest, sizeof a->digest);
}

static void identity_of_the_arithmetic(void **state)
{
    (void)state;
    struct engine_options o = small_options();
    const struct engine_identity first = identity_of(model.dir, &o);
    const struct key256 of_text = quire_sha256(first.text, strlen(first.text));
    assert_memory_equal(&first.digest, &of_text, sizeof of_text);
    char text[ENGINE_IDENTITY_BYTES], weights[65], described[65];
    quire_key256_hex(&first.weights, weights);
    quire_key256_hex(&first.model, described);
    snprintf(text, sizeof text,
             "law=%u\nweights=%s\nmodel=%s\nweight_format=float32\nform=lane\nactivation=float32\nkv_format=float32\n"
             "invariance=strict\nadapters=none\n",
             K_NUMERICS_VERSION, weights, described);
    assert_string_equal(first.text, text);

    /* Neither memory nor scheduling nor threads move a bit. */
    o.n_threads = 2;
    o.num_kv_blocks = 32;
    o.block_size = 32;
    o.device = "ref";
    struct engine_identity other = identity_of(model.dir, &o);
    same(&first, &other);
    static const char *const formats[] = {"float16", "int8", "fp8_e4m3", "fp8_e5m2"};
    struct engine_identity of_format[4];
    for (size_t i = 0; i < 4; i++) {
        o.kv_cache_dtype = formats[i];
        of_format[i] = identity_of(model.dir, &o);
        differ(&first, &of_format[i]);
        for (size_t k = 0; k < i; k++)
            differ(&of_format[k], &of_format[i]);
    }
    o.kv_cache_dtype = "fp8";
    other = identity_of(model.dir, &o);
    same(&of_format[2], &other);

    struct tiny_model tuned;
    const struct tiny_spec spec = {.seed = 77, .nan_token = -1, .prefix = "model."};
    o = small_options();
    tiny_model_write(&spec, &tuned);
    other = identity_of(tuned.dir, &o);
    tiny_model_remove(&tuned);
    differ(&first, &other);
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Qwen2.5-0.5B's sizes. */
static void half_billion(struct described *d)
{
    memset(d, 0, sizeof *d);
    d->config.vocab_size = 151936;
    d->config.hidden_size = 896;
    d->config.n_layers = 24;
    d->config.max_position = 32768;
    d->facts.dtype = K_BF16;
    described_layers(d, NORM_PRE, HEAD_NORM_NONE,
                     (struct model_attention){
                         .n_q_heads = 14, .n_kv_heads = 2, .k_dim = 64, .q_bias = true, .k_bias = true, .v_bias = true},
                     4864);
}

/* Other heads in every layer. */
static void set_heads(struct described *d, uint32_t n_q_heads, uint32_t n_kv_heads, uint32_t head_dim)
{
    for (uint32_t l = 0; l < d->config.n_layers; l++) {
        struct model_attention *a = described_attention(d, l);
        a->n_q_heads = n_q_heads;
        a->n_kv_heads = n_kv_heads;
        a->k_dim = a->v_dim = head_dim;
    }
    d->ropes[0].dim = head_dim;
}

static void plan_to_the_byte(void **state)
{
    (void)state;
    static struct described d;
    half_billion(&d);
    struct engine_options o;
    struct engine_plan p;
    struct quire_error err;
    engine_options_default(&o);
    o.device = "ref";
    o.n_threads = 4;
    o.num_kv_blocks = 3000;
    assert_int_equal(engine_plan_make(&o, &d.desc, 988000000, &p, &err), QUIRE_OK);
    assert_int_equal(p.block_tokens, 16);
    assert_int_equal(p.max_num_seqs, 64);
    assert_int_equal(p.max_num_batched_tokens, 512);
    assert_int_equal(p.max_logit_rows, 64);
    assert_int_equal(p.max_model_len, 32768);
    assert_int_equal(p.weight_format.kind, K_BF16);
    assert_int_equal(p.kv_format.kind, K_F16);
    assert_int_equal(p.n_kv_groups, 1);
    /* K and V: 2 heads of 64 in f16 for 16 tokens in 24 layers. */
    assert_int_equal(p.kv_block_bytes, 2 * 2 * 64 * 2 * 16 * 24);
    assert_int_equal(p.groups[0].n_blocks, 3000);
    assert_int_equal(p.bytes[PLAN_KV], 3000 * p.kv_block_bytes);
    assert_int_equal(p.bytes[PLAN_LOGITS], 64ull * 151936 * 4 + 64 * 4); /* and the tokens drawn from them */
    /* Two norms and the qkv bias a layer, the last norm, 32 frequencies. */
    assert_int_equal(p.bytes[PLAN_PARAMS], 4 * (24 * (2 * 896 + 1152) + 896 + 32));
    /* 3 input rows of 512, 64 rows of 16 bytes, 64 logit rows and as many rows again, 64 sources of tokens, 64 tables of 2048 entries; then
     * residual, normed and delta, gate_up, silu, angles, the gathered rows, and 64 results of 180 bytes. */
    assert_int_equal(p.bytes[PLAN_ACTIVATIONS], 4 * (3 * 512 + 4 * 64 + 64 + 4 * 64 + 2 * 64 + 64 * 2048) +
                                                    4 * (512 * (3 * 896 + 2 * 4864 + 4864 + 64) + 64 * 896) + 64 * 180);
    assert_int_equal(engine_plan_total_bytes(&p), p.bytes[PLAN_PARAMS] + p.bytes[PLAN_ACTIVATIONS] +
                                                      p.bytes[PLAN_LOGITS] + p.bytes[PLAN_WORKSPACE] +
                                                      p.bytes[PLAN_KV] + p.bytes[PLAN_DRAFTS]);
    assert_int_equal(p.bytes[PLAN_WEIGHTS], 988000000);

    o.num_kv_blocks = 0;
    o.kv_cache_memory = 3000 * p.kv_block_bytes + 17;
    assert_int_equal(engine_plan_make(&o, &d.desc, 988000000, &p, &err), QUIRE_OK);
    assert_int_equal(p.groups[0].n_blocks, 3000);
}

/* Gemma 3's shape: five of six layers look back on 1,024 tokens. A request of 32k tokens holds in them what a window and a
 * chunk of 512 reach, at any alignment: 97 blocks of 16 tokens. */
static void plan_of_windows(void **state)
{
    (void)state;
    static struct described d;
    const uint64_t layer = 2 * 4 * 256 * 2 * 16, n_local = 29, n_global = 5; /* bytes of a block: K and V of 4 heads */
    half_billion(&d);
    d.config.n_layers = 34;
    described_layers(&d, NORM_BOTH, HEAD_NORM_EACH,
                     (struct model_attention){.n_q_heads = 8, .n_kv_heads = 4, .k_dim = 256}, 10240);
    for (uint32_t l = 0; l < d.config.n_layers; l++)
        model_set_window(&d.config, l, l % 6 == 5 ? 0 : 1024);
    struct engine_options o;
    struct engine_plan p;
    struct quire_error err;
    engine_options_default(&o);
    o.device = "ref";
    o.num_kv_blocks = 2048;
    o.max_num_seqs = 1;
    assert_int_equal(engine_plan_make(&o, &d.desc, 0, &p, &err), QUIRE_OK);
    assert_int_equal(p.n_kv_groups, 2);
    assert_int_equal(p.groups[0].n_layers, n_local);
    const uint64_t local = 97 * n_local * layer, global = 2048 * n_global * layer;
    assert_int_equal(engine_plan_request_bytes(&p, 0, 32768), local);
    assert_int_equal(engine_plan_request_bytes(&p, 1, 32768), global);
    assert_int_equal(p.bytes[PLAN_KV], local + global);
    assert_true(p.bytes[PLAN_KV] * 5 < 2048 * 34 * layer); /* all layers global */
    assert_int_equal(engine_plan_read_bytes(&p, 0, 32768), 1024 / 16 * n_local * layer);
    assert_int_equal(engine_plan_read_bytes(&p, 1, 32768), global);
    assert_int_equal(engine_plan_read_bytes(&p, 0, 100), 100 * n_local * layer / 16);
}

/* A byte for each number, four for the vector that it is of: 16 tokens of 2 heads of K and V. */
static void plan_of_a_cache_in_8_bits(void **state)
{
    (void)state;
    static const struct {
        const char *name, *shown;
        uint32_t head_dim, block_size;
        uint64_t layer_bytes; /* of a block */
    } cases[] = {
        {"int8", "int8", 64, 16, 2 * 2 * 16 * (64 + 4)},
        {"int8_per_token_head", "int8", 128, 16, 2 * 2 * 16 * 132},
        {"fp8", "float8_e4m3", 64, 128, 2 * 2 * 128 * 68},
        {"fp8_e4m3", "float8_e4m3", 80, 16, 2 * 2 * 16 * 84},
        {"fp8_per_token_head", "float8_e4m3", 64, 8, 2 * 2 * 8 * 68},
        {"fp8_e5m2", "float8_e5m2", 256, 16, 2 * 2 * 16 * 260},
        {"float16", "float16", 64, 16, 2 * 2 * 16 * 128},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static struct described d;
        half_billion(&d);
        struct engine_options o;
        struct engine_plan p, wide;
        struct quire_error err;
        engine_options_default(&o);
        o.device = "cpu";
        o.block_size = cases[i].block_size;
        o.kv_cache_memory = 1ull << 30;
        o.swap_space = 1ull << 28;
        set_heads(&d, 14, 2, cases[i].head_dim);
        assert_int_equal(engine_plan_make(&o, &d.desc, 0, &wide, &err), QUIRE_OK);
        o.kv_cache_dtype = cases[i].name;
        assert_int_equal(engine_plan_make(&o, &d.desc, 0, &p, &err), QUIRE_OK);
        assert_string_equal(k_format_name(p.kv_format), cases[i].shown);
        assert_int_equal(p.kv_block_bytes, 24 * cases[i].layer_bytes);
        assert_int_equal(p.groups[0].n_blocks, (1ull << 30) / p.kv_block_bytes);
        assert_int_equal(p.groups[0].n_host_blocks, ((1ull << 28) * p.groups[0].n_blocks) / p.bytes[PLAN_KV]);
        /* The same memory holds 2 D / (D + 4) times the blocks. */
        if (i < 6)
            assert_int_equal(p.groups[0].n_blocks / 100,
                             (uint64_t)wide.groups[0].n_blocks * 2 * cases[i].head_dim / (cases[i].head_dim + 4) / 100);
    }
}

static void plan_of_another_cache_in_8_bits(void **state)
{
    (void)state;
    static struct described d;
    half_billion(&d);
    struct engine_options o;
    struct engine_plan p;
    struct quire_error err;
    engine_options_default(&o);
    o.kv_cache_dtype = "fp8";
    o.device = "cpu";
    /* A draft model's blocks are of the same dtype, by its own shape; so are those for what is only guessed. */
    static struct described guesses;
    half_billion(&guesses);
    set_heads(&guesses, 14, 1, 64);
    guesses.config.n_layers = 3;
    struct engine_draft draft = {.desc = &guesses.desc, .n_tokens = 4};
    struct engine_plan own;
    assert_int_equal(engine_plan_make_on(&o, &d.desc, 0, &draft, NULL, &p, &err), QUIRE_OK);
    assert_int_equal(engine_plan_n_groups(&p), 2);
    assert_int_equal(p.groups[1].block_bytes, 3 * 2 * 16 * (64 + 4));
    assert_int_equal(engine_plan_of_draft(&p, &draft, &own, &err), QUIRE_OK);
    assert_string_equal(k_format_name(own.kv_format), "float8_e4m3");
    assert_int_equal(own.groups[0].block_bytes, p.groups[1].block_bytes);
    o.device = "h200";
    assert_int_equal(engine_plan_make(&o, &d.desc, 0, &p, &err), QUIRE_OK);
    assert_int_equal(p.groups[0].block_bytes, 24 * 2 * 2 * 16 * (64 + 4));
}

/* Bytes of copies of BF16 matrices, as a look at a checkpoint counts them. */
static uint64_t bytes_of_copies(const struct model_desc *desc, const struct k_planner *planner)
{
    const struct k_format formats[MODEL_MAX_PARTS] = {K_FORMAT_BF16, K_FORMAT_BF16, K_FORMAT_BF16, K_FORMAT_BF16};
    struct model_stack stack = {0};
    uint64_t n = 0;
    while (model_next_stack(desc, &stack))
        if (stack.parts->kind == TENSOR_MATRIX)
            n += model_copy_bytes(desc, &stack, formats, planner);
    return n;
}

/* Computed from a table, without the GPU. */
static void plan_for_a_gpu(void **state)
{
    (void)state;
    static struct described d;
    half_billion(&d);
    struct engine_options o;
    struct engine_plan p;
    struct quire_error err;
    engine_options_default(&o);
    o.device = "h200";
    d.config.tied_embeddings = true;
    const struct k_device *gpu = k_device_find("h200");
    d.desc.shard.device_bytes = bytes_of_copies(&d.desc, gpu->planner);
    assert_int_equal(engine_plan_make(&o, &d.desc, 988000000, &p, &err), QUIRE_OK);
    assert_ptr_equal(p.gpu, gpu);
    assert_string_equal(engine_plan_device(&p), "cuda");
    assert_int_equal(p.max_num_seqs, 256);
    assert_int_equal(engine_plan_overlap_depth(&p), 1);
    assert_int_equal(p.device_memory, gpu->memory_bytes);
    assert_int_equal(p.device_budget, (uint64_t)((double)gpu->memory_bytes * 0.9));
    /* bf16 rows of 896 and 4864 are whole lines; an exponent a row; each matrix is an allocation of its own, which the
     * driver rounds up to 2 MiB. */
    uint64_t rows = 896 + 2 * 128, matrices = rows * 896 + 896 * 896 + 2 * 4864 * 896 + 896 * 4864;
    uint64_t exponents = rows + 896 + 2 * 4864 + 896;
    uint64_t least = 2 * (24 * matrices + 151936ull * 896) + 24 * exponents + 151936;
    assert_in_range(p.bytes[PLAN_WEIGHTS], least, least + (24 * 4 + 1) * (2ull << 20));
    /* The KV cache is what the rest leaves, to the block. */
    uint64_t rest = p.bytes[PLAN_WEIGHTS] + p.bytes[PLAN_PARAMS] + p.bytes[PLAN_ACTIVATIONS] + p.bytes[PLAN_LOGITS] +
                    p.bytes[PLAN_WORKSPACE] + p.driver_bytes;
    assert_in_range(rest + p.bytes[PLAN_KV], p.device_budget - p.kv_block_bytes, p.device_budget);

    /* Kernels have gate and up in registers: the arena holds qkv, not them, and the KV cache has the difference. NVIDIA's
     * GEMM needs that, and a workspace of its own. */
    uint64_t kv_bytes = p.bytes[PLAN_KV], activation_bytes = p.bytes[PLAN_ACTIVATIONS],
             workspace_bytes = p.bytes[PLAN_WORKSPACE];
    uint64_t gate_up = p.max_num_batched_tokens * (2 * 4864 - rows) * 4, library = (32ull << 20) + 256;
    o.invariance = "off";
    assert_int_equal(engine_plan_make(&o, &d.desc, 988000000, &p, &err), QUIRE_OK);
    assert_int_equal(p.bytes[PLAN_ACTIVATIONS], activation_bytes + gate_up);
    assert_int_equal(p.bytes[PLAN_WORKSPACE], workspace_bytes + library);
    assert_in_range(kv_bytes - p.bytes[PLAN_KV], gate_up + library - p.kv_block_bytes,
                    gate_up + library + p.kv_block_bytes);
    o.gemm_form = "lane"; /* a CPU's bits, which the library has not */
    assert_int_equal(engine_plan_make(&o, &d.desc, 988000000, &p, &err), QUIRE_OK);
    assert_int_equal(p.bytes[PLAN_KV], kv_bytes);
    o.invariance = "none";
    assert_int_equal(engine_plan_make(&o, &d.desc, 988000000, &p, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "--invariance"));
    o.invariance = "strict";
    o.gemm_form = "auto";

    o.gpu_memory_utilization = 0.5;
    assert_int_equal(engine_plan_make(&o, &d.desc, 988000000, &p, &err), QUIRE_OK);
    assert_in_range(kv_bytes - p.bytes[PLAN_KV], (uint64_t)((double)gpu->memory_bytes * 0.4) - p.kv_block_bytes,
                    (uint64_t)((double)gpu->memory_bytes * 0.4) + p.kv_block_bytes);
    o.gpu_memory_utilization = 0.01;
    assert_int_equal(engine_plan_make(&o, &d.desc, 988000000, &p, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "--gpu-memory-utilization"));
    o.device = "cuda";
    assert_int_equal(engine_plan_make(&o, &d.desc, 988000000, &p, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "h200"));
}

static void plan_with_windows(void **state)
{
    (void)state;
    static struct described d;
    half_billion(&d);
    struct engine_options o;
    struct engine_plan p;
    struct quire_error err;
    engine_options_default(&o);
    o.device = "cpu";
    o.num_kv_blocks = 5000;
    o.max_num_seqs = 4;
    o.max_num_batched_tokens = 64;
    for (uint32_t l = 1; l < d.config.n_layers; l++)
        model_set_window(&d.config, l, l % 2 ? 128 : 0);
    assert_int_equal(engine_plan_make(&o, &d.desc, 0, &p, &err), QUIRE_OK);
    assert_int_equal(p.n_kv_groups, 2);
    assert_int_equal(p.groups[0].window, 0);
    assert_int_equal(p.groups[0].n_layers, 12);
    assert_int_equal(p.groups[0].n_blocks, 5000);
    assert_int_equal(p.groups[1].window, 128);
    assert_int_equal(p.groups[1].n_layers, 12);
    /* A sequence reads 127 earlier positions beside 64 new ones: at most 13 blocks it can touch. */
    assert_in_range(p.groups[1].n_blocks, 4 * 12, 4 * 13);
    assert_int_equal(p.bytes[PLAN_KV],
                     p.groups[0].n_blocks * p.groups[0].block_bytes + p.groups[1].n_blocks * p.groups[1].block_bytes);
    for (uint32_t l = 0; l < 5; l++)
        model_set_window(&d.config, l, 100 + l);
    assert_int_equal(engine_plan_make(&o, &d.desc, 0, &p, &err), QUIRE_UNSUPPORTED);
}

#define INT4 {K_INT, 4, 128, K_F16, K_PACKING_PLANES}
#define ROW_INT8 {K_INT, 8, 0, K_BF16, K_PACKING_PLANES}
#define BLOCKS {K_INT, 4, 32, K_F16, K_PACKING_Q4_K}
#define E4M3 {K_E4M3, 8, 128, K_F32, K_PACKING_PLANES}
static void plan_of_forms(void **state)
{
    (void)state;
    static const struct {
        const char *form, *activations;
        struct k_format weights;
        int status;
        enum k_gemm_form want;
    } cases[] = {
        {NULL, NULL, K_FORMAT_F16, QUIRE_OK, K_FORM_AUTO},
        {"auto", "float32", K_FORMAT_BF16, QUIRE_OK, K_FORM_AUTO},
        {"lane", "float32", K_FORMAT_F32, QUIRE_OK, K_FORM_LANE},
        {"tile", "float32", K_FORMAT_BF16, QUIRE_OK, K_FORM_TILE},
        {"tile", NULL, K_FORMAT_F16, QUIRE_OK, K_FORM_TILE},
        {"tile", NULL, K_FORMAT_F32, QUIRE_UNSUPPORTED, 0},
        {"auto", "bfloat16", K_FORMAT_BF16, QUIRE_OK, K_FORM_TILE_BF16},
        {"tile", "bf16", K_FORMAT_BF16, QUIRE_OK, K_FORM_TILE_BF16},
        {"lane", "bfloat16", K_FORMAT_BF16, QUIRE_INVALID, 0},
        {"tile", "bfloat16", K_FORMAT_F16, QUIRE_UNSUPPORTED, 0},
        {"auto", "bfloat16", K_FORMAT_F32, QUIRE_UNSUPPORTED, 0},
        {"auto", "float16", K_FORMAT_BF16, QUIRE_INVALID, 0},
        {"auto", "auto", INT4, QUIRE_OK, K_FORM_LANE},
        {"auto", "auto", ROW_INT8, QUIRE_OK, K_FORM_LANE},
        {"auto", NULL, BLOCKS, QUIRE_OK, K_FORM_INT8},
        {"lane", "auto", BLOCKS, QUIRE_OK, K_FORM_LANE},
        {"auto", "float32", BLOCKS, QUIRE_OK, K_FORM_LANE},
        {"auto", "int8", INT4, QUIRE_OK, K_FORM_INT8},
        {"lane", "int8", INT4, QUIRE_INVALID, 0},
        {"tile", "auto", INT4, QUIRE_UNSUPPORTED, 0},
        {"auto", "int8", E4M3, QUIRE_UNSUPPORTED, 0},
        {"auto", "int8", K_FORMAT_BF16, QUIRE_UNSUPPORTED, 0},
        {"auto", "bfloat16", INT4, QUIRE_UNSUPPORTED, 0},
        {"round", NULL, K_FORMAT_BF16, QUIRE_INVALID, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct engine_options o;
        struct quire_error err;
        enum k_gemm_form form;
        engine_options_default(&o);
        o.gemm_form = cases[i].form;
        o.activation_dtype = cases[i].activations;
        const struct checkpoint_facts facts = {.weight_format = cases[i].weights};
        const struct model_desc desc = {.facts = &facts};
        assert_int_equal(engine_plan_form(&o, &desc, &form, &err), cases[i].status);
        if (cases[i].status == QUIRE_OK)
            assert_int_equal(form, cases[i].want);
    }

    const struct checkpoint_facts of_w8a8 = {.weight_format = ROW_INT8, .int8_activations = true};
    const struct model_desc w8a8 = {.facts = &of_w8a8};
    struct engine_options o;
    struct quire_error err;
    enum k_gemm_form form;
    engine_options_default(&o);
    assert_int_equal(engine_plan_form(&o, &w8a8, &form, &err), QUIRE_OK);
    assert_int_equal(form, K_FORM_INT8);

    const struct checkpoint_facts of_mixed = {.weight_format = K_FORMAT_F16,
                                              .needs_lanes = true,
                                              .lanes_matrix = "model.layers.1.mlp.down_proj.weight",
                                              .lanes_format = K_FORMAT_F32};
    const struct model_desc mixed = {.facts = &of_mixed};
    assert_int_equal(engine_plan_form(&o, &mixed, &form, &err), QUIRE_OK);
    assert_int_equal(form, K_FORM_LANE);
    o.gemm_form = "tile";
    assert_int_equal(engine_plan_form(&o, &mixed, &form, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "some of this model's matrices"));
    assert_non_null(strstr(err.text, "model.layers.1.mlp.down_proj.weight is float32"));
}

/* Layers with other heads are a KV group of their own, whose blocks have their own bytes. */
static void plan_with_two_shapes(void **state)
{
    (void)state;
    static struct described d;
    half_billion(&d);
    struct engine_options o;
    struct engine_plan p;
    struct quire_error err;
    engine_options_default(&o);
    o.device = "cpu";
    o.num_kv_blocks = 5000;
    for (uint32_t l = 20; l < 24; l++) {
        described_attention(&d, l)->n_kv_heads = 7;
        described_attention(&d, l)->k_dim = described_attention(&d, l)->v_dim = 128;
    }
    assert_int_equal(engine_plan_make(&o, &d.desc, 0, &p, &err), QUIRE_OK);
    assert_int_equal(p.n_kv_groups, 2);
    assert_int_equal(p.groups[0].n_layers, 20);
    assert_int_equal(p.groups[1].n_layers, 4);
    assert_int_equal(p.groups[0].block_bytes, 20 * 2 * 2 * 64 * 2 * 16);
    assert_int_equal(p.groups[1].block_bytes, 4 * 2 * 7 * 128 * 2 * 16);
    assert_int_equal(p.bytes[PLAN_KV], 5000 * (p.groups[0].block_bytes + p.groups[1].block_bytes));
    described_attention(&d, 23)->v_dim = 64;
    assert_int_equal(engine_plan_make(&o, &d.desc, 0, &p, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "heads of K have 128 numbers and heads of V 64"));
}

static void plan_says_what_to_change(void **state)
{
    (void)state;
    static struct described d;
    half_billion(&d);
    struct engine_options o;
    struct engine_plan p;
    struct quire_error err;
    engine_options_default(&o);
    o.num_kv_blocks = 100;
    o.max_model_len = 4096;
    assert_int_equal(engine_plan_make(&o, &d.desc, 0, &p, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "--max-model-len 4096 needs 256 blocks of 16 tokens,"
                                  " --num-kv-blocks gives 100: lower it to 1600 or raise"
                                  " --num-kv-blocks");
    o.max_model_len = 0;
    assert_int_equal(engine_plan_make(&o, &d.desc, 0, &p, &err), QUIRE_OK);
    assert_int_equal(p.max_model_len, 1600);
    o.kv_cache_memory = 1u << 30;
    assert_int_equal(engine_plan_make(&o, &d.desc, 0, &p, &err), QUIRE_INVALID);

    /* By default: a share of what is free, never more than 4 GiB, and enough for one request. */
    o.num_kv_blocks = 0;
    o.kv_cache_memory = 0;
    assert_int_equal(engine_plan_make(&o, &d.desc, 0, &p, &err), QUIRE_OK);
    assert_true(p.bytes[PLAN_KV] <= 4ull << 30);
    assert_true((uint64_t)p.groups[0].n_blocks * p.block_tokens >= p.max_model_len);
}

static void sizes_overflow(void **state)
{
    (void)state;
    static struct described d;
    half_billion(&d);
    struct engine_options o;
    struct engine_plan p;
    struct quire_error err;
    engine_options_default(&o);
    d.config.n_layers = MODEL_MAX_LAYERS;
    described_layers(&d, NORM_PRE, HEAD_NORM_NONE,
                     (struct model_attention){.n_q_heads = 1u << 14, .n_kv_heads = 1u << 14, .k_dim = 256}, 4864);
    d.config.hidden_size = 1u << 20;
    d.config.max_position = 1u << 26;
    o.max_num_batched_tokens = 1u << 20;
    o.max_num_seqs = 65536;
    o.num_kv_blocks = 1u << 27;
    int status = engine_plan_make(&o, &d.desc, UINT64_MAX, &p, &err);
    assert_true(status == QUIRE_INVALID || engine_plan_total_bytes(&p) == UINT64_MAX ||
                engine_plan_total_bytes(&p) > 1ull << 60);
}

struct told {
    uint32_t n;
    uint64_t done, total;
};

static void on_loading(void *context, uint64_t done, uint64_t total)
{
    struct told *t = context;
    assert_true(t->n == 0 ? done == 0 && total > 0 : done > t->done && done <= total && total == t->total);
    *t = (struct told){t->n + 1, done, total};
}

/* From nothing to all, a step for each matrix: of two layers four, then embedding and head. */
static void loading_is_told(void **state)
{
    (void)state;
    struct told told = {.n = 0};
    struct engine_options o = small_options();
    const struct engine_observers observers = {.loading = on_loading, .loading_context = &told};
    o.observers = &observers;
    client_close(client_open(model.dir, &o));
    assert_int_equal(told.n, 1 + 2 * 4 + 2);
    assert_int_equal(told.done, told.total);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_shapes),
        cmocka_unit_test(missing_tensors),
        cmocka_unit_test(names_without_prefix),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(loading_is_told),
        cmocka_unit_test(identity_of_the_arithmetic),
        cmocka_unit_test(dtype_names),
        cmocka_unit_test(plan_to_the_byte),
        cmocka_unit_test(plan_of_windows),
        cmocka_unit_test(plan_of_a_cache_in_8_bits),
        cmocka_unit_test(plan_of_another_cache_in_8_bits),
        cmocka_unit_test(plan_for_a_gpu),
        cmocka_unit_test(plan_with_windows),
        cmocka_unit_test(plan_with_two_shapes),
        cmocka_unit_test(plan_of_forms),
        cmocka_unit_test(plan_says_what_to_change),
        cmocka_unit_test(sizes_overflow),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
