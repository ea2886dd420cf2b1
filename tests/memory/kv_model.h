/* A naive model of the KV cache. It scans and shifts arrays, and uses no lists and no hash tables. It predicts every
 * block id, host block id and move by the rules of memory/kv_cache.h and memory/block_pool.h. A test can make one rule
 * wrong on purpose. */
#ifndef QUIRE_TESTS_MEMORY_KV_MODEL_H
#define QUIRE_TESTS_MEMORY_KV_MODEL_H

#include "memory/kv_cache.h"

#define MODEL_BLOCKS 64
#define MODEL_ENTRIES 48
#define MODEL_TENANTS 3
#define MODEL_MOVES (2 * MODEL_BLOCKS * KV_MAX_GROUPS)

enum wrong_rule {
    WRONG_NOTHING = 0,
    WRONG_FREE_ORDER, /* a sequence's head is released before its tail */
    WRONG_WINDOW,     /* a window is one position too short */
    WRONG_SINKS,      /* the block that holds only the last sink is released */
    WRONG_HIT,        /* a hit does not take a reference */
    WRONG_NAME,       /* a name moves to the block that was named last */
    WRONG_BLANK,      /* blank blocks queue up behind cached ones */
    WRONG_SHARE,      /* sharing takes references behind the window too */
    WRONG_DUE,        /* a use delays eviction by a quarter of the pool */
    WRONG_USES,       /* a hit counts when it is matched */
    WRONG_HISTORY,    /* lost names are not remembered */
    WRONG_TIE,        /* on a tie the block with more uses is evicted */
    WRONG_HOST_ORDER, /* the host tier evicts its newest block */
    WRONG_HELD,       /* blocks evicted by a load may displace blocks that it will load */
    WRONG_TAKE_BACK,  /* a host copy stays when its name is computed again */
    WRONG_OWNER,      /* a loaded block belongs to the tenant that loads it */
    WRONG_SPACE,       /* there is space for one move per block */
    WRONG_DROP,       /* the host tier is not dropped */
    WRONG_ORDER,      /* the test makes the copies in reverse order */
    N_WRONG
};

struct model_label {
    int name; /* -1: unnamed */
    uint32_t owner, uses;
};

struct model_group {
    uint32_t refs[MODEL_BLOCKS];
    struct model_label labels[MODEL_BLOCKS];
    uint64_t due[MODEL_BLOCKS], clock;
    uint32_t free_list[MODEL_BLOCKS], n_free; /* blank blocks first, cached blocks in order of release */
    struct model_label host[MODEL_BLOCKS];
    uint32_t queue[MODEL_BLOCKS], n_queued;   /* host blocks, oldest first */
    uint32_t spare[MODEL_BLOCKS], n_spare;    /* the last is used next */
    struct model_label history[MODEL_BLOCKS]; /* oldest first */
    uint32_t n_history;
    uint64_t n_lost, n_spilled, n_loaded;
};

struct model_table {
    bool used;
    uint32_t entries[KV_MAX_GROUPS][MODEL_ENTRIES], n[KV_MAX_GROUPS];
    uint32_t owner, n_hit;
};

struct model {
    struct kv_config config;
    enum wrong_rule wrong;
    struct model_group groups[KV_MAX_GROUPS];
    struct kv_move moves[MODEL_MOVES];
    uint32_t n_moves, capacity;
    uint64_t n_evicted[MODEL_TENANTS];
};

/* Names are numbers; block i of a chain is named chain + i. */
void model_open(struct model *m, const struct kv_config *config, enum wrong_rule wrong);
uint32_t model_match(struct model *m, struct model_table *t, int chain, uint32_t n_hashes, uint32_t max_tokens);
uint32_t model_loadable(const struct model *m, const struct model_table *t, int chain, uint32_t n_hashes,
                        uint32_t max_tokens);
int model_load(struct model *m, struct model_table *t, int chain, uint32_t n_tokens);
int model_reserve(struct model *m, struct model_table *t, uint32_t n_computed, uint32_t n_tokens);
void model_publish(struct model *m, struct model_table *t, uint32_t index, int name);
int model_share(struct model *m, const struct model_table *from, uint32_t n_blocks, struct model_table *to);
void model_clear(struct model *m, struct model_table *t);
void model_drop_cached(struct model *m);

#endif
