/* Every build and both backends on a CPU give the same bits: release and sanitizers, gcc and clang,
 * x86-64 and Arm, ref and cpu. So does a GPU in the lane form, emulated or not.
 *
 * tests/engine/bits.txt holds, for each golden model and form, the BLAKE2b-256 over every event of one greedy and
 * one sampled request. A difference is a changed answer for every user: it needs a reason in numerics.md and a line
 * in CHANGELOG.md. With --write the program prints the new content of the file. */
#include "tests/engine/fixtures/client.h"
#include "base/hash.h"
#include "tests/sample.h"
#include "engine/engine.h"
#include "engine/info.h"
#ifdef TEST_MICRO_BATCH_TOKENS
#include "kernels/backend.h"
#include "kernels/open.h"
#include "kernels/planner.h"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef TEST_NCCL
#include "parallel/host_id.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <cmocka.h>

#ifndef TEST_RANKS
#include "tests/isolated_tests.h"
#endif

#define MODELS QUIRE_SOURCE_DIR "/tests/goldens/models/"
#define N_PROMPT 150
#define N_LONG 250 /* long enough to contain a step that samples nothing */
#ifdef TEST_RANKS
/* The ranks that compute together. */
static const struct shape {
    uint32_t n_places, n_stages;
    const char *name;
    bool is_apart; /* rank 1's GPU cannot reach the others', and the NCCL stub transfers the data */
    uint32_t n_on_host; /* ranks that others started over TCP, so many on a host; 0: rank 0 starts them */
    bool deals_experts; /* ranks hold whole experts: of mixtures of experts alone */
} shapes[] =
    {
        {2, 1, "2 ranks", false, 0, false},
        {4, 1, "4 ranks", false, 0, false},
        {1, 2, "2 stages", false, 0, false},
        {2, 1, "2 ranks of whole experts", false, 0, true},
#ifndef TEST_DEVICE
        {1, 3, "3 stages", false, 0, false},
        {2, 2, "2 stages of 2 ranks of whole experts", false, 0, true},
#endif
        {2, 2, "2 stages of 2 ranks", false, 0, false},
#ifdef TEST_NCCL
        {2, 1, "2 ranks that others started", false, 2, false},
        {1, 2, "2 stages on hosts of their own", false, 1, false},
        {2, 2, "2 stages of 2 ranks, a stage on a host", false, 2, false},
        {2, 1, "2 ranks by the NCCL stub", true, 0, false},
        {2, 1, "2 ranks on hosts of their own, by the NCCL stub", true, 1, false},
        {2, 2, "2 stages of 2 ranks on hosts of their own, by the NCCL stub", true, 1, false},
#endif
},
  *shape;
#endif
/* The lines of bits.txt to check: some of them if steps are slow. */
#if defined TEST_EMULATED && defined TEST_RANKS
#define ONE_IN (shape->n_stages > 1 ? 24 : 12) /* stages have no arithmetic of their own */
#elif defined TEST_EMULATED
#define ONE_IN 4
#elif defined TEST_RANKS
#define ONE_IN (SAMPLE_IS_SANITIZED ? 9 : 2)
#else
#define ONE_IN (SAMPLE_IS_SANITIZED ? 6 : 1)
#endif

struct bits_case {
    const char *model, *form; /* behind a plus: the KV cache's dtype */
};

/* The file of a family of backends: its lines are the cases, in this order. */
struct bits_file {
    const char *name;
    const char *const *devices;
    uint32_t n_devices;
    size_t n_cases;
    struct bits_case cases[24];
};

