#include "app/serve/serve_models.h"

#include "app/serving/about.h"
#include "app/serving/text_load.h"
#include "engine/model/describe.h"
#include "engine/plan_model.h"
#include "server/front/front_model.h"

static void on_engine_died(void *context, const char *why)
{
    struct serve *s = context;
    (void)why; /* pending requests get the reason from the engine */
    if (s->served)
        upstream_fail(served_model_upstream(s->served), own_engine_hangs(s->engine));
}

static int open_engine(struct serve *s, struct quire_error *err)
{
    const struct serve_settings *says = s->flags->says;
    const struct own_engine_options options = {.model = s->model->name,
                                               .identity = s->identity,
                                               .options = s->flags->options,
                                               .watching = s->flags->watching,
                                               .listen = says->listen.items,
                                               .n_listen = says->listen.n,
                                               .key_file = says->key_file,
                                               .died = on_engine_died,
                                               .context = s};
    return own_engine_open(s->base, &options, &s->engine, err);
}

static void note_files(struct serve *s, const struct model_config *config)
{
    const char *path = s->flags->options->model_dir;
    serving_about(&s->about, path, config);
    engine_plan_parameters(path, config, &s->about.n_parameters, NULL); /* 0 if the weights are elsewhere */
}

static void note_memory(struct model_about *about, const struct engine_plan *plan)
{
    about->memory_bytes = engine_plan_total_bytes(plan) + plan->bytes[PLAN_WEIGHTS] + plan->bytes[PLAN_DRAFT_WEIGHTS];
    about->vram_bytes = plan->device_memory > 0 ? engine_plan_needed_bytes(plan) : 0;
}

int serve_open_model(struct serve *s, struct sampling_defaults *sampling, struct quire_error *err)
{
    struct serving_text_load *load;
    struct model_config *config;
    struct quire_error text_err;
    int status = model_describe(s->flags->options->model_dir, &config, sampling, err);
    const uint32_t vocab_size = status == QUIRE_OK ? config->vocab_size : 0;
    if (status == QUIRE_OK)
        note_files(s, config);
    if (status == QUIRE_OK)
        status = serving_identity_read(s->flags->options->model_dir, s->identity, err);
    if (status == QUIRE_OK)
        status = serving_grammars_begin(NULL, config, &s->grammars, err);
    model_config_free(config);
    if (status == QUIRE_OK)
        status = serving_text_begin(s->flags->options->model_dir, &load, err);
    if (status != QUIRE_OK)
        return status;
    s->flags->options->grammars = serving_grammars_engine(s->grammars);
    if (!s->flags->says->remote && !s->flags->says->restarts)
        status = open_engine(s, err);
    if (status == QUIRE_OK && s->engine)
        note_memory(&s->about, own_engine_info(s->engine)->plan);
    int text_status = serving_text_join(load, &s->text, &text_err);
    if (status == QUIRE_OK && text_status != QUIRE_OK) {
        if (err)
            *err = text_err;
        return text_status;
    }
    if (status == QUIRE_OK && quire_text_n_ids(s->text) > vocab_size)
        return quire_fail(err, QUIRE_INVALID, "the tokenizer has token id %u, but config.json: vocab_size is %u",
                          quire_text_n_ids(s->text) - 1, vocab_size);
    return status;
}
