/* The blocks, domains and accounts of suffix decoding's memory stay consistent under insertions and evictions. */
#include "speculation/suffix_store.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define N_SLOTS 4u
#define LEN 3000u

static uint64_t random_state = 1;
static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) * below >> 31);
}

static uint32_t chain_length(const struct suffix_store *s, uint32_t first)
{
    uint32_t n = 0;
    for (uint32_t i = first; i != NONE; i = s->blocks[i].next)
        n++;
    return n;
}

/* Every block is free, or belongs to a running sequence or one answer; every domain is free or has blocks. */
static void check(const struct suffix_store *s, const struct suffix_text *texts, uint32_t max_answers)
{
    uint32_t n_own = chain_length(s, s->free_own), n_free = chain_length(s, s->free_history);
    uint32_t n_used = 0, n_answers = 0, n_domains = 0, n_of_domains = 0;
    for (uint32_t i = 0; i < N_SLOTS; i++)
        n_own += chain_length(s, texts[i].first);
    for (uint32_t i = 0; i < SUFFIX_TENANTS; i++) {
        uint32_t n = 0;
        for (uint32_t a = s->accounts[i].oldest; n < s->accounts[i].n_answers; a = s->blocks[a].newer, n++)
            n_used += chain_length(s, a);
        n_answers += n;
    }
    for (uint32_t i = 0; i < s->n_history_blocks; i++)
        for (uint32_t d = s->domain_heads[i]; d != NONE; d = s->domains[d].next, n_domains++) {
            assert_true(s->domains[d].n_blocks > 0);
            n_of_domains += s->domains[d].n_blocks;
        }
    for (uint32_t d = s->free_domain; d != NONE; d = s->domains[d].next)
        n_domains++;
    assert_int_equal(n_own, s->n_own_blocks);
    assert_int_equal(n_free, s->n_free_history);
    assert_int_equal(n_free + n_used, s->n_history_blocks);
    assert_int_equal(n_of_domains, n_used);
    assert_int_equal(n_domains, s->n_history_blocks);
    assert_int_equal(n_answers, s->n_answers);
    assert_true(n_answers <= max_answers);
}

static void nothing_is_lost(void **state)
{
    (void)state;
    static uint32_t tokens[LEN];
    for (uint32_t i = 0; i < LEN; i++)
        tokens[i] = draw(3);
    for (uint32_t round = 0; round < 10; round++) {
        struct suffix_store s;
        struct suffix_text texts[N_SLOTS];
        uint32_t max_answers = 1 + draw(50);
        assert_int_equal(suffix_store_create(&s, N_SLOTS, 2000, 20000 + draw(300000), NULL), QUIRE_OK);
        for (uint32_t i = 0; i < N_SLOTS; i++)
            texts[i] = (struct suffix_text){.owner = i, .first = NONE, .last = NONE};
        for (uint32_t op = 0; op < 4000; op++) {
            uint32_t what = draw(4), slot = draw(N_SLOTS), n = texts[slot].n_tokens + draw(300);
            struct key256 domain = {{0}};
            domain.bytes[31] = (uint8_t)draw(40);
            if (what == 0)
                suffix_store_append(&s, &texts[slot], tokens, n < LEN ? n : LEN);
            else if (what == 1)
                suffix_store_release(&s, &texts[slot]);
            else
                suffix_store_learn(&s, &domain, 300 * draw(5), max_answers, tokens, draw(700));
            if (op % 100 == 0)
                check(&s, texts, max_answers);
        }
        suffix_store_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