#ifdef TEST_DEVICE /* in the lane form a GPU gives the bits of a CPU */
static const char *const devices[] = {TEST_DEVICE};
#else
static const char *const devices[] = {"ref", "cpu"};
#endif
static const struct bits_file everywhere = {
    .name = QUIRE_SOURCE_DIR "/tests/engine/bits.txt",
    .devices = devices,
    .n_devices = sizeof devices / sizeof devices[0],
    .n_cases = 21,
    .cases = {{"llama2", "lane"},          {"llama3", "lane"},         {"llama_bias", "lane"},
              {"mistral", "lane"},         {"qwen2", "lane"},          {"qwen2_yarn", "lane"},
              {"qwen2_window", "lane"},    {"qwen3", "lane"},          {"llama3", "tile"},
              {"qwen3_f16", "lane"},       {"qwen2_window", "tile"},   {"qwen3", "tile"},
              {"qwen3_f16", "tile"},       {"qwen3", "tile-bf16"},     {"qwen2_window", "lane+int8"},
              {"llama3", "lane+fp8_e4m3"}, {"qwen3", "lane+fp8_e5m2"}, {"qwen3_moe", "lane"},
              {"qwen2_moe", "lane"},       {"qwen3_moe", "tile"},      {"mixtral", "tile"}},
};
#ifdef TEST_DEVICE /* the mma form, as the emulator adds. Hardware does too where gpu_probe finds that mma is the model: `mma` */
static const struct bits_file emulated = {
    .name = QUIRE_SOURCE_DIR "/tests/engine/bits_emulated.txt",
    .devices = devices,
    .n_devices = 1,
    .n_cases = 9,
    .cases = {{"llama2", "mma"},
              {"llama3", "mma"},
              {"mistral", "mma"},
              {"qwen2_yarn", "mma"},
              {"qwen2_window", "mma"},
              {"qwen3", "mma"},
              {"qwen3_f16", "mma"},
              {"qwen3_moe", "mma"},
              {"mixtral", "mma"}},
};
#endif

#ifdef TEST_MICRO_BATCH_TOKENS
int __real_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err);
int __wrap_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err);

/* A device whose micro-batches may be this small, so that short steps pass through the stages in several. Every rank opens
 * its backend here. */
int __wrap_k_backend_open(const struct k_backend_options *options, struct k_backend **out, const char **why,
                          struct quire_error *err)
{
    static struct k_planner planner;
    static struct k_backend_ops ops;
    const int status = __real_k_backend_open(options, out, why, err);
    if (status != QUIRE_OK)
        return status;
    ops = *(*out)->ops;
    planner = *ops.planner;
    planner.micro_batch_tokens = TEST_MICRO_BATCH_TOKENS;
    ops.planner = &planner;
    (*out)->ops = &ops;
    return status;
}
#endif

/* A chain over the answer's records, which hold each number bit for bit. */
static struct key256 add_answer(struct key256 chain, const struct answer *a)
{
    chain = quire_keyed_hash(&chain, a->prompt_record.bytes, a->prompt_record.n);
    return quire_keyed_hash(&chain, a->choices[0].record.bytes, a->choices[0].record.n);
}

#ifdef TEST_RANKS
/* A step that draws nothing, so that the next begins while other stages are at it, beside the same prompt step by step. */
static void check_overlap(struct client *c, uint32_t vocab_size)
{
    uint32_t prompt[N_LONG];
    client_random_prompt(prompt, N_LONG, vocab_size, 8);
    struct request_spec r = client_request(prompt, N_LONG, 4);
    r.n_logprobs = 20;
    r.ignore_eos = true;
    const struct record alone = client_ask(c, &r)->choices[0].record;
    r.n_prompt_logprobs = 1;
    const struct record waited = client_ask(c, &r)->choices[0].record;
    assert_int_equal(alone.n, waited.n);
    assert_memory_equal(alone.bytes, waited.bytes, alone.n);
}
#endif

