/* The scheduling options as people write them: units, lists, and the messages for wrong values. */
#include "app/flags/engine_flags.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int parse(struct engine_options *o, struct quire_error *err, int argc, char **argv)
{
    struct cli_option rows[ENGINE_FLAGS_MAX + 1];
    enum cli_help help;
    static struct step_options steps; /* of the newest */
    static struct engine_placement placement;
    engine_options_default(o);
    step_options_default(&steps);
    o->steps = &steps;
    placement = (struct engine_placement){0};
    o->placement = &placement;
    rows[engine_flags(o, rows)] = (struct cli_option){0};
    const struct cli_command command = {.name = "test", .usage = "test", .options = rows};
    return cli_parse(&command, argc, argv, &help, err);
}

/* The options after one of them was set. */
static struct engine_options good(char *option, char *value)
{
    struct engine_options o;
    struct quire_error err;
    char *argv[] = {option, value};
    if (parse(&o, &err, 2, argv) != QUIRE_OK)
        fail_msg("%s %s: %s", option, value, err.text);
    return o;
}

/* It is rejected, and the message begins with the option's name. */
static void bad(char *option, char *value)
{
    struct engine_options o;
    struct quire_error err;
    char *argv[] = {option, value};
    if (parse(&o, &err, 2, argv) == QUIRE_OK)
        fail_msg("%s %s was taken", option, value);
    if (strncmp(err.text, option, strlen(option)) != 0 || err.text[strlen(option)] != ':')
        fail_msg("%s %s: \"%s\" does not name it", option, value, err.text);
}

#define GIB ((uint64_t)1 << 30)

static void sizes(void **state)
{
    (void)state;
    assert_int_equal(good("--swap-space", "4").swap_space, 4 * GIB); /* vLLM's syntax */
    assert_int_equal(good("--swap-space", "0.5").swap_space, GIB / 2);
    assert_int_equal(good("--swap-space", "4GiB").swap_space, 4 * GIB);
    assert_int_equal(good("--swap-space", "512M").swap_space, GIB / 2);
    assert_int_equal(good("--swap-space", "0").swap_space, 0);
    bad("--swap-space", "");
    bad("--swap-space", "much");
    bad("--swap-space", "-1");
    bad("--swap-space", "4.4.4");
    bad("--swap-space", "99999999999999");
}

static void times(void **state)
{
    (void)state;
    assert_int_equal(good("--sched-ageing-ms", "2.5").steps->policy_options.ageing_us, 2500);
    assert_true(good("--step-target-ms", "12.5").steps->step_target_ms == 12.5);
    assert_true(good("--max-wait-ms", "7").steps->max_wait_ms == 7);
    const struct step_options *sizes = good("--class-batch-size", "0=4,2=64").steps;
    assert_true(sizes->class_batch_size[0] == 4 && sizes->class_batch_size[1] == 0 && sizes->class_batch_size[2] == 64);
    assert_int_equal(good("--class-max-wait-ms", "1=2.5").steps->class_wait_us[1], 2500);
    bad("--class-batch-size", "0=4.5");
    bad("--class-batch-size", "8=4");
    bad("--class-batch-size", "0=0");
    bad("--class-batch-size", "0=65537");
    bad("--class-max-wait-ms", "0=-1");
    bad("--sched-ageing-ms", "nan");
    bad("--sched-ageing-ms", "-1");
    bad("--sched-ageing-ms", "5s");
    bad("--sched-ageing-ms", "1e12");
    bad("--step-target-ms", "-1");
    bad("--max-wait-ms", "1e300");
}

static void speculation(void **state)
{
    (void)state;
    struct speculative_config c = good("--speculative-config",
                                       "{\"method\":\"ngram\",\"num_speculative_tokens\":5,\"prompt_lookup_max\":4}")
                                      .steps->speculative;
    assert_int_equal(c.method, DRAFT_NGRAM);
    assert_int_equal(c.num_speculative_tokens, 5);
    assert_int_equal(c.prompt_lookup_min, 2);
    assert_int_equal(c.prompt_lookup_max, 4);
    assert_true(c.adaptive);
    c = good("--speculative-config", "{\"method\":\"ngram\",\"prompt_lookup_max\":1}").steps->speculative;
    assert_int_equal(c.prompt_lookup_min, 1);
    c = good("--speculative-config", "{\"method\":\"ngram\",\"prompt_lookup_min\":9}").steps->speculative;
    assert_int_equal(c.prompt_lookup_max, 9);
    c = good("--speculative-config", "{\"model\":\"a/b\",\"adaptive\":false}").steps->speculative;
    assert_int_equal(c.method, DRAFT_MODEL);
    assert_string_equal(c.model, "a/b");
    assert_false(c.adaptive);
    assert_int_equal(good("--speculative-config", "{\"method\":\"suffix\"}").steps->speculative.method, DRAFT_SUFFIX);
    bad("--speculative-config", "");
    bad("--speculative-config", "ngram");
    bad("--speculative-config", "{}");
    bad("--speculative-config", "{\"method\":\"medusa\"}");
    bad("--speculative-config", "{\"method\":\"ngram\",\"model\":\"x\"}");
    bad("--speculative-config", "{\"method\":\"ngram\",\"num_speculative_tokens\":0}");
    c = good("--speculative-config", "{\"method\":\"suffix\",\"suffix_decoding_max_tree_depth\":8,"
                                     "\"suffix_decoding_max_cached_requests\":0,\"suffix_decoding_max_spec_factor\":2,"
                                     "\"suffix_decoding_min_token_prob\":0.5}")
            .steps->speculative;
    assert_int_equal(c.max_tree_depth, 8);
    assert_int_equal(c.max_cached_requests, 0);
    assert_true(c.max_spec_factor == 2 && c.min_token_prob == 0.5);
    bad("--speculative-config", "{\"method\":\"suffix\",\"suffix_decoding_max_tree_depth\":0}");
    bad("--speculative-config", "{\"method\":\"suffix\",\"suffix_decoding_min_token_prob\":1.5}");
    bad("--speculative-config", "{\"method\":\"ngram\",\"suffix_decoding_max_tree_depth\":8}");
    bad("--speculative-config", "{\"method\":\"ngram\",\"prompt_lookup_min\":3,\"prompt_lookup_max\":2}");
    bad("--speculative-config", "{\"method\":\"draft_model\"}");
    bad("--speculative-config", "{\"method\":\"ngram\",\"temperature\":1}");
}

