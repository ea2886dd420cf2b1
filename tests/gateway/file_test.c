/* Models files that are accepted, and others that are rejected with the place of the fault. */
#include "server/gateway/file/models_parse.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define PRICES "price_per_1k: {input: 0.0025, output: 0.01}"
#define SMALL "models:\n  small: {targets: [{model: ./m}]}\n"

static const struct gateway_config *accepted(const char *text)
{
    const struct gateway_config *config;
    struct quire_error err = {.text = ""};
    if (models_file_parse(text, strlen(text), "f.yaml", &config, &err) != QUIRE_OK)
        fail_msg("%s\n%s", err.text, text);
    return config;
}

static void refused(const char *text, size_t n, const char *says)
{
    const struct gateway_config *config;
    struct quire_error err = {.text = ""};
    if (models_file_parse(text, n, "f.yaml", &config, &err) != QUIRE_INVALID)
        fail_msg("accepted: %.300s", text);
    if (!strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\": %.300s", err.text, says, text);
    assert_null(config);
}

/* ---- what is read --------------------------------------------------------------------------- */

static const char issue[] =
    "models:\n"
    "  small: {targets: [{model: ./qwen-0.5b}], price_per_1k: {input: 0.00015, cached_input: 0.00002, output: 0.0006}}\n"
    "  large: {targets: [{engine: \"tcp:10.0.0.5:7000\"}, {url: \"https://api.example.com/v1\", model: upstream-name, "
    "api_key_env: UPSTREAM_KEY}], price_per_1k: {input: 0.0025, output: 0.01}}\n"
    "  auto:  {route: complexity, simple: small, moderate: large, complex: large, fallback: [small]}\n";

static void the_published_example(void **state)
{
    (void)state;
    setenv("UPSTREAM_KEY", "sk-123", 1);
    const struct gateway_config *c = accepted(issue);
    assert_int_equal(c->n_models, 3);
    const struct gateway_model *small = &c->models[0], *large = &c->models[1], *automatic = &c->models[2];
    assert_string_equal(small->name, "small");
    assert_int_equal(small->targets[0].kind, GATEWAY_TARGET_MODEL);
    assert_string_equal(small->targets[0].place, "./qwen-0.5b");
    assert_string_equal(small->targets[0].name, "qwen-0.5b");
    assert_int_equal(small->price.input, 150000);
    assert_int_equal(small->price.cached_input, 20000);
    assert_int_equal(small->price.output, 600000);
    assert_int_equal(large->n_targets, 2);
    assert_int_equal(large->targets[0].kind, GATEWAY_TARGET_ENGINE);
    assert_string_equal(large->targets[1].place, "https://api.example.com/v1");
    assert_string_equal(large->targets[1].name, "api.example.com");
    assert_string_equal(large->targets[1].upstream_model, "upstream-name");
    assert_string_equal(large->targets[1].key, "sk-123");
    assert_int_equal(large->targets[1].line, 3);
    assert_int_equal(large->price.cached_input, large->price.input);
    assert_int_equal(automatic->route.kind, GATEWAY_ROUTE_COMPLEXITY);
    assert_int_equal(automatic->route.simple, 0);
    assert_int_equal(automatic->route.complex, 1);
    assert_int_equal(automatic->fallback[0], 0);
    assert_int_equal(automatic->n_targets, 0);
    models_file_hold(c);
    models_file_release(c);
    assert_ptr_equal(models_file_find(c, "large", 5), large);
    assert_null(models_file_find(c, "lar", 3));
    models_file_release(c);
}

