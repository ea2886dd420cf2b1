/* Writes a random Llama-architecture checkpoint (f32, untied) into a fresh temporary directory. */
#ifndef QUIRE_TESTS_ENGINE_TINY_MODEL_H
#define QUIRE_TESTS_ENGINE_TINY_MODEL_H

#include <stdint.h>

#define TINY_VOCAB 200u
#define TINY_EOS 1u

struct tiny_spec {
    uint64_t seed;
    int64_t nan_token;   /* its embedding is NaN; -1 = none */
    const char *prefix;  /* prefix of tensor names: "model." or "" */
    const char *break_shape; /* this tensor gets a wrong shape; NULL = none */
    const char *omit;    /* this tensor is left out; NULL = none */
    uint32_t n_vocab;    /* 0 = TINY_VOCAB */
    const char *tokenizer; /* the text of its tokenizer.json; NULL: no tokenizer */
};

struct tiny_model {
    char dir[64];
};

void tiny_model_write(const struct tiny_spec *spec, struct tiny_model *out);
/* Without anything unusual. */
void tiny_model_plain(uint64_t seed, struct tiny_model *out);
void tiny_model_remove(const struct tiny_model *m);

#endif
