/* The models that a GGUF file may hold: what its architecture and a few of its keys make of a config.json. A new one is a
 * row of gguf_family.c's table, and its tensors' names in engine/checkpoint/checkpoint_gguf.c. Constant data and pure
 * functions; any thread.
 */
#ifndef QUIRE_FILES_GGUF_FAMILY_H
#define QUIRE_FILES_GGUF_FAMILY_H

#include "base/status.h"
#include "files/gguf.h"

#include <stdbool.h>
#include <stdint.h>

/* One architecture of GGUF is several of transformers; the first whose condition holds is it. */
enum gguf_condition { GGUF_ALWAYS, GGUF_IF_EXPERTS, GGUF_IF_SHARED_EXPERT, GGUF_IF_WINDOW };

/* Keys that a family reads, and other families refuse where they would change the arithmetic. */
enum gguf_reads {
    GGUF_READS_EXPERTS = 1,
    GGUF_READS_EXPERT_SIZES = 2, /* the inner size of an expert has its own key; some layers may lack experts */
    GGUF_READS_SHARED_EXPERT = 4,
    GGUF_READS_WINDOW = 8, /* every layer's */
    GGUF_READS_PATTERN = 16, /* a window of some layers */
    GGUF_READS_SOFTCAP = 32, /* of scores */
    GGUF_READS_LOGIT_SOFTCAP = 64,
    GGUF_READS_SCALES = 128, /* Granite's four */
    GGUF_READS_QUERY_SCALE = 256, /* attention.scale */
    GGUF_READS_LOCAL_ROPE = 512, /* layers with a window have a RoPE of their own */
    GGUF_READS_LONG_ROPE = 1024, /* factors of long texts, as tensors */
    GGUF_READS_WHOLE_YARN = 2048, /* the bounds of YaRN's ramp are not rounded, which no key says */
};

struct gguf_family {
    const char *arch; /* general.architecture */
    const char *transformers, *model_type; /* config.json's names */
    enum gguf_condition when;
    uint32_t reads; /* enum gguf_reads */
    bool normalizes; /* a token's weights of its experts add up to 1 */
    const char *shared_key; /* GGUF_READS_SHARED_EXPERT: config.json's name of its inner size */
    uint32_t window, pattern; /* defaults of the window, and of how many layers one is without it */
    uint32_t wide_layers; /* GGUF_READS_QUERY_SCALE: a model of so many layers scales by hidden_size / heads instead */
    double softcap, logit_softcap; /* defaults */
};

struct gguf_maker;

/* QUIRE_UNSUPPORTED names the architecture, and those that are supported. */
int gguf_family_find(const struct gguf *g, const struct gguf_family **out, struct quire_error *err);
/* Sets the fields of config.json that only some families have. */
void gguf_family_config(struct gguf_maker *m);
/* Refuses keys that would make another model of it: gguf_refuse.c. */
void gguf_refuse_others(struct gguf_maker *m);

#endif
