#include "tools/bench/steps/scenes.h"

#include <stdlib.h>

#define DECODE_STEPS 4 /* the first is not counted (tools/bench/steps/steps.h) */
#define VERIFY_STEPS 2 /* the last is not counted, because no step follows it */
/* 3 for each of 22 prompt lengths and of 32 batches, 4 for each of 6 with prompts, 10 for each of 4 with drafts. */
#define MAX_SCENES 512

struct list {
    struct bench_scene *items;
    size_t n;
};

uint32_t bench_scene_context(const struct bench_scene_bounds *bounds, uint32_t i)
{
    uint32_t share = bounds->n_cached / (i + 1);
    uint32_t context = share < bounds->max_context ? share : bounds->max_context;
    return context - context % bounds->block_tokens;
}

uint32_t bench_scene_n_prefixes(const struct bench_scene_bounds *bounds)
{
    uint32_t n = 0;
    while (n < bounds->max_seqs && bench_scene_context(bounds, n) > 0)
        n++;
    return n;
}

static uint32_t whole_blocks(const struct bench_scene_bounds *bounds, uint32_t n_tokens)
{
    return n_tokens - n_tokens % bounds->block_tokens;
}

static void add(struct list *list, struct bench_scene scene)
{
    if (list->n < MAX_SCENES)
        list->items[list->n++] = scene;
}

/* 2, 3, 4, 6, 8, 12, ... */
static uint32_t next_size(uint32_t n)
{
    return n & (n - 1) ? n / 3 * 4 : n + (n / 2 ? n / 2 : 1);
}

static void add_prompts(const struct bench_scene_bounds *bounds, struct list *list)
{
    uint32_t most = bounds->most_tokens, longest = bench_scene_context(bounds, 0);
    for (uint32_t n = 2; n <= most; n = next_size(n))
        add(list, (struct bench_scene){.n_prompts = 1, .prompt_len = n, .n_steps = 1});
    for (uint32_t context = longest; context >= bounds->block_tokens; context = whole_blocks(bounds, context / 8))
        for (uint32_t n = most; n >= 2; n /= 4)
            add(list, (struct bench_scene){.n_prompts = 1, .prompt_context = context, .prompt_len = n, .n_steps = 1});
    for (uint32_t n = 2; n <= bounds->max_seqs && most / n >= 2; n *= 4) {
        struct bench_scene scene = {.n_prompts = n, .prompt_len = most / n, .n_steps = 1};
        add(list, scene);
        scene.prompt_context = bench_scene_context(bounds, n - 1);
        if (scene.prompt_context > 0)
            add(list, scene);
    }
}

static void add_decoding(const struct bench_scene_bounds *bounds, struct list *list)
{
    for (uint32_t n = 1; n <= bounds->max_seqs; n = next_size(n)) {
        uint32_t context = bench_scene_context(bounds, n - 1), middle = whole_blocks(bounds, context / 4);
        struct bench_scene scene = {.n_decode = n, .decode_context = context, .n_steps = DECODE_STEPS};
        add(list, scene);
        scene.decode_context = middle;
        if (middle > 0)
            add(list, scene);
        scene.decode_context = bounds->block_tokens;
        if (middle > bounds->block_tokens && (n & (n - 1)) == 0)
            add(list, scene);
    }
}

/* At the contexts at which these batches also decode without drafts; those with most drafts first
 * (tools/bench/steps/steps.h). */
static void add_verifying(const struct bench_scene_bounds *bounds, struct list *list)
{
    for (uint32_t n = 1; n <= bounds->max_seqs && n <= 64; n *= 4) {
        uint32_t context = bench_scene_context(bounds, n - 1), middle = whole_blocks(bounds, context / 4);
        for (uint32_t k = BENCH_MAX_DRAFTS; k > 0; k /= 2) {
            struct bench_scene scene = {
                .n_decode = n, .decode_context = context, .n_drafts = k, .n_steps = VERIFY_STEPS};
            bool answer_fits = VERIFY_STEPS * (1 + k) + 2 <= bounds->max_context;
            if (n * (1 + k) > bounds->most_logits || !answer_fits)
                continue;
            add(list, scene);
            scene.decode_context = middle;
            if (middle > 0)
                add(list, scene);
        }
    }
}

/* Prompts without a context and with a long one alternate. */
static void add_mixed(const struct bench_scene_bounds *bounds, struct list *list)
{
    for (uint32_t n = 1; n < bounds->max_seqs; n *= 3) {
        uint32_t context = bench_scene_context(bounds, n), turn = 0;
        for (uint32_t len = bounds->most_tokens; len >= 2; len /= 4, turn++)
            add(list, (struct bench_scene){.n_decode = n,
                                           .decode_context = turn & 2 ? whole_blocks(bounds, context / 4) : context,
                                           .n_prompts = 1,
                                           .prompt_context = turn & 1 ? context : 0,
                                           .prompt_len = len,
                                           .n_steps = 1});
    }
}

int bench_scenes_make(const struct bench_scene_bounds *bounds, struct bench_scene **out, size_t *n,
                      struct quire_error *err)
{
    struct list list = {.items = calloc(MAX_SCENES, sizeof *list.items)};
    *out = list.items;
    *n = 0;
    if (!list.items)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    add_prompts(bounds, &list);
    add_decoding(bounds, &list);
    add_verifying(bounds, &list);
    add_mixed(bounds, &list);
    *n = list.n;
    return QUIRE_OK;
}