static void every_field(void **state)
{
    (void)state;
    const struct gateway_config *c = accepted(
        "models:\n"
        "  fast:\n"
        "    route: latency\n"
        "    among: [a, b]\n"
        "  a:\n"
        "    aliases: [gpt-4o-mini, mini]\n"
        "    tokenizer: ./tok\n"
        "    cost_per_1k_input: 0.00015\n"
        "    cost_per_1k_output: 6e-4\n"
        "    avg_latency_ms: 800\n"
        "    max_tokens: 4096\n"
        "    batch: {max_batch_size: 10, max_wait_ms: 100}\n"
        "    fallback: [b]\n"
        "    targets:\n"
        "      - {url: 'http://127.0.0.1:9/v1/', weight: 3, max_concurrent: 7}\n"
        "      - {url: 'http://127.0.0.1:9/v1'}\n"
        "      - {url: 'http://[::1]:9', name: six}\n"
        "  b:\n"
        "    targets:\n"
        "      - model: ./m/\n"
        "        options: {max-model-len: 4096, enforce-eager: true, warm: false, lora-modules: [a=b, c=d]}\n"
        "      - engine: 'unix:/run/e\"\\{.sock'\n"
        "      - model: './a\"é'\n"
        "overrides:\n"
        "  acme: {fast: b, mini: b}\n");
    const struct gateway_model *fast = &c->models[0], *a = &c->models[1], *b = &c->models[2];
    assert_int_equal(fast->route.kind, GATEWAY_ROUTE_LATENCY);
    assert_int_equal(fast->route.n_among, 2);
    assert_int_equal(fast->route.among[1], 2);
    assert_ptr_equal(models_file_find(c, "mini", 4), a);
    assert_string_equal(a->tokenizer, "./tok");
    assert_true(a->price.is_set && a->price.input == 150000 && a->price.output == 600000);
    assert_true(a->avg_latency_ms == 800 && a->max_tokens == 4096);
    assert_true(a->batching.max_batch_size == 10 && a->batching.max_wait_ms == 100);
    assert_true(a->n_fallback == 1 && a->fallback[0] == 2);
    assert_string_equal(a->targets[0].place, "http://127.0.0.1:9/v1");
    assert_true(a->targets[0].weight == 3 && a->targets[0].max_concurrent == 7 && a->targets[1].weight == 1);
    assert_string_equal(a->targets[0].name, "127.0.0.1");
    assert_string_equal(a->targets[1].name, "127.0.0.1-2");
    assert_string_equal(a->targets[2].name, "six");
    assert_null(a->targets[0].key);
    static const char *const options[] = {"--max-model-len", "4096", "--enforce-eager", "--no-warm",
                                          "--lora-modules",  "a=b",  "--lora-modules",  "c=d"};
    assert_int_equal(b->targets[0].n_options, 8);
    for (size_t i = 0; i < 8; i++)
        assert_string_equal(b->targets[0].options[i], options[i]);
    assert_string_equal(b->targets[0].name, "m");
    assert_string_equal(b->targets[1].name, "unix:/run/e___.sock"); /* no label of Prometheus has to be escaped */
    assert_string_equal(b->targets[2].name, "a___");
    assert_string_equal(b->tokenizer, "./m/");
    assert_false(b->price.is_set);
    assert_int_equal(c->n_overrides, 2);
    assert_string_equal(c->overrides[1].tenant, "acme");
    assert_string_equal(c->overrides[1].asked, "mini");
    assert_int_equal(c->overrides[1].model, 2);
    models_file_release(c);
}

static void an_experiment(void **state)
{
    (void)state;
    const struct gateway_config *c = accepted(
        "models:\n"
        "  chat:\n"
        "    route: experiment\n"
        "    by: request\n"
        "    metric: ttft\n"
        "    arms: {control: {model: a, weight: 9}, new: {model: l}}\n"
        "  aa: {route: experiment, arms: {one: {model: a}, two: {model: a}}}\n" /* the same model twice is a test of the test */
        "  a: {targets: [{model: m}]}\n"
        "  l: {route: latency, among: [a]}\n");
    const struct gateway_experiment *e = c->models[0].route.experiment, *aa = c->models[1].route.experiment;
    assert_int_equal(c->models[0].route.kind, GATEWAY_ROUTE_EXPERIMENT);
    assert_true(e->by_request && e->has_metric && e->metric == GATEWAY_TTFT && e->n_arms == 2);
    assert_string_equal(e->arms[0].name, "control");
    assert_true(e->arms[0].model == 2 && e->arms[0].weight == 9 && e->arms[1].model == 3 && e->arms[1].weight == 1);
    assert_true(e->arms[1].line == 6 && e->arms[1].column == 57);
    assert_true(!aa->by_request && !aa->has_metric && aa->arms[1].model == 2);
    assert_null(c->models[3].route.experiment);
    models_file_release(c);
}

