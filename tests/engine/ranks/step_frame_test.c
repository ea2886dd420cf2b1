/* Frames for ranks: a step, moves and options are read back as written, and every value out of bounds is rejected by
 * name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/ranks/setup.h"
#include "engine/ranks/step_frame.h"

#include <stdlib.h>
#include <string.h>

/* Two KV groups, the second with a window of 8; blocks of 8. Two rows: tokens 0-2 at position 20, token 3 at position 5. */
static const struct step_limits limits = {.n_groups = 2,
                                          .block_tokens = 8,
                                          .n_blocks = {10, 6},
                                          .n_host_blocks = {4, 0},
                                          .windows = {0, 8},
                                          .n_tokens = 8,
                                          .n_rows = 4,
                                          .n_outputs = 4,
                                          .n_entries = 12,
                                          .vocab_size = 100,
                                          .n_positions = 40};

struct arrays {
    uint32_t ids[8], positions[8], slots[2][8], tables[2][12], outputs[4];
    struct k_attn_row rows[4];
};

static struct forward_batch batch_of(struct arrays *a, uint32_t n_tokens, uint32_t n_rows, uint32_t n_outputs,
                                     uint32_t n_entries)
{
    return (struct forward_batch){.n_tokens = n_tokens,
                                  .n_rows = n_rows,
                                  .n_outputs = n_outputs,
                                  .n_entries = n_entries,
                                  .ids = a->ids,
                                  .positions = a->positions,
                                  .slots = {a->slots[0], a->slots[1]},
                                  .tables = {a->tables[0], a->tables[1]},
                                  .rows = a->rows,
                                  .output_tokens = a->outputs};
}

static const struct arrays good = {
    .ids = {99, 0, 5, 7},
    .positions = {20, 21, 22, 5},
    .slots = {{76, 77, 78, 5}, {44, 45, 46, 40}},
    .tables = {{1, 2, 9, 0}, {KV_NO_BLOCK, 3, 5, 5}},
    .outputs = {2, 3},
    .rows = {{.token = 0, .n_tokens = 3, .position = 20, .table = 0},
             {.token = 3, .n_tokens = 1, .position = 5, .table = 3}},
};

/* Reads the step frame of `from`, sizes and arrays. */
static int read_again(struct arrays *from, struct arrays *to, struct quire_error *err)
{
    struct step_sizes s;
    const struct forward_batch batch = batch_of(from, 4, 2, 2, 4);
    unsigned char *frame = malloc(step_frame_max_bytes(&limits));
    assert_non_null(frame);
    const size_t n = step_frame_write(&limits, &batch, frame);
    int status = step_frame_sizes(&limits, frame, n, &s, err);
    if (status == QUIRE_OK) {
        struct forward_batch out = batch_of(to, s.n_tokens, s.n_rows, s.n_outputs, s.n_entries);
        status = step_frame_read(&limits, frame, &out, err);
    }
    free(frame);
    return status;
}

static void a_step_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct arrays from = good, to = {.ids = {0}};
    assert_int_equal(read_again(&from, &to, NULL), QUIRE_OK);
    assert_memory_equal(&from, &to, sizeof to);
}

/* The bytes on the wire, by hand from step_frame.h: ranks of one version agree whatever the order of the table. */
static void a_frame_has_the_documented_bytes(void **state)
{
    (void)state;
    static const uint32_t expected[] = {
        4,           2,  2,  4, /* sizes */
        99,          0,  5,  7, /* ids */
        20,          21, 22, 5, /* positions */
        76,          77, 78, 5, /* slots of each group */
        44,          45, 46, 40, /* */
        0,           3,  20, 0, /* rows: token, n_tokens, position, table */
        3,           1,  5,  3, /* */
        1,           2,  9,  0, /* tables of each group */
        KV_NO_BLOCK, 3,  5,  5, /* */
        2,           3, /* output_tokens */
    };
    struct arrays from = good;
    const struct forward_batch batch = batch_of(&from, 4, 2, 2, 4);
    unsigned char frame[4096];
    assert_int_equal(step_frame_write(&limits, &batch, frame), sizeof expected);
    assert_memory_equal(frame, expected, sizeof expected);
    assert_int_equal(step_frame_max_bytes(&limits), 4 * (4 + 4 * 8 + 4 * 4 + 2 * 12 + 4));
}