/* Texts of *o lie in dir and form. */
static void make_options(const char *device, const struct bits_case *what, char dir[512], char form[16],
                         struct engine_options *o)
{
    const char *cache = strchr(what->form, '+');
    snprintf(dir, 512, MODELS "%s", what->model);
    snprintf(form, 16, "%.*s", (int)strcspn(what->form, "+"), what->form);
    engine_options_default(o);
    o->model_dir = dir;
    o->num_kv_blocks = 100;
    o->max_num_batched_tokens = 64;
    o->device = device;
    o->gemm_form = form;
    if (cache)
        o->kv_cache_dtype = cache + 1;
    if (strcmp(form, "tile-bf16") == 0) {
        o->gemm_form = "tile";
        o->activation_dtype = "bfloat16";
    }
#ifdef TEST_RANKS
    o->tensor_parallel_size = shape->n_places;
    o->pipeline_parallel_size = shape->n_stages;
    o->enable_expert_parallel = shape->deals_experts;
    if (shape->n_stages > 1) { /* the prompt in micro-batches, with the logprobs of all of it */
        o->max_num_batched_tokens = 192;
        o->max_num_seqs = N_PROMPT;
    }
    o->n_threads = 1;
#endif
}

#ifdef TEST_NCCL
/* ---- ranks that others start: this program again, each on the host that QUIRE_SIMT_HOST says, with as many GPUs as ranks ---- */

extern char **environ;

void __wrap_quire_host_id(char out[QUIRE_HOST_ID_BYTES]);
void __wrap_quire_host_id(char out[QUIRE_HOST_ID_BYTES])
{
    const char *name = getenv("QUIRE_SIMT_HOST");
    snprintf(out, QUIRE_HOST_ID_BYTES, "%s", name ? name : "");
}

static void set_number(const char *name, uint32_t value)
{
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 1);
}

static void be_rank(uint32_t rank)
{
    set_number("RANK", rank);
    set_number("QUIRE_SIMT_HOST", rank / shape->n_on_host);
}

static int port_holder;

/* A port that no other program gets until await_others(). Rank 0 may listen there, because it reuses addresses too. */
static uint16_t hold_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int yes = 1;
    port_holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(port_holder, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    assert_int_equal(bind(port_holder, (struct sockaddr *)&at, n), 0);
    assert_int_equal(getsockname(port_holder, (struct sockaddr *)&at, &n), 0);
    return ntohs(at.sin_port);
}

/* This process becomes rank 0 of them. */
static void start_others(const char *device, const struct bits_case *what, pid_t processes[TEST_RANKS])
{
    const uint32_t n = shape->n_places * shape->n_stages;
    char number[16];
    snprintf(number, sizeof number, "%d", (int)(shape - shapes));
    const char *const argv[] = {"rank", "--rank", number, device, what->model, what->form, NULL};
    set_number("WORLD_SIZE", n);
    set_number("QUIRE_SIMT_DEVICES", shape->n_on_host);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", hold_port());
    for (uint32_t r = n; r-- > 0;) {
        be_rank(r);
        if (r > 0)
            assert_int_equal(
                posix_spawn(&processes[r], "/proc/self/exe", NULL, NULL, (char *const *)(uintptr_t)argv, environ), 0);
    }
}

/* They end with rank 0, or wait for one that could not begin. */
static void await_others(const pid_t processes[TEST_RANKS], bool has_begun)
{
    int how;
    close(port_holder);
    for (uint32_t r = 1; r < shape->n_places * shape->n_stages; r++) {
        if (!has_begun)
            kill(processes[r], SIGKILL);
        assert_int_equal(waitpid(processes[r], &how, 0), processes[r]);
        assert_true(how == 0 || !has_begun);
    }
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("QUIRE_SIMT_HOST");
    set_number("QUIRE_SIMT_DEVICES", TEST_RANKS);
}

/* A rank of a group without peer access, started by rank 0 with an environment variable, loads the stub by name from
 * now on. */
static void be_apart(void)
{
    const char *place = getenv("QUIRE_GROUP"); /* "DESCRIPTOR RANK TIMEOUT_MS" */
    if (place && atoi(strchr(place, ' ')) == 1)
        setenv("QUIRE_SIMT_FAIL", "cudaIpcOpenMemHandle:1:801", 1);
    if (!dlopen(TEST_NCCL, RTLD_NOW)) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
}