static void prices_are_exact(void **state)
{
    static const struct {
        const char *text;
        uint64_t pico;
    } rows[] = {{"0", 0},
                {"0.000000001", 1},
                {"1000", 1000000000000},
                {"0.1", 100000000},
                {"+.25", 250000000},
                {"2.", 2000000000},
                {"1e-9", 1},
                {"1E2", 100000000000},
                {"000.30000000000000000", 300000000},
                {"123.456789012", 123456789012},
                {"0e999", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[200];
        snprintf(text, sizeof text, "models: {a: {targets: [{model: m}], price_per_1k: {input: %s, output: 0}}}",
                 rows[i].text);
        const struct gateway_config *c = accepted(text);
        assert_int_equal(c->models[0].price.input, rows[i].pico);
        models_file_release(c);
    }
}

/* ---- what is refused ------------------------------------------------------------------------ */

#define ONE(fields) "models:\n  a: {targets: [{model: m}], " fields "}\n"
#define TARGET(fields) "models:\n  a:\n    targets:\n    - {" fields "}\n"
#define TWO(rest) "models:\n  a: {targets: [{model: m}]}\n  b: {targets: [{model: m}]}\n" rest

static void files_that_are_wrong(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "f.yaml:1:1: the file is empty"},
        {"# only a comment\n", "the file is empty"},
        {"7", "f.yaml:1:1: must be a mapping"},
        {"[]", "f.yaml:1:1: must be a mapping"},
        {"{}", "f.yaml:1:1: models: must be a mapping of 1 to 256"},
        {"models: {}", "f.yaml:1:9: models: must be"},
        {"models: [a]", "f.yaml:1:9: models: must be"},
        {"models:\n", "models: must be"},
        {"modelz: {a: 1}\n", "f.yaml:1:1: \"modelz\" is not a field here; did you mean \"models\"?"},
        {"models: {a: 1}\n", "f.yaml:1:13: model a: must be a mapping of fields"},
        {"models: {a: {}}\n", "f.yaml:1:13: model a: must have targets, or a route"},
        {"models: {'a b': {targets: [{model: m}]}}\n", "f.yaml:1:10: models: \"a b\" must be a name"},
        {"models: {'': {targets: [{model: m}]}}\n", "f.yaml:1:10: models: must be a text"},
        {SMALL "  small: {targets: [{model: n}]}\n",
         "f.yaml:3:3: \"small\" stands here a second time; the first is in line 2"},
        {SMALL "--- 1\n", "f.yaml:3:1: a second document"},
        {"models: &x {a: 1}\n", "f.yaml:1:9: anchors (&name) and aliases (*name) are not supported"},
        {"models: {a: *x}\n", "f.yaml:1:13: anchors"},
        {"models: !!map {a: 1}\n", "f.yaml:1:9: tags"},
        {"models: {a: !secret x}\n", "f.yaml:1:13: tags"},
        {"models: {[1]: 2}\n", "f.yaml:1:10: the name of a field must be a text"},
        {"models: {a: [}\n", "f.yaml:1:14: is not YAML: "},
        {"models:\n\ta: 1\n", "is not YAML"},
        {"models: {a: \"x\\0y\"}\n", "f.yaml:1:13: a text has a control character"},
        {"models: {a: \"\\x9b31m\"}\n", "f.yaml:1:13: a text has a control character"},
        {"models: {a: |\n  x\n}\n", "f.yaml:"},
        {"models: {a: [[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]}", "is nested more than 16 levels deep"},
        {"models: {a: \x01}\n", "f.yaml:1:13: is not YAML"},
        {"models:\n  \xff: 1\n", "f.yaml:2:3: is not UTF-8 text"},
        {"\xff\xfem\0o", "f.yaml:1:1: is not UTF-8 text"},
        /* targets */
        {"models: {a: {targets: []}}", "f.yaml:1:23: model a: targets: must be a list of 1 to 64"},
        {"models: {a: {targets: m}}", "model a: targets: must be a list"},
        {TARGET("weight: 1"),
         "f.yaml:4:7: model a: target 1: must have model (a directory), engine (an address) or url"},
        {TARGET("model: m, engine: 'unix:/e'"), "target 1: engine: a target has one place; remove model"},
        {TARGET("engine: 'unix:/e', url: 'http://h'"), "engine: a target has one place; remove url"},
        {TARGET("modek: m"), "f.yaml:4:8: model a: target 1: \"modek\" is not a field here; did you mean \"model\"?"},
        {TARGET("model: "), "target 1: model: must be a text"},
        {TARGET("model: [m]"), "target 1: model: must be a text"},
        {TARGET("engine: 'tcp:h'"),
         "f.yaml:4:16: model a: target 1: engine: \"tcp:h\" must be unix:PATH or tcp:HOST:PORT"},
        {TARGET("engine: 'tcp:h:0'"), "must be unix:PATH"},
        {TARGET("engine: 'tcp:h:65536'"), "must be unix:PATH"},
        {TARGET("engine: 'tcp:::1:7'"), "must be unix:PATH"},
        {TARGET("engine: 'unix:'"), "must be unix:PATH"},
        {TARGET("engine: /run/e"), "must be unix:PATH"},
        {TARGET("url: ftp://h/v1"), "f.yaml:4:13: model a: target 1: url: \"ftp://h/v1\" must begin with http"},
        {TARGET("url: 'https://u:p@h/v1'"), "must not have a user or password"},
        {TARGET("url: 'https://h/v1?x=1'"), "must not have spaces, a query"},
        {TARGET("url: 'https://h/v1#x'"), "must not have spaces, a query"},
        {TARGET("url: 'https://h /v1'"), "must not have spaces, a query"},
        {TARGET("url: 'https://'"), "url: "},
        {TARGET("url: 'https:///v1'"), "has no host"},
        {TARGET("url: 'https://h:0/v1'"), "has the port 0"},
        {TARGET("url: 'https://h:99999/v1'"), "is not a URL"},
        {TARGET("url: 'http://h', api_key_env: QUIRE_TEST_UNSET"), "api_key_env: QUIRE_TEST_UNSET is not set"},
        {TARGET("url: 'http://h', api_key_env: QUIRE_TEST_BROKEN"), "has a character that no key has"},
        {TARGET("url: 'http://h', api_key_file: /dev/null/key"), "api_key_file: /dev/null/key cannot be opened"},
        {TARGET("url: 'http://h', api_key_file: /tmp"), "is not a regular file"},
        {TARGET("url: 'http://h', api_key_file: /dev/null"), "is not a regular file"},
        {TARGET("url: 'http://h', api_key_file: x, api_key_env: X"), "a target has one key"},
        {TARGET("model: m, api_key_env: X"), "api_key_env: is for a target with url"},
        {TARGET("model: m, engine_key_file: X"), "engine_key_file: is for a target with engine"},
        {TARGET("url: 'http://h', options: {a: b}"), "options: are for a target with model or engine"},
        {TARGET("model: m, options: [a]"), "options: must be a mapping"},
        {TARGET("model: m, options: {'a b': c}"), "options: \"a b\" is not the name of an option"},
        {TARGET("model: m, options: {-a: c}"), "is not the name of an option"},
        {TARGET("model: m, options: {a: {b: c}}"), "options: a must be a text"},
        {TARGET("model: m, weight: 0"),
         "f.yaml:4:26: model a: target 1: weight: must be a whole number from 1 to 1000"},
        {TARGET("model: m, weight: 1001"), "weight: must be a whole number"},
        {TARGET("model: m, weight: -1"), "weight: must be a whole number"},
        {TARGET("model: m, weight: 010"), "weight: must be a whole number"},
        {TARGET("model: m, weight: 1.5"), "weight: must be a whole number"},
        {TARGET("model: m, weight: '1'"), "weight: must be a whole number"},
        {TARGET("model: m, weight: 99999999999999999999"), "weight: must be a whole number"},
        {TARGET("model: m, max_concurrent: x"), "max_concurrent: must be"},
        {TARGET("model: m, name: x}\n    - {model: m, name: x"),
         "f.yaml:5:24: model a: target 2: name: \"x\" is another target's"},
        {TARGET("model: m, name: 'x y'"), "name: \"x y\" must be a name"},
        /* prices and limits */
        {ONE("price_per_1k: 1"), "price_per_1k: must be a mapping"},
        {ONE("price_per_1k: {input: 1}"), "f.yaml:2:44: model a: price_per_1k: output: is missing; write 0"},
        {ONE("price_per_1k: {input: -0.1, output: 0}"),
         "f.yaml:2:52: model a: price_per_1k: input: -0.1 must not be negative"},
        {ONE("price_per_1k: {input: 0, output: 0, cached_input: -1}"), "cached_input: -1 must not be negative"},
        {ONE("price_per_1k: {input: 0.0000000001, output: 0}"), "input: 0.0000000001 has more than nine decimals"},
        {ONE("price_per_1k: {input: 1000.1, output: 0}"), "must be at most 1000 dollars"},
        {ONE("price_per_1k: {input: 1e99, output: 0}"), "must be at most 1000 dollars"},
        {ONE("price_per_1k: {input: 1e99999, output: 0}"), "must be a number of dollars"},
        {ONE("price_per_1k: {input: .inf, output: 0}"), "must be a number of dollars"},
        {ONE("price_per_1k: {input: 1_0, output: 0}"), "must be a number of dollars"},
        {ONE("price_per_1k: {input: 0x1, output: 0}"), "must be a number of dollars"},
        {ONE("price_per_1k: {input: '1', output: 0}"), "must be a number of dollars"},
        {ONE("price_per_1k: {input: , output: 0}"), "input: must be a number of dollars"},
        {ONE("price_per_1k: {inputs: 1, output: 0}"), "\"inputs\" is not a field here; did you mean \"input\"?"},
        {ONE("cost_per_1k_input: 1"), "cost_per_1k_output: is missing"},
        {ONE("cost_per_1k_output: 1"), "cost_per_1k_input: is missing"},
        {ONE("cost_per_1k_input: -1, cost_per_1k_output: 1"), "cost_per_1k_input: -1 must not be negative"},
        {ONE(PRICES ", cost_per_1k_input: 1"), "cost_per_1k_input: says what price_per_1k says"},
        {ONE("max_tokens: 0"), "max_tokens: must be a whole number from 1"},
        {ONE("avg_latency_ms: fast"), "avg_latency_ms: must be"},
        {ONE("batch: 10"), "batch: must be a mapping"},
        {ONE("batch: {max_wait_ms: 5}"), "batch: max_batch_size: is missing"},
        {ONE("batch: {max_batch_size: 257}"), "batch: max_batch_size: must be"},
        {ONE("cost: 1"), "f.yaml:2:30: model a: \"cost\" is not a field here"},
        /* names */
        {ONE("aliases: [a]"), "f.yaml:2:40: model a: aliases: \"a\" is also a name"},
        {ONE("aliases: [x, x]"), "\"x\" is also a name or alias of model a"},
        {ONE("aliases: [b]") "  b: {targets: [{model: m}]}\n", "\"b\" is also a name or alias of model b"},
        {ONE("aliases: [x]") "  b: {targets: [{model: m}], aliases: [x]}\n", "is also a name or alias of model"},
        {ONE("aliases: x"), "aliases: must be a list"},
        /* routes */
        {TWO("  c: {route: speed}\n"),
         "f.yaml:4:14: model c: route: \"speed\" must be complexity, latency or experiment"},
        {TWO("  c: {route: complexity, simple: a, moderate: b}\n"), "model c: complex: is missing"},
        {TWO("  c: {route: complexity, simple: a, moderate: b, complex: d}\n"),
         "f.yaml:4:59: model c: complex: \"d\" is not a model of this file"},
        {TWO("  c: {route: complexity, simple: a, moderate: b, complex: b, targets: [{model: m}]}\n"),
         "targets: does not go with route"},
        {TWO("  c: {route: complexity, simple: a, moderate: b, complex: b, max_tokens: 5}\n"),
         "max_tokens: does not go with route"},
        {TWO("  c: {route: complexity, simple: a, moderate: b, complex: b, among: [a]}\n"),
         "among: goes with route: latency"},
        {TWO("  c: {route: latency, simple: a, among: [a]}\n"), "simple: goes with route: complexity"},
        {TWO("  c: {route: latency}\n"), "among: is missing"},
        {TWO("  c: {route: latency, among: [a, x]}\n"), "among: \"x\" is not a model"},
        {TWO("  c: {route: latency, among: [a, a]}\n"), "among: \"a\" stands here twice"},
        {ONE("simple: a"), "simple: goes with route: complexity"},
        {ONE("fallback: [b]"), "f.yaml:2:41: model a: fallback: \"b\" is not a model of this file"},
        {ONE("fallback: b"), "fallback: must be a list"},
        {ONE("fallback: [a]"), "f.yaml:2:40: model a: fallback: leads back to a model: a -> a"},
        {ONE("fallback: [b]") "  b: {targets: [{model: m}], fallback: [a]}\n", "leads back to a model: a -> b -> a"},
        {ONE("fallback: [c]") "  b: {targets: [{model: m}]}\n  c: {route: complexity, simple: b, moderate: a, complex: b}\n",
         "leads back to a model: a -> c -> a"},
        {TWO("  c: {route: latency, among: [d]}\n  d: {route: latency, among: [c]}\n"),
         "f.yaml:4:14: model c: route: leads back to a model: c -> d -> c"},
        {TWO("  c: {route: latency, among: [d]}\n  d: {route: latency, among: [a], fallback: [d]}\n"),
         "f.yaml:5:45: model d: fallback: leads back to a model: d -> d"},
        /* experiments */
        {TWO("  c: {route: experiment}\n"), "f.yaml:4:14: model c: arms: is missing"},
        {TWO("  c: {route: experiment, arms: [a, b]}\n"), "f.yaml:4:32: model c: arms: must be a mapping of 2 to 16"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}}}\n"), "model c: arms: must be a mapping of 2 to 16"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}, y: {model: d}}}\n"),
         "f.yaml:4:59: model c: arm y: model: \"d\" is not a model of this file"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}, y: {weight: 2}}}\n"),
         "f.yaml:4:51: model c: arm y: model: is missing"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}, y: b}}\n"), "f.yaml:4:51: model c: arm y: must be"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}, y: {model: b, weight: 0}}}\n"),
         "f.yaml:4:70: model c: arm y: weight: must be a whole number from 1 to 1000"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}, y: {model: b, weight: -5}}}\n"),
         "f.yaml:4:70: model c: arm y: weight: must be a whole number from 1 to 1000"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}, y: {model: b, weight: 0.5}}}\n"),
         "arm y: weight: must be"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}, y: {model: b, weights: 5}}}\n"),
         "arm y: \"weights\" is not a field here; did you mean \"weight\"?"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}, x: {model: b}}}\n"),
         "f.yaml:4:48: \"x\" stands here a second time"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}, 'y z': {model: b}}}\n"),
         "f.yaml:4:48: model c: arms: \"y z\" must be a name"},
        {TWO("  c: {route: experiment, by: tenant, arms: {x: {model: a}, y: {model: b}}}\n"),
         "f.yaml:4:30: model c: by: \"tenant\" must be user or request"},
        {TWO("  c: {route: experiment, metric: speed, arms: {x: {model: a}, y: {model: b}}}\n"),
         "f.yaml:4:34: model c: metric: \"speed\" must be errors, cancelled, ttft"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}, y: {model: c}}}\n"),
         "f.yaml:4:14: model c: route: leads back to a model: c -> c"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}, y: {model: d}}}\n  d: {route: latency, among: [c]}\n"),
         "leads back to a model: c -> d -> c"},
        {TWO("  c: {route: experiment, arms: {x: {model: a}, y: {model: d}}}\n"
             "  d: {route: latency, among: [a, e]}\n  e: {route: experiment, arms: {x: {model: a}, y: {model: b}}}\n"),
         "f.yaml:4:59: model c: arm y: model: \"d\" is or leads to an experiment"},
        {TWO("  c: {route: experiment, max_tokens: 5, arms: {x: {model: a}, y: {model: b}}}\n"),
         "max_tokens: does not go with route"},
        {TWO("  c: {route: experiment, among: [a], arms: {x: {model: a}, y: {model: b}}}\n"),
         "among: goes with route: latency"},
        {TWO("  c: {route: latency, among: [a], by: user}\n"), "f.yaml:4:39: model c: by: goes with route: experiment"},
        {ONE("arms: {x: {model: a}, y: {model: a}}"), "arms: goes with route: experiment"},
        /* overrides */
        {SMALL "overrides: 1\n", "f.yaml:3:12: overrides: must be a mapping of tenants"},
        {SMALL "overrides: {acme: small}\n", "overrides: acme: must be a mapping of models"},
        {SMALL "overrides: {acme: {large: small}}\n", "f.yaml:3:20: overrides of acme: \"large\" is not a model"},
        {SMALL "overrides: {acme: {small: large}}\n",
         "f.yaml:3:27: overrides of acme: small: \"large\" is not a model"},
        {SMALL "overrides: {acme: {small: small}, acme: {}}\n", "\"acme\" stands here a second time"},
    };
    (void)state;
    setenv("QUIRE_TEST_BROKEN", "two words", 1);
    unsetenv("QUIRE_TEST_UNSET");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refused(rows[i].text, strlen(rows[i].text), rows[i].says);
    refused("models: \0", 9, "is not YAML");
}