static void what_is_out_of_bounds_is_named(void **state)
{
    (void)state;
    struct arrays bad, to;
    struct quire_error err;
#define REFUSES(change, name) \
    do { \
        bad = good; \
        change; \
        err.text[0] = 0; \
        assert_int_equal(read_again(&bad, &to, &err), QUIRE_INVALID); \
        assert_non_null(strstr(err.text, name)); \
    } while (0)
    REFUSES(bad.ids[1] = 100, "token 1 is 100");
    REFUSES(bad.positions[3] = 40, "position 3 is 40");
    REFUSES(bad.slots[0][2] = 80, "slot 2 is 80");
    REFUSES(bad.slots[1][2] = 48, "slot 2 is 48");
    REFUSES(bad.slots[1][2] = UINT32_MAX, "slot 2");
    REFUSES(bad.tables[0][1] = 10, "block 1 of row 0 in KV group 0 is 10");
    REFUSES(bad.tables[1][2] = 6, "block 2 of row 0 in KV group 1 is 6");
    REFUSES(bad.tables[0][0] = KV_NO_BLOCK, "block 0 of row 0 in KV group 0"); /* which has no window */
    REFUSES(bad.tables[1][1] = KV_NO_BLOCK, "block 1 of row 0 in KV group 1"); /* which the window reaches */
    REFUSES(bad.tables[1][3] = KV_NO_BLOCK, "block 0 of row 1 in KV group 1");
    REFUSES(bad.rows[1].token = 2, "row 1");
    REFUSES(bad.rows[1].table = 2, "row 1");
    REFUSES(bad.rows[0].n_tokens = 0, "row 0");
    REFUSES(bad.rows[1].n_tokens = 2, "row 1");
    REFUSES(bad.rows[1].n_tokens = UINT32_MAX, "row 1");
    REFUSES(bad.rows[0].position = 38, "row 0");
    REFUSES(bad.rows[0].position = UINT32_MAX, "row 0");
    REFUSES(bad.rows[1].position = 8, "row 1"); /* which then has two blocks, and one entry is there */
    REFUSES(bad.rows[0].position = 0, "row 1"); /* the first then has one block, and three entries are there */
    REFUSES(bad.outputs[1] = 2, "output 1");
    REFUSES(bad.outputs[1] = 4, "output 1 is 4");
}

static void sizes_are_checked(void **state)
{
    (void)state;
    struct arrays from = good;
    struct quire_error err;
    struct step_sizes s;
    const struct forward_batch batch = batch_of(&from, 4, 2, 2, 4);
    unsigned char frame[4096];
    assert_true(step_frame_max_bytes(&limits) <= sizeof frame);
    const size_t n = step_frame_write(&limits, &batch, frame);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(step_frame_sizes(&limits, frame, cut, &s, &err), QUIRE_INVALID);
    assert_int_equal(step_frame_sizes(&limits, frame, n + 1, &s, &err), QUIRE_INVALID);
    static const uint32_t too_many[] = {9, 5, 5, 13};
    for (uint32_t i = 0; i < 4; i++) {
        unsigned char other[sizeof frame];
        memcpy(other, frame, n);
        memcpy(other + 4 * i, &too_many[i], 4);
        assert_int_equal(step_frame_sizes(&limits, other, n, &s, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.text, "was opened for 8, 4, 4 and 12"));
    }
}

