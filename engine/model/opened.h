/* A model's files, opened: the owner of what a description borrows. Zeroed it is closed. It must not move while a
 * description made of it is in use. Any thread, one at a time. */
#ifndef QUIRE_ENGINE_MODEL_OPENED_H
#define QUIRE_ENGINE_MODEL_OPENED_H

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/model.h"

struct opened_model {
    struct model_config *config;
    struct checkpoint_facts facts;
    struct checkpoint *checkpoint;
};

/* The whole model. */
static inline struct model_desc opened_model_desc(const struct opened_model *m)
{
    return (struct model_desc){.config = m->config, .facts = &m->facts};
}

static inline void opened_model_close(struct opened_model *m)
{
    checkpoint_close(m->checkpoint);
    model_config_free(m->config);
    m->checkpoint = NULL;
    m->config = NULL;
}

#endif
