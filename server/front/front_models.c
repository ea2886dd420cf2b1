/* The list of a front's models. */
#include "server/front/front_internal.h"

struct served_model *front_first_model(const struct front *f)
{
    return TAILQ_FIRST(&f->models);
}

struct served_model *front_vectors_model(const struct front *f)
{
    struct served_model *m;
    TAILQ_FOREACH(m, &f->models, link)
    {
        if (m->config->for_vectors)
            return m;
    }
    return TAILQ_FIRST(&f->models);
}

bool front_list_models(struct front *f)
{
    struct model_view views[FRONT_MAX_MODELS];
    const struct served_model *m;
    uint32_t n = 0;
    TAILQ_FOREACH(m, &f->models, link)
    {
        if (n == FRONT_MAX_MODELS)
            return false;
        views[n++] = (struct model_view){m->config, m->facts};
    }
    const struct model_list *list = model_list_new(views, n);
    if (!list)
        return false;
    model_list_release(f->list);
    f->list = list;
    return true;
}