/* argv: as start_others() has it. */
static int be_started(char **argv)
{
    const struct bits_case what = {argv[4], argv[5]};
    struct engine_options options;
    struct quire_error err;
    char dir[512], form[16];
    shape = &shapes[atoi(argv[2])];
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* where rank 0 fails its test */
    if (shape->is_apart)
        be_apart();
    make_options(argv[3], &what, dir, form, &options);
    if (engine_work(&options, NULL, NULL, &err) == QUIRE_OK)
        return 0;
    fprintf(stderr, "rank: %s\n", err.text);
    return 1;
}
#endif

/* false: its heads are not for so many ranks. */
static bool digest(const char *device, const struct bits_case *what, char hex[65])
{
    char dir[512], form[16];
    uint32_t prompt[N_PROMPT];
    struct engine_options options;
    struct key256 chain = {{0}};
    make_options(device, what, dir, form, &options);
#ifdef TEST_NCCL
    pid_t others[TEST_RANKS];
    if (shape->n_on_host > 0)
        start_others(device, what, others);
#endif
#ifdef TEST_RANKS
    struct quire_error err;
    struct client *c = client_try_open(dir, &options, &err);
    if (!c) { /* 6 heads are no 4 ranks', nor 2 layers 3 stages' */
#ifdef TEST_NCCL
        if (shape->n_on_host > 0)
            await_others(others, false);
#endif
        if ((shape->n_places > 2 && strstr(err.text, "can be divided among these numbers of ranks: 1, 2")) ||
            (shape->n_stages > 1 && strstr(err.text, ", but each stage needs at least one")))
            return false;
        fail_msg("%s", err.text);
    }
#else
    struct client *c = client_open(dir, &options);
#endif
#ifdef TEST_RANKS
    assert_true(!shape->is_apart || strstr(engine_info(client_engine(c))->placement, "its ranks by NCCL"));
#endif
    client_random_prompt(prompt, N_PROMPT, engine_info(client_engine(c))->desc->config->vocab_size, 7);

    struct request_spec r = client_request(prompt, N_PROMPT, 32);
    r.n_logprobs = r.n_prompt_logprobs = 20;
    r.ignore_eos = true;
    chain = add_answer(chain, client_ask(c, &r));
    r.temperature = 0.9f;
    r.top_p = 0.95f;
    r.has_seed = true;
    r.seed = 42;
    chain = add_answer(chain, client_ask(c, &r));
#ifdef TEST_RANKS
    if (shape->n_stages > 1 && shape->n_places == 1)
        check_overlap(c, engine_info(client_engine(c))->desc->config->vocab_size);
#endif
    client_close(c);
#ifdef TEST_NCCL
    if (shape->n_on_host > 0)
        await_others(others, true);
#endif
    quire_key256_hex(&chain, hex);
    return true;
}

/* A device has no tile form. */
static bool is_had(const struct bits_case *what)
{
#ifdef TEST_RANKS
    const bool has_experts = strstr(what->model, "moe") || strcmp(what->model, "mixtral") == 0;
    if (shape->deals_experts && !has_experts)
        return false;
#else
    (void)what;
#endif
#ifdef TEST_DEVICE
    return strncmp(what->form, "tile", 4) != 0;
#else
    return true;
#endif
}

static void check_file(const struct bits_file *f)
{
    char hex[65], model[64], form[16], want[65];
    FILE *file = fopen(f->name, "r");
    assert_non_null(file);
    struct sample sample = sample_of(ONE_IN);
    uint32_t n_compared = 0, n_other = 0;
#ifdef TEST_NCCL
    if ((shape->is_apart || shape->n_on_host > 0) && sample.one_in > 1)
        sample.one_in = (uint32_t)f->n_cases; /* one line */
#endif
    for (size_t i = 0; i < f->n_cases; i++) {
        assert_int_equal(fscanf(file, "%63s %15s %64s", model, form, want), 3);
        assert_string_equal(model, f->cases[i].model);
        assert_string_equal(form, f->cases[i].form);
        if (!is_had(&f->cases[i]) || !sample_takes(&sample))
            continue;
        for (uint32_t d = 0; d < f->n_devices; d++) {
            if (!digest(f->devices[d], &f->cases[i], hex))
                continue;
            n_compared++;
            if (strcmp(hex, want) == 0)
                continue;
            printf("%s, %s form on %s: other bits than those of %s\n", model, form, f->devices[d], f->name);
            n_other++;
        }
    }
    fclose(file);
    sample_report(&sample, "lines");
    printf("%s: %u of %u have other bits\n", f->name, n_other, n_compared);
    assert_int_equal(n_other, 0);
    assert_true(n_compared > 0 ||
                sample.one_in > 1); /* a sample's models may all have other heads than the ranks take */
}

