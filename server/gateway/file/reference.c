#include "server/gateway/file/reference.h"

int reference_read(const struct fields *f, const struct yaml_node *node, const char *field,
                   const struct gateway_config *config, uint32_t *out)
{
    const char *name;
    const int status = fields_text_of(f, node, field, &name);
    if (status != QUIRE_OK)
        return status;
    const struct gateway_model *model = models_file_find(config, name, node->n);
    if (!model)
        return fields_wrong(f, node, field, "\"%.*s\" is not a model of this file", yaml_shown(name), name);
    *out = (uint32_t)(model - config->models);
    return QUIRE_OK;
}