static void lists(void **state)
{
    (void)state;
    struct engine_options o = good("--class-weights", "0=4,7=1000");
    assert_int_equal(o.steps->policy_options.class_weights[0], 4);
    assert_int_equal(o.steps->policy_options.class_weights[1], 0);
    assert_int_equal(o.steps->policy_options.class_weights[7], 1000);
    o = good("--class-ttft-ms", "0=200,1=2000.5");
    assert_int_equal(o.steps->policy_options.class_ttft_us[0], 200000);
    assert_int_equal(o.steps->policy_options.class_ttft_us[1], 2000500);
    o = good("--fair-prices", "3,7");
    assert_int_equal(o.steps->policy_options.prompt_price, 3);
    assert_int_equal(o.steps->policy_options.output_price, 7);
    assert_int_equal(good("--fair-prefill-share", "40").steps->policy_options.prefill_share, 40);
    assert_int_equal(good("--max-pinned-percent", "100").steps->max_pinned_percent, 100);
    assert_int_equal(good("--max-pinned-percent", "0").steps->max_pinned_percent, 0);
    assert_int_equal(good("--seed", "0").steps->max_pinned_percent, 50);
    static char *const wrong[] = {"", "4", "8=1", "0=", "=1", "0=1,", "0=1;1=2", "0=1 ", "0.5=1", "-1=1", "0=inf"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        bad("--class-weights", wrong[i]);
        bad("--class-ttft-ms", wrong[i]);
    }
    bad("--class-weights", "0=1.5");
    bad("--class-weights", "0=1001");
    static char *const prices[] = {"", "1", "1,", "0,1", "1,0", "1,2,3", "1.5,2", "1;2", "1,1001"};
    for (size_t i = 0; i < sizeof prices / sizeof prices[0]; i++)
        bad("--fair-prices", prices[i]);
    bad("--fair-prefill-share", "0");
    bad("--max-pinned-percent", "101");
}

static void files(void **state)
{
    (void)state;
    char path[] = "/tmp/quire-flags-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    fputs("{\"points\": [[1, 10], [100, 20]], \"row_us\": 3}", file);
    fclose(file);
    struct engine_options o = good("--cost-model", path);
    assert_int_equal(o.steps->cost.n_points, 2);
    assert_true(o.steps->cost.row_us == 3);
    remove(path);
    bad("--cost-model", path);
}

/* A minimum alone sets no maximum. */
static void a_least_value_alone(void **state)
{
    (void)state;
    uint64_t size = 0;
    struct quire_error err;
    enum cli_help help;
    const struct cli_option rows[] = {
        {.names = "size", .kind = CLI_BYTES, .target = &size, .min = 65536, .value = "SIZE", .help = "How large."},
        {0}};
    const struct cli_command command = {.name = "test", .usage = "test", .options = rows};
    assert_int_equal(cli_parse(&command, 2, (char *[]){"--size", "1T"}, &help, &err), QUIRE_OK);
    assert_true(size == (uint64_t)1 << 40);
    assert_int_equal(cli_parse(&command, 2, (char *[]){"--size", "64K"}, &help, &err), QUIRE_OK);
    assert_int_not_equal(cli_parse(&command, 2, (char *[]){"--size", "65535"}, &help, &err), QUIRE_OK);
    assert_non_null(strstr(err.text, "--size: must be at least 65536, got 65535"));
}

static void every_policy_is_in_the_help(void **state)
{
    (void)state;
    struct step_options steps;
    struct engine_placement placement;
    struct engine_options o = {.steps = &steps, .placement = &placement};
    struct cli_option rows[ENGINE_FLAGS_MAX];
    size_t n = engine_flags(&o, rows);
    const char *help = NULL;
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].names, "scheduling-policy") == 0)
            help = rows[i].help;
    assert_non_null(help);
    for (uint32_t i = 0; sched_policy_at(i); i++) {
        assert_non_null(strstr(help, sched_policy_at(i)->name));
        assert_non_null(strstr(help, sched_policy_at(i)->about));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(times),
        cmocka_unit_test(speculation),
        cmocka_unit_test(lists),
        cmocka_unit_test(files),
        cmocka_unit_test(a_least_value_alone),
        cmocka_unit_test(every_policy_is_in_the_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
