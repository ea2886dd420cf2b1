/* Grammars and matchers through their C header: ownership, errors, threads, the layout of a mask. grammar_test.rs
 * tests the content of a mask. */
#include "text/quire_grammar.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define DATA QUIRE_SOURCE_DIR "/tests/text/data/"
#define END 421u /* <|im_end|> */
#define N_VOCAB 450
#define N_WORDS 15

static const char LARK[] = "start: \"{\\\"id\\\":\" /[0-9]{1,3}/ \"}\"";

static struct quire_grammars *open_grammars(void)
{
    struct quire_text *text;
    struct quire_grammars *grammars;
    struct quire_error err = {.text = "no message"};
    assert_int_equal(quire_text_open(DATA "bytelevel", &text, &err), QUIRE_OK);
    const uint32_t eos[] = {END, 0};
    struct quire_grammars_options options = {.n_vocab = N_VOCAB, .eos = eos, .n_eos = 2};
    assert_int_equal(quire_grammars_open(text, &options, &grammars, &err), QUIRE_OK);
    options.n_eos = 0;
    struct quire_grammars *none;
    assert_int_equal(quire_grammars_open(text, &options, &none, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "grammars: eos: at least one id expected");
    quire_text_close(text);
    return grammars;
}

static struct quire_matcher *open_matcher(struct quire_grammars *grammars)
{
    struct quire_grammar *grammar;
    struct quire_matcher *matcher;
    struct quire_error err = {.text = "no message"};
    if (quire_grammar_compile(grammars, LARK, strlen(LARK), NULL, &grammar, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    assert_true(quire_grammar_bytes(grammar) > sizeof LARK && quire_grammar_compile_ns(grammar) > 0);
    assert_int_equal(quire_matcher_open(grammar, &matcher, &err), QUIRE_OK);
    quire_grammar_release(grammar);
    return matcher;
}

/* The only id of a mask, or -1. */
static int64_t only(const uint32_t words[N_WORDS])
{
    int64_t found = -1;
    for (uint32_t id = 0; id < N_WORDS * 32; id++) {
        if (!(words[id / 32] >> id % 32 & 1))
            continue;
        if (found >= 0)
            return -1;
        found = id;
    }
    return found;
}

static void walk(void **state)
{
    (void)state;
    struct quire_grammars *grammars = open_grammars();
    struct quire_matcher *matcher = open_matcher(grammars), *clone;
    struct quire_error err;
    assert_int_equal(quire_grammars_words(grammars), N_WORDS);
    quire_grammars_release(grammars); /* the matcher keeps what it needs */

    uint32_t words[N_WORDS], forced[64], id;
    size_t n, n_ok;
    bool may, over;
    assert_int_equal(quire_matcher_forced(matcher, forced, 64, &n, &err), QUIRE_OK);
    assert_true(n > 1);
    assert_int_equal(quire_matcher_mask(matcher, words, &err), QUIRE_OK);
    assert_int_equal(only(words), forced[0]);
    assert_int_equal(quire_matcher_accept(matcher, END, &err), QUIRE_INVALID);
    assert_string_equal(err.text, "grammar: token 421 is not allowed after 0 tokens");
    assert_int_equal(quire_matcher_check(matcher, forced, n, &n_ok, &err), QUIRE_OK);
    assert_int_equal(n_ok, n);
    assert_int_equal(quire_matcher_n_accepted(matcher), 0);
    assert_int_equal(quire_matcher_accept_many(matcher, forced, n, &n_ok, &err), QUIRE_OK);
    assert_int_equal(quire_matcher_n_accepted(matcher), n);
    assert_int_equal(quire_matcher_mask(matcher, words, &err), QUIRE_OK);
    assert_int_equal(only(words), -1);

    assert_int_equal(quire_matcher_clone(matcher, &clone, &err), QUIRE_OK);
    for (size_t i = 0; i < 40; i++) {
        assert_int_equal(quire_matcher_is_over(clone, &over, &err), QUIRE_OK);
        if (over)
            break;
        assert_int_equal(quire_matcher_mask(clone, words, &err), QUIRE_OK);
        for (id = N_VOCAB; id-- > 0;)
            if (words[id / 32] >> id % 32 & 1)
                break;
        assert_int_equal(quire_matcher_accept(clone, id, &err), QUIRE_OK);
    }
    assert_true(over);
    assert_int_equal(quire_matcher_may_stop(clone, &may, &err), QUIRE_OK);
    assert_true(may);
    assert_int_equal(quire_matcher_accept(clone, 0, &err), QUIRE_OK);
    assert_int_equal(quire_matcher_may_stop(clone, &may, &err), QUIRE_OK);
    assert_false(may);
    assert_int_equal(quire_matcher_rollback(clone, 1000, &err), QUIRE_INVALID);
    assert_int_equal(quire_matcher_rollback(clone, 1, &err), QUIRE_OK);
    assert_int_equal(quire_matcher_accept(clone, END, &err), QUIRE_OK);
    quire_matcher_close(clone);

    assert_int_equal(quire_matcher_n_accepted(matcher), n);
    assert_int_equal(quire_matcher_rollback(matcher, n, &err), QUIRE_OK);
    assert_int_equal(quire_matcher_mask(matcher, words, &err), QUIRE_OK);
    assert_int_equal(only(words), forced[0]);
    quire_matcher_close(matcher);
    quire_matcher_close(NULL);
}

static void errors_and_counters(void **state)
{
    (void)state;
    struct quire_grammars *grammars = open_grammars();
    struct quire_grammar *grammar, *again;
    struct quire_error err;
    static const char WRONG[] = "start: \"a\" (\n";
    assert_int_equal(quire_grammar_compile(grammars, WRONG, strlen(WRONG), NULL, &grammar, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "grammar: 1(13): Expected token ')'"));
    atomic_bool cancel = true;
    const struct quire_grammar_caller caller = {.cancel = &cancel};
    assert_int_equal(quire_grammar_compile(grammars, LARK, strlen(LARK), &caller, &grammar, &err), QUIRE_UNAVAILABLE);
    cancel = false;
    assert_int_equal(quire_grammar_compile(grammars, LARK, strlen(LARK), &caller, &grammar, &err), QUIRE_OK);
    assert_int_equal(quire_grammar_compile(grammars, LARK, strlen(LARK), NULL, &again, &err), QUIRE_OK);
    assert_ptr_equal(grammar, again);
    uint8_t digest[32];
    quire_grammar_digest(grammar, digest);
    assert_int_not_equal(digest[0] | digest[1] | digest[2], 0);
    struct quire_grammars_stats stats;
    quire_grammars_stats(grammars, &stats);
    assert_int_equal(stats.hits, 1);
    assert_int_equal(stats.misses, 3);
    assert_int_equal(stats.failures, 2);
    assert_int_equal(stats.entries, 1);
    assert_int_equal(stats.bytes, quire_grammar_bytes(grammar));
    quire_grammar_release(grammar);
    quire_grammar_release(again);
    quire_grammars_release(quire_grammars_retain(grammars));
    quire_grammars_release(grammars);
    quire_grammars_release(NULL);
    quire_grammar_release(NULL);
}

static void *run(void *grammars)
{
    struct quire_matcher *matcher = open_matcher(grammars);
    struct quire_error err;
    uint32_t words[N_WORDS];
    size_t n = 0;
    for (bool over = false; !over && n < 100; n++) {
        uint32_t id = 0;
        if (quire_matcher_mask(matcher, words, &err) != QUIRE_OK)
            return NULL;
        while (!(words[id / 32] >> id % 32 & 1))
            id++;
        if (quire_matcher_accept(matcher, id, &err) != QUIRE_OK ||
            quire_matcher_is_over(matcher, &over, &err) != QUIRE_OK)
            return NULL;
    }
    quire_matcher_close(matcher);
    return (char *)grammars + n;
}

/* Small stacks, and all at once. */
static void many_threads(void **state)
{
    (void)state;
    struct quire_grammars *grammars = open_grammars();
    pthread_t threads[8];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], &attributes, run, grammars), 0);
    pthread_attr_destroy(&attributes);
    void *first, *other;
    pthread_join(threads[0], &first);
    assert_non_null(first);
    for (size_t i = 1; i < 8; i++) {
        pthread_join(threads[i], &other);
        assert_ptr_equal(other, first);
    }
    struct quire_grammars_stats stats;
    quire_grammars_stats(grammars, &stats);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(stats.hits, 7);
    quire_grammars_release(grammars);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walk),
        cmocka_unit_test(errors_and_counters),
        cmocka_unit_test(many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
