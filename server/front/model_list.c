#include "server/front/model_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct model_list *model_list_new(const struct model_view *models, uint32_t n)
{
    struct model_list *list = calloc(1, sizeof *list + n * sizeof *list->models);
    if (!list)
        return NULL;
    atomic_init(&list->n_holders, 1);
    list->n = n;
    for (uint32_t i = 0; i < n; i++)
        list->models[i] = (struct model_view){models[i].config, model_facts_hold(models[i].facts)};
    return list;
}

/* Only the count of holders changes. For all other code, a list is const. */
static struct model_list *counted(const struct model_list *list)
{
    return (struct model_list *)(uintptr_t)list;
}

const struct model_list *model_list_hold(const struct model_list *list)
{
    atomic_fetch_add_explicit(&counted(list)->n_holders, 1, memory_order_relaxed);
    return list;
}

void model_list_release(const struct model_list *list)
{
    if (!list || atomic_fetch_sub_explicit(&counted(list)->n_holders, 1, memory_order_acq_rel) > 1)
        return;
    for (uint32_t i = 0; i < list->n; i++)
        model_facts_release(list->models[i].facts);
    free(counted(list));
}

const struct model_view *model_list_find(const struct model_list *list, const struct model_config *config)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->models[i].config == config)
            return &list->models[i];
    return NULL;
}

const struct model_view *model_list_other(const struct model_list *list, const struct model_view *model,
                                          const char *name)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (&list->models[i] != model && model_has_name(list->models[i].config, name))
            return &list->models[i];
    return NULL;
}

bool model_has_name(const struct model_config *config, const char *name)
{
    for (size_t i = 0; i < config->n_names; i++)
        if (strcmp(config->names[i], name) == 0)
            return true;
    return false;
}

/* "'a', 'b' and 3 more": the served names. A client that may send requests may also read them on /v1/models. */
static void list_names(const struct model_config *config, char *out, size_t n_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < config->n_names; i++) {
        size_t need = strlen(config->names[i]) + strlen("'', '' and 18446744073709551615 more");
        if (n + need >= n_bytes) {
            snprintf(out + n, n_bytes - n, "%s%zu more", i ? " and " : "", config->n_names - i);
            return;
        }
        n += (size_t)snprintf(out + n, n_bytes - n, "%s'%s'", i ? ", " : "", config->names[i]);
    }
}

const char *model_name(const struct model_list *list, const struct model_view *model, const char *asked,
                       struct api_error *e)
{
    const struct model_config *config = model->config;
    char names[240];
    if (!asked)
        return config->names[0];
    for (size_t i = 0; i < config->n_names; i++)
        if (strcmp(config->names[i], asked) == 0)
            return config->names[i];
    if (model_list_other(list, model, asked)) {
        api_fail(e, 400, "model", "model_not_supported",
                 model->facts->vector_size > 0
                     ? "model: '%.200s' generates text and gives no vectors: ask '%.200s' for them"
                     : "model: '%.200s' gives vectors and generates no text: ask '%.200s' for that",
                 asked, config->names[0]);
        return NULL;
    }
    list_names(config, names, sizeof names);
    api_fail(e, 404, "model", "model_not_found", "the model '%.200s' does not exist; served here: %s", asked, names);
    return NULL;
}
