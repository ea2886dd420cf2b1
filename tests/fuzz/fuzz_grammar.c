/* Grammars of requests: every form becomes the same normal text each time, and what compiles allows a token or the end.
 *
 * input: a byte for the form and a budget, one for white space and reasoning, then the client's text
 */
#include "fuzz.h"

#include "text/quire_grammar.h"
#include "text/quire_grammar_normal.h"

#include <stdlib.h>
#include <string.h>

#define MODEL QUIRE_SOURCE_DIR "/tools/demo_model/model"

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* Small limits: most inputs are hopeless, and the next one is worth more than the end of this one. */
static struct quire_grammars *open_grammars(void)
{
    static struct quire_grammars *grammars;
    struct quire_text *text;
    struct quire_error err;
    if (grammars)
        return grammars;
    must(quire_text_open(MODEL, &text, &err) == QUIRE_OK);
    const uint32_t eos = quire_text_n_ids(text) - 1;
    const struct quire_grammars_options o = {
        .n_vocab = quire_text_n_ids(text),
        .eos = &eos,
        .n_eos = 1,
        .cache_entries = 1,
        .limits = {
            .text_bytes = 20000, .compile_fuel = 20000, .symbols = 5000, .lexer_states = 1000, .step_items = 1000}};
    must(quire_grammars_open(text, &o, &grammars, &err) == QUIRE_OK);
    quire_text_close(text);
    return grammars;
}

/* Some token may come next, or the text is complete. */
static void walk(struct quire_grammar *grammar, size_t n_words)
{
    struct quire_matcher *m;
    struct quire_error err;
    uint32_t *words = calloc(n_words, sizeof *words);
    int status = quire_matcher_open(grammar, &m, &err);
    for (int step = 0; status == QUIRE_OK && step < 3; step++) {
        bool over;
        uint32_t id = 0;
        if (quire_matcher_mask(m, words, &err) != QUIRE_OK || quire_matcher_is_over(m, &over, &err) != QUIRE_OK || over)
            break;
        while (id / 32 < n_words && !(words[id / 32] >> id % 32 & 1u))
            id++;
        must(id / 32 < n_words);
        must(quire_matcher_accept(m, id, &err) == QUIRE_OK);
    }
    if (status == QUIRE_OK)
        quire_matcher_close(m);
    free(words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct quire_error err = {0};
    char *normal, *again;
    size_t n_normal, n_again;
    if (n < 2)
        return 0;
    const struct quire_grammar_reasoning think = {.begins = (enum quire_grammar_begins)(data[1] / 3 % 3),
                                                  .open = data[1] / 3 % 3 ? "<think>" : NULL,
                                                  .end = "</think>",
                                                  .then = data[1] & 128 ? "<|start|>a" : NULL,
                                                  .budget = data[0] % 5 - 1};
    const struct quire_grammar_source source = {.form = (enum quire_grammar_form)(data[0] % (QUIRE_FORM_FREE + 1)),
                                                .text = (const char *)data + 2,
                                                .n_bytes = n - 2,
                                                .whitespace = (enum quire_grammar_whitespace)(data[1] % 3),
                                                .reasoning = data[1] & 64 ? &think : NULL};
    if (quire_grammar_normal(&source, &normal, &n_normal, &err) != QUIRE_OK) {
        must(err.text[0] != '\0');
        return 0;
    }
    must(n_normal > 0 && normal[n_normal] == '\0');
    must(quire_grammar_normal(&source, &again, &n_again, &err) == QUIRE_OK);
    must(n_again == n_normal && memcmp(normal, again, n_normal) == 0);
    struct quire_grammars *grammars = open_grammars();
    struct quire_grammar *grammar;
    if (quire_grammar_compile(grammars, normal, n_normal, NULL, &grammar, &err) == QUIRE_OK) {
        walk(grammar, quire_grammars_words(grammars));
        quire_grammar_release(grammar);
    } else {
        must(err.text[0] != '\0');
    }
    free(normal);
    free(again);
    return 0;
}
