#include "engine/model/experts/are_apart.h"

#include "engine/model/quantization/quantized.h"
#include "engine/model/tensors.h"

bool experts_are_apart(const struct checkpoint *checkpoint, const struct model_desc *desc,
                       const struct model_tensor *row, uint32_t layer, bool bare)
{
    char name[MODEL_NAME_BYTES];
    struct checkpoint_tensor t;
    if (!model_apart_name(desc, row, layer, 0, bare, name))
        return false;
    struct quantized_matrix m = {.checkpoint = checkpoint, .how = &desc->facts->quantization};
    quantized_take_name(name, m.name);
    return checkpoint_find_any(checkpoint, name, &t, NULL) == QUIRE_OK || quantized_has(&m);
}
