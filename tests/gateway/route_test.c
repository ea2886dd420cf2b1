/* The rule of complexity and the choice of a model. tests/gateway/rule_test.py compares the rule with Python's. */
#include "server/gateway/file/models_parse.h"
#include "server/gateway/route/route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct gateway_config *config_of(const char *text)
{
    const struct gateway_config *config;
    struct quire_error err = {.text = ""};
    if (models_file_parse(text, strlen(text), "f.yaml", &config, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return config;
}

static const char text[] =
    "models:\n"
    "  small: {targets: [{model: m}], aliases: [mini], avg_latency_ms: 100}\n"
    "  large: {targets: [{model: m}], avg_latency_ms: 300}\n"
    "  new: {targets: [{model: m}]}\n"
    "  auto: {route: complexity, simple: small, moderate: large, complex: fast, aliases: [router]}\n"
    "  fast: {route: latency, among: [large, small]}\n"
    "  any: {route: latency, among: [large, new, small]}\n"
    "overrides: {acme: {auto: small, mini: fast}}\n";

static uint32_t latency(void *context, uint32_t model)
{
    return model < 2 ? ((const uint32_t *)context)[model] : 0;
}

static void choices(void **state)
{
    static const struct {
        const char *asked, *tenant, *prompt;
        uint32_t measured[2];
        const char *chosen, *why;
    } rows[] = {
        {NULL, NULL, "", {0}, "small", "name"},
        {"", NULL, "", {0}, "small", "name"},
        {"large", NULL, "", {0}, "large", "name"},
        {"mini", NULL, "", {0}, "small", "alias"},
        {"auto", NULL, "What is an LLM?", {0}, "small", "complexity: simple (4 words, \"what is\")"},
        {"router", NULL, "hello", {0}, "large", "complexity: moderate (1 word)"},
        {"auto", NULL, "Compare these", {0}, "small", "latency: 100 ms"},
        {"auto", NULL, "Compare these", {900, 200}, "large", "latency: 200 ms"},
        {"fast", NULL, "", {900, 0}, "large", "latency: 300 ms"},
        {"any", NULL, "", {1, 1}, "new", "latency: not measured yet"},
        {"auto", "acme", "Compare", {0}, "small", "override"},
        {"router", "acme", "Compare", {0}, "small", "override"},
        {"auto", "other", "hello", {0}, "large", "complexity: moderate (1 word)"},
        {"small", "acme", "", {500, 200}, "large", "latency: 200 ms"},
        {"nothing", NULL, "", {0}, NULL, NULL},
    };
    (void)state;
    const struct gateway_config *c = config_of(text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct route_latencies latencies = {latency, (void *)rows[i].measured};
        struct route_choice choice;
        const struct route_question q = {.asked = rows[i].asked,
                                         .n_asked = rows[i].asked ? strlen(rows[i].asked) : 0,
                                         .tenant = rows[i].tenant,
                                         .prompt = rows[i].prompt,
                                         .n_prompt = strlen(rows[i].prompt)};
        const bool found = route_choose(c, &q, &latencies, &choice);
        assert_int_equal(found, rows[i].chosen != NULL);
        if (!found)
            continue;
        assert_string_equal(c->models[choice.model].name, rows[i].chosen);
        assert_string_equal(choice.why, rows[i].why);
    }
    models_file_release(c);
}

static void words(char *out, size_t n, const char *last)
{
    out[0] = '\0';
    for (size_t i = 0; i + 1 < n; i++)
        strcat(out, "w ");
    strcat(out, last);
}

static void bounds_of_the_rule(void **state)
{
    static const struct {
        size_t n;
        const char *last;
        enum route_complexity is;
    } rows[] = {{49, "define", ROUTE_SIMPLE},
                {50, "define", ROUTE_MODERATE},
                {49, "compare", ROUTE_COMPLEX},
                {50, "compare", ROUTE_COMPLEX},
                {200, "w", ROUTE_MODERATE},
                {201, "w", ROUTE_COMPLEX},
                {1, "w", ROUTE_MODERATE},
                {2, "LISTen", ROUTE_SIMPLE},
                {3,
                 "Step\xC2\xA0"
                 "by step",
                 ROUTE_MODERATE},
                {3, "step  by step", ROUTE_MODERATE},
                {3, "sTEP by sTEP", ROUTE_COMPLEX}};
    char prompt[1024];
    struct route_reading r;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        words(prompt, rows[i].n, rows[i].last);
        route_read(prompt, strlen(prompt), &r);
        assert_int_equal(r.complexity, rows[i].is);
    }
    /* The first of the published order is the one that is reported. */
    route_read("name what is", 12, &r);
    assert_string_equal(r.indicator, "what is");
    route_read("", 0, &r);
    assert_true(r.n_words == 0 && r.complexity == ROUTE_MODERATE && !r.indicator);
    route_read("define", 5, &r); /* ends within the indicator */
    assert_null(r.indicator);
    route_read("a\xE3\x80\x80"
               "b\xC2\x85"
               "c\x1C"
               "d\xFF"
               "e",
               12, &r);
    assert_int_equal(r.n_words, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(choices), cmocka_unit_test(bounds_of_the_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
