/* Suffix decoding, compared with a suffix tree; visibility of texts; eviction. */
#include "speculation/suffix.h"
#include "tests/speculation/drafter_fixture.h"
#include "tests/speculation/suffix_oracle.h"

#define LEN 4096u

static const struct suffix_config usual = {.n_slots = 4,
                                           .max_model_len = LEN,
                                           .n_tokens = 4 * LEN,
                                           .history_bytes = 4 << 20,
                                           .max_tree_depth = 24,
                                           .max_cached_requests = 10000,
                                           .max_spec_factor = 1,
                                           .min_token_prob = 0.1f};

static struct drafter *make(const struct suffix_config *c)
{
    struct drafter *d;
    assert_int_equal(suffix_create(c, &d, NULL), QUIRE_OK);
    return d;
}

static struct key256 domain_of(uint8_t last)
{
    struct key256 k = {{0}};
    k.bytes[31] = last;
    return k;
}

/* An answer without a prompt. */
static void learn(struct drafter *d, uint32_t slot, const struct key256 *domain, uint32_t tenant,
                  const uint32_t *tokens, uint32_t n, bool is_answer)
{
    struct draft_text t = {.tokens = tokens, .n_tokens = n, .domain = domain, .tenant = tenant};
    d->ops->begin(d, slot, &t);
    d->ops->end(d, slot, &t, is_answer);
}

/* The drafts for a new sequence of these tokens. */
static uint32_t ask_new(struct drafter *d, const struct key256 *domain, const uint32_t *tokens, uint32_t n,
                        uint32_t most, uint32_t out[DRAFT_MAX])
{
    struct draft_text t = {.tokens = tokens, .n_tokens = n, .n_prompt = n, .domain = domain};
    d->ops->begin(d, 1, &t);
    n = ask_one(d, 1, &t, most, out);
    d->ops->end(d, 1, &t, false);
    return n;
}

static void proposes_what_was_answered(void **state)
{
    (void)state;
    static const uint32_t answer[] = {10, 11, 12, 13, 14, 15, 16, 17}, asked[] = {9, 10, 11, 12};
    static const uint32_t other[] = {10, 11, 12, 20};
    struct key256 a = domain_of(1), b = domain_of(2);
    uint32_t out[DRAFT_MAX];
    struct drafter *d = make(&usual);
    assert_int_equal(ask_new(d, &a, asked, 4, 8, out), 0);
    learn(d, 0, &a, 0, answer, 8, false); /* cancelled */
    assert_int_equal(ask_new(d, &a, asked, 4, 8, out), 0);
    learn(d, 0, &a, 0, answer, 8, true);
    assert_int_equal(ask_new(d, &a, asked, 4, 8, out), 3); /* three tokens agree */
    assert_memory_equal(out, ((uint32_t[]){13, 14, 15}), sizeof(uint32_t[3]));
    assert_int_equal(ask_new(d, &a, asked, 4, 2, out), 2);
    assert_int_equal(ask_new(d, &b, asked, 4, 8, out), 0);
    learn(d, 0, &b, 0, other, 4, true);
    assert_int_equal(ask_new(d, &b, asked, 4, 8, out), 1);
    assert_int_equal(out[0], 20);
    assert_int_equal(ask_new(d, &a, asked, 4, 1, out), 1);
    assert_int_equal(out[0], 13);
    for (uint32_t i = 0; i < 3; i++)
        learn(d, 0, &a, 0, other, 4, true);
    assert_int_equal(ask_new(d, &a, asked, 4, 8, out), 1); /* three of four, which ended there */
    assert_int_equal(out[0], 20);
    d->ops->destroy(d);
}

static void finds_the_first_tokens_by_the_prompt(void **state)
{
    (void)state;
    static const uint32_t text[] = {1, 2, 3, 4, 50, 51, 52}, prompt[] = {8, 9, 2, 3, 4};
    struct key256 a = domain_of(1);
    uint32_t out[DRAFT_MAX];
    struct drafter *d = make(&usual);
    struct draft_text t = {.tokens = text, .n_tokens = 7, .n_prompt = 4, .domain = &a};
    d->ops->begin(d, 0, &t);
    d->ops->end(d, 0, &t, true);
    assert_int_equal(ask_new(d, &a, prompt, 5, 8, out), 3);
    assert_memory_equal(out, ((uint32_t[]){50, 51, 52}), sizeof(uint32_t[3]));
    d->ops->destroy(d);
}

