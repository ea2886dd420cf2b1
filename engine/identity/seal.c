#include "engine/identity.h"

#include <stdio.h>
#include <string.h>

void engine_identity_seal(struct engine_identity *identity)
{
    char weights[65], model[65];
    quire_key256_hex(&identity->weights, weights);
    quire_key256_hex(&identity->model, model);
    snprintf(identity->text, sizeof identity->text,
             "law=%u\nweights=%s\nmodel=%s\nweight_format=%s\nform=%s\nactivation=%s\nkv_format=%s\ninvariance=%s\n"
             "adapters=%s\n",
             identity->numerics, weights, model, identity->weight_format, identity->form, identity->activation,
             identity->kv_format, identity->invariance, identity->adapters);
    identity->digest = quire_sha256(identity->text, strlen(identity->text));
}
