/* A models file is accepted and consistent, or the error has a place and a reason in plain text. */
#include "tests/fuzz/fuzz.h"

#include "server/gateway/experiment/variables.h"
#include "server/gateway/file/models_parse.h"
#include "server/gateway/route/route.h"

#include <stdlib.h>
#include <string.h>

static uint32_t no_latency(void *context, uint32_t model)
{
    (void)context, (void)model;
    return 0;
}

/* The variables of an arm are counted as they are named, and an experiment has an identity. */
static void check_experiment(const struct gateway_config *config, uint32_t model)
{
    const struct gateway_experiment *e = config->models[model].route.experiment;
    char run[VARIABLES_RUN_BYTES], warning[VARIABLES_WARNING_BYTES];
    if (e->n_arms < 2 || e->n_arms > GATEWAY_MAX_ARMS)
        abort();
    variables_run(config, model, run);
    if (strspn(run, "0123456789abcdef") != VARIABLES_RUN_BYTES - 1)
        abort();
    for (uint32_t i = 0; i < e->n_arms; i++) {
        struct buffer names = {0};
        const uint32_t n = variables_differ(config, model, i, &names);
        if (e->arms[i].weight == 0 || e->arms[i].model >= config->n_models || (n > 0) != (names.n > 0) ||
            variables_warn(config, model, i, warning) != (n > 1))
            abort();
        buffer_free(&names);
    }
}

/* Every model ends at one that has targets. */
static void check(const struct gateway_config *config)
{
    const struct route_latencies latencies = {no_latency, NULL};
    if (config->n_models == 0 || config->n_models > GATEWAY_MAX_MODELS)
        abort();
    for (size_t i = 0; i < config->n_models; i++) {
        const struct gateway_model *m = &config->models[i];
        struct route_choice choice;
        if (models_file_find(config, m->name, strlen(m->name)) != m)
            abort();
        const struct route_question q = {.asked = m->name,
                                         .n_asked = strlen(m->name),
                                         .tenant = "t",
                                         .prompt = "What is it?",
                                         .n_prompt = 11,
                                         .user = "u",
                                         .n_user = 1};
        if (!route_choose(config, &q, &latencies, &choice) ||
            (choice.arm != ROUTE_NO_ARM && choice.arm >= config->models[choice.experiment].route.experiment->n_arms) ||
            choice.model >= config->n_models || config->models[choice.model].n_targets == 0)
            abort();
        if (m->route.experiment)
            check_experiment(config, (uint32_t)i);
        for (uint32_t j = 0; j < m->n_fallback; j++)
            if (m->fallback[j] >= config->n_models)
                abort();
        for (size_t j = 0; j < m->n_targets; j++)
            if (!m->targets[j].name || !m->targets[j].place || m->targets[j].weight == 0)
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct gateway_config *config;
    struct quire_error err = {.text = ""};
    if (models_file_parse((const char *)data, n, "f", &config, &err) == QUIRE_OK) {
        check(config);
        models_file_release(config);
        return 0;
    }
    if (strncmp(err.text, "f:", 2) != 0)
        abort();
    for (const char *c = err.text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
    return 0;
}