/* A text in which no token occurs more than 16 times, with pieces of itself and of an earlier text. */
static uint32_t make_text(uint64_t *random, uint32_t *tokens, uint32_t n, const uint32_t *earlier, uint32_t n_earlier)
{
    uint32_t count[512] = {0}, i = 0;
    while (i < n) {
        const uint32_t *from = i > 0 && draw(random, 2) ? tokens : earlier;
        uint32_t n_from = from == tokens ? i : n_earlier, at = n_from ? draw(random, n_from) : 0;
        uint32_t most = n_from && draw(random, 3) ? 1 + draw(random, 40) : 0;
        for (uint32_t j = 0; j < most && at + j < n_from && i < n && count[from[at + j]] < 4; j++)
            count[tokens[i++] = from[at + j]]++;
        uint32_t token = draw(random, 512);
        if (i < n && count[token] < 4)
            count[tokens[i++] = token]++;
    }
    return n;
}

/* Four answers of a domain and an own text, in each of which a token occurs at most 4 times: the oracle sees what 16
 * positions hold, so the drafts are identical. */
static void equals_a_suffix_tree(void **state)
{
    (void)state;
    static const struct {
        uint32_t depth;
        float factor, prob;
    } kinds[] = {{24, 1, 0.1f}, {5, 2.5f, 0}, {64, 0.5f, 0.4f}, {1, 4, 0.3f}};
    static uint32_t tokens[5][600];
    struct key256 a = domain_of(1);
    uint64_t random = 3;
    uint32_t n_drafts = 0;
    for (uint32_t k = 0; k < 12; k++) {
        struct suffix_config c = usual;
        struct oracle_text texts[4];
        c.max_tree_depth = kinds[k % 4].depth;
        c.max_spec_factor = kinds[k % 4].factor;
        c.min_token_prob = kinds[k % 4].prob;
        struct drafter *d = make(&c);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t n = 100 + draw(&random, 300);
            texts[i] = (struct oracle_text){tokens[i], make_text(&random, tokens[i], n, tokens[0], i ? texts[0].n : 0)};
            learn(d, i, &a, i, tokens[i], n, true);
        }
        make_text(&random, tokens[4], 600, tokens[1], texts[1].n);
        struct draft_text t = {.tokens = tokens[4], .n_tokens = 20, .n_prompt = 20, .domain = &a};
        d->ops->begin(d, 2, &t);
        while (t.n_tokens < 600) {
            uint32_t most = 1 + draw(&random, 20), out[DRAFT_MAX], n = ask_one(d, 2, &t, most, out);
            struct oracle_text own = {t.tokens, t.n_tokens};
            struct oracle_guess best = {.n = 0};
            oracle_guess(&c, &own, 1, t.tokens, t.n_tokens, most, 0, &best);
            oracle_guess(&c, texts, 4, t.tokens, t.n_tokens, most, 1, &best);
            assert_int_equal(n, best.n);
            assert_memory_equal(out, best.tokens, n * sizeof *out);
            n_drafts += n;
            t.n_tokens += 1 + draw(&random, 5);
        }
        d->ops->destroy(d);
    }
    assert_true(n_drafts > 1000);
}

/* ---- prose ---- */