static void moves_are_read_as_they_were_written(void **state)
{
    (void)state;
    const struct kv_move moves[] = {{.group = 0, .device_block = 9, .host_block = 3, .to_host = true},
                                    {.group = 0, .device_block = 0, .host_block = 0, .to_host = false}};
    struct kv_move got[3];
    unsigned char frame[64];
    struct quire_error err;
    uint32_t n;
    const size_t n_bytes = moves_frame_write(moves, 2, frame);
    assert_int_equal(moves_frame_read(&limits, frame, n_bytes, got, &n, &err), QUIRE_OK);
    assert_int_equal(n, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(got[i].group == moves[i].group && got[i].to_host == moves[i].to_host &&
                    got[i].device_block == moves[i].device_block && got[i].host_block == moves[i].host_block);
    assert_int_equal(moves_frame_read(&limits, frame, n_bytes - 1, got, &n, &err), QUIRE_INVALID);
    static const uint32_t wrong[4][4] = {{2, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 10, 0}, {1, 1, 0, 0}};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(moves_frame_read(&limits, wrong[i], sizeof wrong[i], got, &n, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "move 0"));
}

static void options_are_read_as_they_were_written(void **state)
{
    (void)state;
    struct engine_options from, to;
    struct quire_error err;
    char texts[SETUP_MAX_BYTES];
    unsigned char frame[SETUP_MAX_BYTES];
    size_t n;
    engine_options_default(&from);
    engine_options_default(&to);
    from.model_dir = "models/a";
    from.kv_cache_dtype = "int8";
    from.repack_cache = NULL;
    from.cpu_bind = "";
    from.max_model_len = UINT32_MAX;
    from.num_kv_blocks = 77;
    from.swap_space = (uint64_t)1 << 40;
    from.enforce_eager = true;
    from.gpu_memory_utilization = 0.3;
    assert_int_equal(setup_write(&from, frame, &n, &err), QUIRE_OK);
    assert_int_equal(setup_read(frame, n, texts, &to, &err), QUIRE_OK);
    assert_string_equal(to.model_dir, "models/a");
    assert_string_equal(to.kv_cache_dtype, "int8");
    assert_string_equal(to.cpu_bind, "");
    assert_null(to.repack_cache);
    assert_true(to.max_model_len == UINT32_MAX && to.num_kv_blocks == 77 && to.swap_space == (uint64_t)1 << 40 &&
                to.enforce_eager && to.gpu_memory_utilization == 0.3);
    for (size_t cut = 0; cut < n; cut++) /* a smaller text is read from a smaller one, or it is refused */
        assert_int_equal(setup_read(frame, cut, texts, &to, &err), QUIRE_INVALID);

    char *long_name = malloc(SETUP_MAX_BYTES + 1);
    assert_non_null(long_name);
    memset(long_name, 'a', SETUP_MAX_BYTES);
    long_name[SETUP_MAX_BYTES] = 0;
    from.model_dir = long_name;
    assert_int_equal(setup_write(&from, frame, &n, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "model_dir"));
    long_name[SETUP_MAX_BYTES - 400] = 0; /* and a text that was written is read back */
    if (setup_write(&from, frame, &n, &err) == QUIRE_OK) {
        assert_true(n <= SETUP_MAX_BYTES);
        assert_int_equal(setup_read(frame, n, texts, &to, &err), QUIRE_OK);
        assert_string_equal(to.model_dir, long_name);
    }
    free(long_name);
}

/* A rank keeps what concerns its own host, sent or not, and takes everything else from rank 0. */
static void a_rank_keeps_its_own_hosts_options(void **state)
{
    (void)state;
    struct engine_options options, own;
    engine_options_default(&options);
    engine_options_default(&own);
    options.model_dir = "/rank0/model";
    options.device = "cpu";
    options.max_num_seqs = 9;
    options.tensor_parallel_size = 2;
    own.model_dir = "/own/model";
    own.device = "ref";
    own.max_num_seqs = 5;
    own.repack_cache = "/own/cache";
    own.cpu_bind = "none";
    own.n_threads = 7;
    own.gpu_memory_utilization = 0.5;
    own.local_ranks = 1;
    own.message_bytes = 1 << 20;
    setup_keep_own(&options, &own);
    assert_string_equal(options.model_dir, "/own/model");
    assert_string_equal(options.repack_cache, "/own/cache");
    assert_string_equal(options.cpu_bind, "none");
    assert_true(options.n_threads == 7 && options.gpu_memory_utilization == 0.5 && options.local_ranks == 1 &&
                options.message_bytes == 1 << 20);
    assert_string_equal(options.device, "cpu");
    assert_true(options.max_num_seqs == 9 && options.tensor_parallel_size == 2);
}

static void options_that_differ_are_named(void **state)
{
    (void)state;
    struct engine_options first, own;
    struct quire_error err;
    engine_options_default(&first);
    engine_options_default(&own);
    own.model_dir = "elsewhere"; /* a host's own */
    own.repack_cache = "/tmp";
    own.cpu_bind = "none";
    own.n_threads = 7;
    struct step_options steps;
    step_options_default(&steps);
    own.steps = &steps;
    steps.scheduling_policy = "sjf"; /* rank 0's alone */
    assert_int_equal(setup_compare(&first, &own, 3, &err), QUIRE_OK);
#define DIFFERS(change, says) \
    do { \
        engine_options_default(&own); \
        change; \
        assert_int_equal(setup_compare(&first, &own, 3, &err), QUIRE_INVALID); \
        assert_string_equal(err.text, says); \
    } while (0)
    DIFFERS(own.max_num_seqs = 8, "--max-num-seqs: rank 0 was given 0, and rank 3 8");
    DIFFERS(own.tensor_parallel_size = 2, "--tensor-parallel-size: rank 0 was given 0, and rank 3 2");
    DIFFERS(own.kv_cache_dtype = "int8", "--kv-cache-dtype: rank 0 was given auto, and rank 3 int8");
    DIFFERS(own.quantization = "fp8", "--quantization: rank 0 was given nothing, and rank 3 fp8");
    DIFFERS(own.enforce_eager = true, "--enforce-eager: rank 0 was given 0, and rank 3 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_read_as_it_was_written),    cmocka_unit_test(a_frame_has_the_documented_bytes),
        cmocka_unit_test(what_is_out_of_bounds_is_named),      cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(moves_are_read_as_they_were_written), cmocka_unit_test(options_are_read_as_they_were_written),
        cmocka_unit_test(a_rank_keeps_its_own_hosts_options),  cmocka_unit_test(options_that_differ_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