/* ---- sizes ---------------------------------------------------------------------------------- */

static char *repeated(const char *head, const char *each, size_t n, const char *tail)
{
    char *text = malloc(strlen(head) + n * (strlen(each) + 12) + strlen(tail) + 1), *at = text;
    assert_non_null(text);
    at += sprintf(at, "%s", head);
    for (size_t i = 0; i < n; i++)
        at += sprintf(at, each, i); // NOLINT: a format of this file
    sprintf(at, "%s", tail);
    return text;
}

static void files_that_are_huge(void **state)
{
    (void)state;
    static const struct {
        const char *head, *each, *tail, *says;
        size_t n;
    } rows[] = {
        {"#", "aaaaaaaaaa%zu", "\n", "has more than 1048576 bytes", 100000},
        {"models:\n", " m%zu: {targets: [{model: m}]}\n", "", "must be a mapping of 1 to 256 models", 257},
        {"models:\n", " m%zu: {targets: [{model: m}]}\n", "", "a list or mapping has too many entries", 1100},
        {"models: {a: {targets: [", "{model: m%zu},", "]}}", "targets: must be a list of 1 to 64", 65},
        {"models: {a: {targets: [{model: m}], aliases: [", "x%zu,", "]}}", "aliases: must be a list of 1 to 16", 17},
        {"models: {a: {targets: [{model: m}], fallback: [", "x%zu,", "]}}", "fallback: must be a list of 1 to 16", 17},
        {"models: {a: {targets: [{model: m, options: {", "x%zu: 1,", "}}]}}", "options: are more than 64 words", 33},
        {"models: {a: {targets: [{model: '", "aaaaaaaa%zu", "'}]}}", "model: has more than 2048 bytes", 250},
        {"models: {a: {targets: [{model: '", "aaaaaaaa%zu", "'}]}}", "a text has more than 8192 bytes", 1000},
        {"", "[", "", "is nested more than 16 levels deep", 100000},
        {"a: [", "[0],", "]", "a list or mapping has too many entries", 2000},
        {"a:\n",
         " - [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
         "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]\n",
         "", "has too many", 1000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = repeated(rows[i].head, rows[i].each, rows[i].n, rows[i].tail);
        refused(text, strlen(text), rows[i].says);
        free(text);
    }
    char *most = repeated("models:\n", " m%zu: {targets: [{model: m}]}\n", 256, "");
    models_file_release(accepted(most));
    free(most);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fchmod(fileno(f), mode), 0);
    fclose(f);
}