/* Tokens per step, with pages as learned answers and another page as the current answer. */
static void nearly_equals_it_on_prose(void **state)
{
    (void)state;
    static const char *const pages[] = {"api", "operating", "scheduling"};
    static uint32_t tokens[4][4000];
    struct oracle_text texts[3];
    struct key256 a = domain_of(1);
    struct drafter *d = make(&usual);
    for (uint32_t i = 0; i < 3; i++) {
        texts[i] = (struct oracle_text){tokens[i], read_page(pages[i], tokens[i], 4000)};
        learn(d, i, &a, 0, tokens[i], texts[i].n, true);
    }
    uint32_t n = read_page("server", tokens[3], 1500), n_steps[2] = {0, 0};
    for (uint32_t kind = 0; kind < 2; kind++) {
        struct draft_text t = {.tokens = tokens[3], .n_tokens = 1, .n_prompt = 1, .domain = &a};
        d->ops->begin(d, 0, &t);
        while (t.n_tokens < n) {
            struct oracle_guess best = {.n = 0};
            if (kind == 0) {
                struct oracle_text own = {t.tokens, t.n_tokens};
                oracle_guess(&usual, &own, 1, t.tokens, t.n_tokens, 8, 0, &best);
                oracle_guess(&usual, texts, 3, t.tokens, t.n_tokens, 8, 1, &best);
            } else {
                best.n = ask_one(d, 0, &t, 8, best.tokens);
            }
            for (uint32_t i = 0; i < best.n && t.n_tokens < n && t.tokens[t.n_tokens] == best.tokens[i]; i++)
                t.n_tokens++;
            t.n_tokens++;
            n_steps[kind]++;
        }
        d->ops->end(d, 0, &t, false);
    }
    print_message("%u tokens: %u steps, the tree %u\n", n, n_steps[1], n_steps[0]);
    assert_true(n_steps[1] <= n_steps[0] + n_steps[0] / 25);
    d->ops->destroy(d);
}

/* ---- memory ---- */

/* Returns whether an answer that begins with this token is stored. */
static bool knows(struct drafter *d, const struct key256 *domain, uint32_t token)
{
    uint32_t out[DRAFT_MAX], tokens[8];
    for (uint32_t i = 0; i < 8; i++)
        tokens[i] = token + i;
    return ask_new(d, domain, tokens, 8, 1, out) == 1 && out[0] == token + 8;
}

/* 640 tokens that occur nowhere else. */
static void learn_own(struct drafter *d, const struct key256 *domain, uint32_t tenant, uint32_t token)
{
    uint32_t tokens[640];
    for (uint32_t i = 0; i < 640; i++)
        tokens[i] = token + i;
    learn(d, 0, domain, tenant, tokens, 640, true);
}

/* A tenant with ever new domains, for example by cache_salt, evicts its own answers and not another's. */
static void those_who_hold_most_give_way(void **state)
{
    (void)state;
    struct suffix_config c = usual;
    struct key256 quiet = domain_of(1);
    c.history_bytes = 1 << 20; /* 300 blocks, 30 such answers */
    struct drafter *d = make(&c);
    for (uint32_t i = 0; i < 10; i++)
        learn_own(d, &quiet, 7, 1000000 + 1000 * i);
    for (uint32_t i = 0; i < 200; i++) {
        struct key256 salted = domain_of((uint8_t)i);
        salted.bytes[3] = 9;
        learn_own(d, &salted, 8, 1000 * i);
        assert_true(knows(d, &salted, 1000 * i));
    }
    for (uint32_t i = 0; i < 10; i++)
        assert_true(knows(d, &quiet, 1000000 + 1000 * i));
    struct key256 gone = domain_of(0);
    gone.bytes[3] = 9;
    assert_false(knows(d, &gone, 0));
    for (uint32_t i = 10; i < 40; i++) /* its own are next, the oldest first */
        learn_own(d, &quiet, 7, 1000000 + 1000 * i);
    assert_false(knows(d, &quiet, 1000000));
    assert_true(knows(d, &quiet, 1000000 + 1000 * 39));
    d->ops->destroy(d);
}

/* As many domains as hash chains, so that some share one; the keys differ in their last byte. The same prompt continues
 * differently in each. */
static void domains_are_apart(void **state)
{
    (void)state;
    struct suffix_config c = usual;
    c.history_bytes = 56000; /* 16 blocks */
    for (uint32_t round = 0; round < 8; round++) {
        struct drafter *d = make(&c);
        for (uint32_t i = 0; i < 14; i++) {
            struct key256 domain = domain_of((uint8_t)i);
            uint32_t out[DRAFT_MAX], tokens[] = {1, 2, 3, 1000 + i};
            assert_int_equal(ask_new(d, &domain, tokens, 3, 8, out), 0);
            learn(d, 0, &domain, i, tokens, 4, true);
        }
        for (uint32_t i = 0; i < 14; i++) {
            struct key256 domain = domain_of((uint8_t)i);
            uint32_t out[DRAFT_MAX], tokens[] = {1, 2, 3};
            assert_int_equal(ask_new(d, &domain, tokens, 3, 8, out), 1);
            assert_int_equal(out[0], 1000 + i);
        }
        d->ops->destroy(d);
    }
}

