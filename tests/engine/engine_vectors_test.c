/* Models that return vectors, against transformers in fp32 (tests/goldens/vectors): every number; the same bits
 * alone and in a batch, on one thread and two, on ref and cpu; and rejections with the name of the fault. */
#include "engine/engine.h"
#include "engine/event.h"
#include "engine/info.h"
#include "engine/model/describe.h"
#include "engine/options.h"
#include "engine/plan.h"

#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/isolated_tests.h"

#define MODELS QUIRE_SOURCE_DIR "/tests/goldens/vectors/"
#define MAX_TEXTS 8u
#define MAX_TOKENS 160u
#define MAX_SIZE 64u
/* The emulator of a GPU has time for short texts only; the first computation is a CPU's. */
#ifdef TEST_DEVICE
#define FIRST_DEVICE "cpu"
#define N_TEXTS 3u
#else
#define FIRST_DEVICE "auto"
#define N_TEXTS 6u
#endif
/* f32 on both sides, sums of at most 150 terms in two layers: 1.6e-6 of 1 + the number was the most seen. */
#define TOLERANCE 2e-5

struct text {
    uint32_t n, segment, size;
    uint32_t ids[MAX_TOKENS];
    float want[MAX_SIZE], got[MAX_SIZE];
    uint32_t n_vectors; /* that came, each before its DONE */
};

struct run {
    struct engine *engine;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t n_done, n_texts;
    struct text texts[MAX_TEXTS];
};

static void sink(void *context, const struct engine_event *events, size_t n)
{
    struct run *run = context;
    pthread_mutex_lock(&run->mutex);
    for (size_t i = 0; i < n; i++) {
        struct text *text = &run->texts[events[i].request - 1];
        if (events[i].kind == ENGINE_EVENT_VECTOR) {
            memcpy(text->got, events[i].vector, events[i].n_vector * sizeof(float));
            text->n_vectors++;
        } else if (events[i].kind == ENGINE_EVENT_DONE) {
            run->n_done++;
        }
    }
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->mutex);
}

static void read_texts(const char *model, struct run *run)
{
    char path[512];
    snprintf(path, sizeof path, MODELS "%s/golden.txt", model);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (struct text *t = run->texts; fscanf(file, " text %u %u %u", &t->n, &t->segment, &t->size) == 3; t++) {
        assert_true(t->n <= MAX_TOKENS && t->size <= MAX_SIZE && run->n_texts++ < MAX_TEXTS);
        for (uint32_t i = 0; i < t->n; i++)
            assert_int_equal(fscanf(file, "%u", &t->ids[i]), 1);
        for (uint32_t i = 0; i < t->size; i++)
            assert_int_equal(fscanf(file, "%f", &t->want[i]), 1);
    }
    fclose(file);
    assert_int_equal(run->n_texts, 6);
    run->n_texts = N_TEXTS;
}

static struct engine_options options_for(const char *model, char dir[512])
{
    struct engine_options options;
    engine_options_default(&options);
    snprintf(dir, 512, MODELS "%s", model);
    options.model_dir = dir;
    options.task = "embed";
    options.device = FIRST_DEVICE;
    options.num_kv_blocks = 100;
    options.n_threads = 1;
    return options;
}