static void key_files(void **state)
{
    char folder[] = "/tmp/quire-models-XXXXXX", key[64], text[256];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(key, sizeof key, "%s/key", folder);
    snprintf(text, sizeof text, "models: {a: {targets: [{url: 'http://h', api_key_file: %s}]}}", key);
    write_file(key, "sk-456\n", 0600);
    const struct gateway_config *c = accepted(text);
    assert_string_equal(c->models[0].targets[0].key, "sk-456");
    models_file_release(c);
    write_file(key, "sk-456\n", 0644);
    refused(text, strlen(text), "can be read or changed by other users; run chmod 600 on it");
    write_file(key, "sk-456\n", 0640);
    refused(text, strlen(text), "can be read or changed by other users");
    write_file(key, "\n", 0600);
    refused(text, strlen(text), "is empty");
    write_file(key, "two words", 0600);
    refused(text, strlen(text), "has a character that no key has");
    unlink(key);
    assert_int_equal(mkfifo(key, 0600), 0); /* opening it must not wait for a writer */
    refused(text, strlen(text), "is not a regular file");
    unlink(key);
    rmdir(folder);
}

static void a_file_on_disk(void **state)
{
    char path[] = "/tmp/quire-models-XXXXXX";
    const struct gateway_config *c;
    struct quire_error err;
    (void)state;
    close(mkstemp(path));
    write_file(path, SMALL, 0644);
    assert_int_equal(models_file_read(path, &c, &err), QUIRE_OK);
    models_file_release(c);
    write_file(path, "models: 1\n", 0644);
    assert_int_equal(models_file_read(path, &c, &err), QUIRE_INVALID);
    assert_true(strncmp(err.text, path, strlen(path)) == 0 && strstr(err.text, ":1:9: models: must be"));
    unlink(path);
    assert_int_equal(models_file_read(path, &c, &err), QUIRE_NOT_FOUND);
    models_file_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_example),
        cmocka_unit_test(every_field),
        cmocka_unit_test(an_experiment),
        cmocka_unit_test(prices_are_exact),
        cmocka_unit_test(files_that_are_wrong),
        cmocka_unit_test(files_that_are_huge),
        cmocka_unit_test(key_files),
        cmocka_unit_test(a_file_on_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