static void answers_are_counted(void **state)
{
    (void)state;
    struct suffix_config c = usual;
    struct key256 a = domain_of(1), b = domain_of(2);
    c.max_cached_requests = 10;
    struct drafter *d = make(&c);
    for (uint32_t i = 0; i < 4; i++)
        learn_own(d, &a, 1, 1000 * i);
    for (uint32_t i = 4; i < 100; i++) { /* many short ones of another tenant */
        uint32_t tokens[9];
        for (uint32_t j = 0; j < 9; j++)
            tokens[j] = 1000 * i + j;
        learn(d, 0, &b, 2, tokens, 9, true);
    }
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(knows(d, i < 4 ? &a : &b, 1000 * i), i < 4 || i >= 94);
    d->ops->destroy(d);
    c.max_cached_requests = 0;
    d = make(&c);
    learn_own(d, &a, 1, 1000);
    assert_false(knows(d, &a, 1000));
    d->ops->destroy(d);
}

static void long_prompts_by_and_by(void **state)
{
    (void)state;
    struct suffix_config c = usual;
    c.max_model_len = 1 << 16;
    c.n_tokens = 1 << 16;
    takes_in_a_long_prompt(make(&c));
}

static void says_what_it_takes(void **state)
{
    (void)state;
    struct suffix_config c = usual;
    struct drafter *d;
    uint64_t own, all;
    c.n_tokens = 1 << 20;
    c.n_slots = 256;
    c.max_model_len = 131072;
    c.max_cached_requests = 0;
    own = suffix_bytes(&c);
    assert_in_range(own, 53ull << 20, 54ull << 20);
    c.max_cached_requests = 1;
    c.history_bytes = 64 << 20;
    all = suffix_bytes(&c);
    assert_in_range(all - own, (64u << 20) - 8192, 64u << 20);
    c.max_tree_depth = SUFFIX_MAX_DEPTH + 1;
    assert_int_equal(suffix_create(&c, &d, NULL), QUIRE_INVALID);
    c = usual;
    c.min_token_prob = 1.5f;
    assert_int_equal(suffix_create(&c, &d, NULL), QUIRE_INVALID);
    c = usual;
    c.max_spec_factor = -1;
    assert_int_equal(suffix_create(&c, &d, NULL), QUIRE_INVALID);
}

/* Own texts larger than their memory: the stored part gives drafts, the rest does not. */
static void own_text_has_a_bound(void **state)
{
    (void)state;
    struct suffix_config c = usual;
    static uint32_t tokens[LEN];
    uint32_t out[DRAFT_MAX];
    c.n_tokens = 1000;
    struct drafter *d = make(&c);
    for (uint32_t i = 0; i < LEN; i++)
        tokens[i] = i;
    tokens[LEN - 1] = 20;
    tokens[LEN - 2] = 19;
    struct draft_text t = text_of(tokens, LEN, LEN);
    d->ops->begin(d, 3, &t);
    assert_int_equal(ask_one(d, 3, &t, 4, out), 2);
    assert_int_equal(out[1], 22);
    d->ops->begin(d, 1, &t);
    assert_int_equal(ask_one(d, 1, &t, 4, out), 0);
    d->ops->end(d, 3, &t, false);
    assert_int_equal(ask_one(d, 1, &t, 4, out), 2);
    d->ops->destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposes_what_was_answered),   cmocka_unit_test(finds_the_first_tokens_by_the_prompt),
        cmocka_unit_test(equals_a_suffix_tree),         cmocka_unit_test(nearly_equals_it_on_prose),
        cmocka_unit_test(those_who_hold_most_give_way), cmocka_unit_test(domains_are_apart),
        cmocka_unit_test(answers_are_counted),          cmocka_unit_test(long_prompts_by_and_by),
        cmocka_unit_test(says_what_it_takes),           cmocka_unit_test(own_text_has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
