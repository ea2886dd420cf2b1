#include "server/gateway/file/models_file.h"

#include <string.h>

static bool is_name(const char *name, const char *asked, size_t n)
{
    return strlen(name) == n && memcmp(name, asked, n) == 0;
}

const struct gateway_model *models_file_find(const struct gateway_config *config, const char *name, size_t n)
{
    for (size_t i = 0; i < config->n_models; i++) {
        const struct gateway_model *m = &config->models[i];
        bool found = is_name(m->name, name, n);
        for (size_t j = 0; j < m->n_aliases; j++)
            found |= is_name(m->aliases[j], name, n);
        if (found)
            return m;
    }
    return NULL;
}