static void every_build_gives_the_committed_bits(void **state)
{
    (void)state;
    check_file(&everywhere);
#ifdef TEST_EMULATED
    check_file(&emulated);
#endif
}

#if defined TEST_DEVICE && !defined TEST_RANKS
static void a_gpu_gives_the_emulators_bits(void **state)
{
    (void)state;
    check_file(&emulated);
}
#endif

#if defined TEST_RANKS && defined TEST_DEVICE
/* Of 130 inner columns the second rank has more than the first, and so less room beside them: in all that the budget leaves there
 * are blocks for both. */
static void all_ranks_have_space(void **state)
{
    struct engine_options options;
    struct quire_error err;
    (void)state;
    engine_options_default(&options);
    options.device = TEST_DEVICE;
    options.gpu_memory_utilization = 0.5; /* which the ranks receive */
    options.max_num_seqs = 8;
    options.max_num_batched_tokens = 64;
    options.enforce_eager = true;
    options.tensor_parallel_size = 2;
    struct client *c = client_try_open(MODELS "qwen2_window", &options, &err);
    if (!c)
        fail_msg("%s", err.text);
    client_close(c);
}
#endif

static void print_file(const struct bits_file *f)
{
    for (size_t i = 0; i < f->n_cases; i++) {
        char hex[65];
        digest(f->devices[0], &f->cases[i], hex);
        printf("%s %s %s\n", f->cases[i].model, f->cases[i].form, hex);
    }
}

int main(int argc, char **argv)
{
#ifdef TEST_NCCL
    if (engine_is_rank() && getenv("TEST_APART"))
        be_apart();
#endif
#ifdef TEST_RANKS
    if (engine_is_rank())
        return rank_main();
#endif
    if (quire_hash_init() != QUIRE_OK)
        return 1;
#ifdef TEST_NCCL
    if (argc == 6 && strcmp(argv[1], "--rank") == 0)
        return be_started(argv);
#endif
    if (argc > 1 && strcmp(argv[1], "--write") == 0) {
#ifdef TEST_EMULATED
        print_file(&emulated);
#else
        print_file(&everywhere);
#endif
        return 0;
    }
#ifdef TEST_RANKS
    int n_failed = 0;
    for (shape = shapes; shape < shapes + sizeof shapes / sizeof shapes[0]; shape++) {
        const struct CMUnitTest tests[] = {cmocka_unit_test(every_build_gives_the_committed_bits)};
#ifdef TEST_NCCL
        if (shape->is_apart) {
            setenv("TEST_APART", "1", 1);
            be_apart();
        }
#endif
        n_failed += cmocka_run_group_tests_name(shape->name, tests, NULL, NULL);
    }
#ifdef TEST_DEVICE
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_ranks_have_space)};
    n_failed += cmocka_run_group_tests_name("room", tests, NULL, NULL);
#endif
    return n_failed;
#else
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_build_gives_the_committed_bits)};
#ifdef TEST_DEVICE
    const struct CMUnitTest mma[] = {cmocka_unit_test(a_gpu_gives_the_emulators_bits)};
    if (argc > 1 && strcmp(argv[1], "mma") == 0)
        return RUN_ISOLATED(mma, NULL, NULL);
#endif
    return RUN_ISOLATED(tests, NULL, NULL);
#endif
}