static void open_run(const char *model, const struct engine_options *options, struct run *run)
{
    struct quire_error err;
    memset(run, 0, sizeof *run);
    pthread_mutex_init(&run->mutex, NULL);
    pthread_cond_init(&run->changed, NULL);
    read_texts(model, run);
    if (engine_open(options, sink, run, &run->engine, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    assert_int_equal(engine_info(run->engine)->vector_size, run->texts[0].size);
}

static void close_run(struct run *run)
{
    engine_close(run->engine);
    pthread_mutex_destroy(&run->mutex);
    pthread_cond_destroy(&run->changed);
}

static int submit(struct engine *e, uint64_t id, const uint32_t *ids, uint32_t n, uint32_t segment, bool vector,
                  struct quire_error *err)
{
    struct request_spec said, own;
    uint32_t retry;
    request_spec_default(&said);
    said.prompt = ids;
    said.n_prompt = n;
    said.max_tokens = !vector;
    said.wants_vector = vector;
    said.segment_from = segment;
    assert_int_equal(request_spec_copy(&own, &said, err), QUIRE_OK);
    return engine_submit(e, id, &own, &retry, err);
}

static void wait_for(struct run *run, uint32_t n)
{
    pthread_mutex_lock(&run->mutex);
    while (run->n_done < n)
        pthread_cond_wait(&run->changed, &run->mutex);
    pthread_mutex_unlock(&run->mutex);
}

/* All of them: one after the other is over, or at once. */
static void ask(struct run *run, bool alone)
{
    struct quire_error err;
    run->n_done = 0;
    for (uint32_t i = 0; i < run->n_texts; i++) {
        struct text *t = &run->texts[i];
        t->n_vectors = 0;
        if (submit(run->engine, i + 1, t->ids, t->n, t->segment, true, &err) != QUIRE_OK)
            fail_msg("%s", err.text);
        if (alone)
            wait_for(run, i + 1);
    }
    wait_for(run, run->n_texts);
    for (uint32_t i = 0; i < run->n_texts; i++)
        assert_int_equal(run->texts[i].n_vectors, 1);
}

static void check_model(const char *model)
{
    struct run one, many;
    char dir[512];
    struct engine_options options = options_for(model, dir);
    open_run(model, &options, &one);
    ask(&one, true);
    for (uint32_t i = 0; i < one.n_texts; i++)
        for (uint32_t k = 0; k < one.texts[i].size; k++)
            if (!(fabsf(one.texts[i].got[k] - one.texts[i].want[k]) <= TOLERANCE * (1 + fabsf(one.texts[i].want[k]))))
                fail_msg("%s: text of %u tokens, number %u: %.7f, transformers has %.7f", model, one.texts[i].n, k,
                         (double)one.texts[i].got[k], (double)one.texts[i].want[k]);
    float first[MAX_TEXTS][MAX_SIZE];
    for (uint32_t i = 0; i < one.n_texts; i++)
        memcpy(first[i], one.texts[i].got, sizeof first[i]);
    ask(&one, true); /* again: of a decoder's all but the last token is cached by now */
    for (uint32_t i = 0; i < one.n_texts; i++)
        assert_memory_equal(one.texts[i].got, first[i], one.texts[i].size * sizeof(float));
    static const struct {
        const char *device;
        uint32_t n_threads, n_batched, block_size;
    } settings[] = {
#ifdef TEST_DEVICE
        {TEST_DEVICE, 1, 0, 0}, /* F32: the lane form, whose bits are a CPU's */
#else
        {"auto", 1, 0, 0},
        {"auto", 2, 200, 8},
        {"ref", 2, 300, 32},
#endif
    };
    for (uint32_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        options.device = settings[s].device;
        options.n_threads = settings[s].n_threads;
        options.max_num_batched_tokens = settings[s].n_batched;
        options.block_size = settings[s].block_size;
        options.num_kv_blocks = s == 1 ? 0 : 100;
        open_run(model, &options, &many);
        ask(&many, false);
        for (uint32_t i = 0; i < one.n_texts; i++)
            assert_memory_equal(many.texts[i].got, one.texts[i].got, one.texts[i].size * sizeof(float));
        close_run(&many);
    }
    close_run(&one);
}

#define MODEL(name) \
    static void model_##name(void **state) \
    { \
        (void)state; \
        check_model(#name); \
    }
MODEL(bert_mean)
MODEL(bert_cls)
MODEL(bert_labels)
MODEL(roberta)
MODEL(xlmr_labels)
MODEL(qwen3_last)
MODEL(bert_dense)
MODEL(qwen3_dense)

static void refused(int status, const struct quire_error *err, const char *says)
{
    assert_int_not_equal(status, QUIRE_OK);
    if (!strstr(err->text, says))
        fail_msg("'%s' does not say '%s'", err->text, says);
}

static void requests_of_the_other_kind(void **state)
{
    (void)state;
    struct quire_error err;
    struct run run;
    char dir[512];
    struct engine_options options = options_for("bert_mean", dir);
    open_run("bert_mean", &options, &run);
    uint32_t ids[150];
    for (uint32_t i = 0; i < 150; i++)
        ids[i] = 7;
    refused(submit(run.engine, 1, ids, 3, 0, false, &err), &err, "returns vectors and generates no text");
    refused(submit(run.engine, 1, ids, 141, 0, true, &err), &err, "context of 140"); /* max_seq_length */
    assert_int_equal(submit(run.engine, 1, ids, 140, 0, true, &err), QUIRE_OK);
    wait_for(&run, 1);
    close_run(&run);
    options = options_for("roberta", dir);
    open_run("roberta", &options, &run);
    refused(submit(run.engine, 1, ids, 9, 4, true, &err), &err, "pairs of texts");
    close_run(&run);
    options = options_for("qwen3_last", dir);
    options.task = "generate";
    struct engine *engine;
    assert_int_equal(engine_open(&options, sink, &run, &engine, &err), QUIRE_OK);
    assert_int_equal(engine_info(engine)->vector_size, 0);
    refused(submit(engine, 1, ids, 9, 0, true, &err), &err, "returns no vectors");
    engine_close(engine);
}

static void try_open(const struct engine_options *options, const char *says)
{
    struct quire_error err;
    struct engine *engine;
    refused(engine_open(options, sink, NULL, &engine, &err), &err, says);
}

static void options_that_do_not_fit(void **state)
{
    (void)state;
    char dir[512];
    struct run run;
    struct engine_options options = options_for("bert_cls", dir);
    options.task = "generate";
    try_open(&options, "--task generate");
    options.task = "sing";
    try_open(&options, "--task: must be");
    options.task = "auto";
    options.max_model_len = 100;
    options.max_num_batched_tokens = 64;
    try_open(&options, "reads a text in one step");
    options.max_model_len =
        0; /* no text is cut because of a step's length, nor of the KV cache's, unless that is asked for */
    try_open(&options, "reads a text in one step");
    options.max_num_batched_tokens = 0;
    options.num_kv_blocks = 3;
    try_open(&options, "--max-model-len");
    options.num_kv_blocks = 100;
    options.max_model_len = options.max_num_batched_tokens = 64;
    open_run("bert_cls", &options, &run);
    assert_int_equal(engine_info(run.engine)->max_model_len, 64);
    close_run(&run);
    options.num_kv_blocks = 0; /* as many as a step can hold: 64 tokens, and of each text a block that is not full */
    options.block_size = 16;
    options.max_num_seqs = 8;
    open_run("bert_cls", &options, &run);
    const struct engine_plan *plan = engine_info(run.engine)->plan;
    assert_int_equal(plan->groups[0].n_blocks, (engine_plan_overlap_depth(plan) + 1) * (64 / 16 + 8));
    close_run(&run);
    options.kv_cache_dtype = "int8";
    try_open(&options, "--kv-cache-dtype int8: a model that reads whole texts has no KV cache");
    options.kv_cache_dtype = "auto";
    options.swap_space = 1 << 20;
    try_open(&options, "--swap-space");
}

static const char config[] = "{\"architectures\": [\"BertModel\"], \"vocab_size\": 9, \"hidden_size\": 32,"
                             " \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"intermediate_size\": 8}";

/* modules.json and the files that it names are untrusted. */
static void pooling_files(void **state)
{
    (void)state;
#define T "{\"type\": \"a.Transformer\"}"
#define P "{\"type\": \"a.Pooling\", \"path\": \"1_Pooling\"}"
#define D "{\"type\": \"x.Dense\", \"path\": \"2_Dense\"}"
    static const struct {
        const char *modules, *pooling, *limits, *says; /* says NULL: taken */
    } cases[] = {
        {NULL, NULL, NULL, NULL},
        {"[" T "," P "]", "{\"pooling_mode_cls_token\": true}", "{\"max_seq_length\": 9}", NULL},
        {"[" T "," P ",{\"type\": \"Normalize\"}]", "{\"pooling_mode_lasttoken\": true}", NULL, NULL},
        {"{}", NULL, NULL, "must be a list"},
        {"[]", NULL, NULL, "the Pooling module is missing"},
        {"[1]", NULL, NULL, "type: must be a string"},
        {"[" T "," T "]", NULL, NULL, "'a.Transformer' is not supported"},
        {"[" T ",{\"type\": \"Pooling\", \"path\": 3}]", NULL, NULL, "path: must be a string"},
        {"[" T "," P ",{\"type\": \"x.Dense\"}]", NULL, NULL, "module 2: path: must be a string"},
        {"[" T "," P "," D "," D "]", NULL, NULL, "module 3: 'x.Dense' is not supported"},
        {"[" T "," P ",{\"type\": \"Normalize\"}," D "]", NULL, NULL, "module 3: 'x.Dense' is not supported"},
        {"[" T "," P ",{\"type\": \"x.LayerNorm\"}]", NULL, NULL, "'x.LayerNorm' is not supported"},
        {"[" T "," P "]", "[]", NULL, "must be a JSON object"},
        {"[" T "," P "]", "{}", NULL, "0 pooling modes"},
        {"[" T "," P "]", "{\"pooling_mode_max_tokens\": true}", NULL, "pooling_mode_max_tokens: is not supported"},
        {"[" T "," P "]", "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true}", NULL, "2 pooling"},
        {"[" T "," P "]", "{\"pooling_mode_cls_token\": true, \"word_embedding_dimension\": 3}", NULL, "is 3, but the"},
        {NULL, NULL, "{\"max_seq_length\": 0}", "max_seq_length"},
        {NULL, NULL, "7", "must be"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config *config_read;
        struct sampling_defaults sampling;
        struct quire_error err;
        assert_int_equal(model_describe_json(config, strlen(config), NULL, 0, &config_read, &sampling, &err), QUIRE_OK);
        int status = model_describe_vector_json(cases[i].modules, cases[i].pooling, NULL, cases[i].limits, config_read,
                                                &err);
        if (cases[i].says)
            refused(status, &err, cases[i].says);
        else
            assert_int_equal(status, QUIRE_OK);
        if (i == 1)
            assert_true(config_read->outputs.pooling == POOLING_CLS && !config_read->outputs.normalize &&
                        config_read->max_position == 9);
        if (i == 2)
            assert_true(config_read->outputs.pooling == POOLING_LAST && config_read->outputs.normalize &&
                        config_read->max_position == 512);
        model_config_free(config_read);
    }
}

static void dense_files(void **state)
{
    (void)state;
#define SIZES "{\"in_features\": 32, \"out_features\": 9"
    static const struct {
        const char *dense, *says; /* says NULL: taken */
    } cases[] = {
        {SIZES ", \"bias\": false, \"activation_function\": \"torch.nn.modules.linear.Identity\"}", NULL},
        {"[]", "must be a JSON object"},
        {"{}", "in_features: is 0, but the model has 32"},
        {"{\"in_features\": 31, \"out_features\": 9}", "in_features: is 31, but the model has 32"},
        {"{\"in_features\": 32}", "out_features: is missing"},
        {"{\"in_features\": 32, \"out_features\": 0}", "out_features: must be"},
        {"{\"in_features\": 32, \"out_features\": 8193}", "out_features: must be"},
        {SIZES ", \"bias\": 1}", "bias: must be"},
        {SIZES ", \"activation_function\": \"torch.nn.ReLU\"}", "activation_function: 'torch.nn.ReLU' is not"},
        {SIZES ", \"module_output_name\": \"x\"}", "module_output_name: 'x' is not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config *config_read;
        struct sampling_defaults sampling;
        struct quire_error err;
        assert_int_equal(model_describe_json(config, strlen(config), NULL, 0, &config_read, &sampling, &err), QUIRE_OK);
        int status = model_describe_vector_json("[" T "," P "," D ",{\"type\": \"Normalize\"}]",
                                                "{\"pooling_mode_mean_tokens\": true}", cases[i].dense, NULL,
                                                config_read, &err);
        if (cases[i].says) {
            refused(status, &err, cases[i].says);
            model_config_free(config_read);
            continue;
        }
        assert_int_equal(status, QUIRE_OK);
        assert_true(config_read->outputs.vector_size == 9 && config_read->outputs.dense.size == 9 &&
                    config_read->outputs.normalize);
        assert_false(config_read->outputs.dense.bias || config_read->outputs.dense.tanh);
        model_config_free(config_read);
    }
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static void link_file(const char *dir, const char *name, const char *from)
{
    char target[600], path[600], *whole;
    snprintf(target, sizeof target, MODELS "%s", from);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    whole = realpath(target, NULL); /* the models' folder may be named from the working directory */
    assert_non_null(whole);
    unlink(path);
    assert_int_equal(symlink(whole, path), 0);
    free(whole);
}

/* Its folder has another model's weights, or no weights. */
static void dense_weights(void **state)
{
    (void)state;
    char dir[] = "/tmp/quire-dense-XXXXXX", folder[64], ignored[512];
    static const char *const files[] = {"config.json", "model.safetensors", "modules.json", "1_Pooling"};
    struct engine_options options = options_for("bert_dense", ignored);
    assert_non_null(mkdtemp(dir));
    snprintf(folder, sizeof folder, "%s/2_Dense", dir);
    assert_int_equal(mkdir(folder, 0700), 0);
    options.model_dir = dir;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char from[64];
        snprintf(from, sizeof from, "bert_dense/%s", files[i]);
        link_file(dir, files[i], from);
    }
    try_open(&options, "2_Dense/config.json");
    link_file(folder, "config.json", "bert_dense/2_Dense/config.json");
    try_open(&options, "2_Dense/model.safetensors: cannot be opened");
    link_file(folder, "model.safetensors", "qwen3_dense/2_Dense/model.safetensors");
    try_open(&options, "2_Dense/model.safetensors: dense.linear.weight: expected [40, 64]");
    link_file(folder, "model.safetensors", "bert_dense/model.safetensors");
    try_open(&options, "2_Dense/model.safetensors: tensor 'linear.weight' is missing");
    link_file(folder, "config.json", "qwen3_dense/2_Dense/config.json");
    link_file(folder, "model.safetensors", "qwen3_dense/2_Dense/model.safetensors");
    struct engine *engine;
    struct quire_error err;
    assert_int_equal(engine_open(&options, sink, NULL, &engine, &err), QUIRE_OK);
    assert_int_equal(engine_info(engine)->vector_size, 24);
    engine_close(engine);
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_bert_mean),
        cmocka_unit_test(model_bert_cls),
        cmocka_unit_test(model_bert_labels),
        cmocka_unit_test(model_roberta),
        cmocka_unit_test(model_xlmr_labels),
        cmocka_unit_test(model_qwen3_last),
        cmocka_unit_test(model_bert_dense),
        cmocka_unit_test(model_qwen3_dense),
        cmocka_unit_test(requests_of_the_other_kind),
        cmocka_unit_test(options_that_do_not_fit),
        cmocka_unit_test(pooling_files),
        cmocka_unit_test(dense_files),
        cmocka_unit_test(dense_weights),
    };
    return RUN_ISOLATED(tests, NULL, NULL);
}
