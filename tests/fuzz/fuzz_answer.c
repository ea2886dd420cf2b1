/* An answer from a store is rejected, or can be served to its end. Length and checksum are corrected, so that the
 * checks behind them are reached. */
#include "fuzz.h"

#include "base/encoding/little_endian.h"
#include "server/cache/answer.h"

#include <stdlib.h>
#include <string.h>

#define HEAD 96u
#define SUM 32u

static void tell(const struct answer *a)
{
    struct answer_event e;
    size_t cursor = 0;
    uint32_t n_done = 0;
    uint64_t n_tokens = 0;
    bool last = false;
    char *question = malloc(a->question.n + 1); /* all of it may be read */
    if (question && a->question.text)
        memcpy(question, a->question.text, a->question.n);
    free(question);
    while (answer_next(a->events, &cursor, &e)) {
        if (last || (e.kind == ANSWER_DONE ? e.done.choice : e.token.choice) >= a->n_choices)
            abort();
        n_done += e.kind == ANSWER_DONE;
        n_tokens += e.kind == ANSWER_TOKEN;
        last = e.kind == ANSWER_DONE && e.done.last;
    }
    if (!last || n_done != a->n_choices || n_tokens != a->n_generated || !answer_same(a->events, a->events))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct quire_error err = {.text = ""};
    struct answer a;
    struct key256 key = {{0}};
    uint8_t *copy = malloc(n + 1);
    if (!copy)
        return 0;
    memcpy(copy, data, n);
    if (n >= HEAD + SUM) {
        memcpy(key.bytes, copy + 16, sizeof key.bytes);
        const uint64_t left = n - HEAD - SUM;
        const uint32_t n_question = (uint32_t)(le_load_u32(copy + 92) % (left + 1));
        le_store_u32(copy + 92, n_question);
        le_store_u64(copy + 80, left - n_question);
        const struct key256 sum = quire_sha256(copy, n - SUM);
        memcpy(copy + n - SUM, sum.bytes, SUM);
    }
    if (answer_check(copy, n, &key, 100000, &a, &err) == QUIRE_OK)
        tell(&a);
    else if (!err.text[0])
        abort();
    free(copy);
    return 0;
}
