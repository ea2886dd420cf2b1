/* Many identical requests: the events of each, with cancels and failures at every point. */
#include "base/clock.h"
#include "server/cache/answer.h"
#include "server/cache/response_cache.h"
#include "tests/cache/flight_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- tests ---------------------------------------------------------------------------------- */

/* Each of three, who come at the steps 0, 1 and 3, leaves at any step or stays (7): all 343 ways. Leaving comes from the
 * loop, or from within the token of that step. */
static void three(const uint32_t leaves[3], bool inside)
{
    struct ear ears[3] = {{.n_done = 0}};
    static const uint32_t comes[3] = {0, 1, 3};
    static const char whole[] = "5678";
    bool here[3] = {false};
    uint32_t n_here = 0;
    open_cache((struct response_cache_options){.max_entries = 4});
    for (uint32_t step = 0; step < 7; step++) {
        for (uint32_t i = 0; i < 3; i++) {
            if (step == comes[i] && leaves[i] > step) {
                ask(&ears[i]);
                here[i] = true;
            }
        }
        for (uint32_t i = 0; i < 3; i++) {
            if (!here[i] || step != leaves[i])
                continue;
            here[i] = false;
            if (inside && step >= 2 && step <= 5 && ears[i].n_done == 0)
                ears[i].leave_after = ears[i].n_tokens + 1;
            else
                ears[i].source.cancel(ears[i].source.self, ears[i].id, -1);
        }
        const uint64_t now = n_asked - 1;
        if (step == 1 && n_asked > 0 && !asked[now].cancelled)
            asked[now].events.on_accepted(asked[now].context, 3);
        if (step >= 2 && step <= 5 && n_asked == 1)
            say(0, step + 3);
        if (step == 6 && n_asked == 1)
            end(0, WIRE_FINISH_LENGTH, 4);
        n_here = (uint32_t)(here[0] + here[1] + here[2]);
        if (n_asked == 1 && step > comes[2] && n_here == 0 && step < 6)
            assert_true(asked[0].cancelled);
        turn();
        if (n_asked > 1) /* all had left, and the last came after that: it is another flight */
            break;
    }
    for (uint32_t i = 0; i < 3 && n_asked == 1; i++) {
        if (here[i]) {
            assert_string_equal(ears[i].said, whole);
            assert_true(ears[i].n_done == 1 && ears[i].n_accepted == 1 && ears[i].finish == WIRE_FINISH_LENGTH);
        } else {
            assert_memory_equal(ears[i].said, whole, strlen(ears[i].said));
            assert_int_equal(ears[i].n_done, 0);
        }
        assert_int_equal(ears[i].n_lost + ears[i].n_refused, 0);
    }
    if (n_asked == 1 && n_here > 0) {
        struct ear again = {.n_done = 0};
        ask(&again);
        assert_string_equal(again.said, whole);
        assert_true(again.from == COMPLETION_CACHED && n_asked == 1);
    }
    for (uint32_t i = 0; i < 3; i++) /* the remaining ones */
        if (ears[i].source.cancel)
            ears[i].source.cancel(ears[i].source.self, ears[i].id, -1);
    close_cache();
}

void flight_leave_test(void **state)
{
    (void)state;
    for (uint32_t way = 0; way < 2 * 343; way++)
        three((uint32_t[3]){way % 7 + 1, way / 7 % 7 + 1, way / 49 % 7 + 1}, way >= 343);
}

/* A foreground request does not wait for a background computation; a background request joins a foreground one. */
void flight_background_test(void **state)
{
    (void)state;
    struct ear first = {.n_done = 0}, live = {.n_done = 0}, second = {.n_done = 0}, late = {.n_done = 0};
    open_cache((struct response_cache_options){.max_entries = 4});
    in_background = true;
    ask(&first);
    in_background = false;
    ask(&live);
    assert_int_equal(n_asked, 2);
    in_background = true;
    ask(&second); /* joins the live one */
    in_background = false;
    assert_int_equal(n_asked, 2);
    say(1, 5);
    end(1, WIRE_FINISH_STOP, 1);
    assert_true(live.n_done == 1 && second.n_done == 1 && first.n_done == 0);
    say(0, 5);
    end(0, WIRE_FINISH_STOP, 1);
    assert_true(first.n_done == 1);
    ask(&late);
    assert_int_equal(n_asked, 2);
    close_cache();
}

void flight_fail_test(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct ear first = {.n_done = 0}, second = {.n_done = 0}, late = {.n_done = 0};
        open_cache((struct response_cache_options){.max_entries = 4});
        ask(&first);
        ask(&second);
        assert_true(n_asked == 1 && second.n_accepted == 0);
        if (how == 0) { /* refused: the second has a try of its own, and a third joins that */
            asked[0].events.on_refused(asked[0].context, &(struct wire_refuse){.status = QUIRE_EXHAUSTED});
            assert_true(first.n_refused == 1 && second.n_refused == 0 && n_asked == 2);
            ask(&late);
            asked[1].events.on_refused(asked[1].context, &(struct wire_refuse){.status = QUIRE_EXHAUSTED});
            assert_true(second.n_refused == 1 && late.n_refused == 0 && n_asked == 3);
            say(2, 1);
            end(2, WIRE_FINISH_STOP, 1);
            assert_true(late.n_done == 1 && late.n_tokens == 1);
        } else if (how == 1) { /* cancelled before the first event, after acceptance: the same */
            asked[0].events.on_accepted(asked[0].context, 1);
            end(0, WIRE_FINISH_ERROR, 0);
            assert_true(first.n_done == 1 && first.finish == WIRE_FINISH_ERROR && second.n_done == 0 && n_asked == 2);
            asked[1].events.on_refused(asked[1].context, &(struct wire_refuse){.status = QUIRE_EXHAUSTED});
            /* A request that was reported as accepted is not rejected later. */
            assert_true(second.n_refused == 0 && second.n_done == 1 && second.finish == WIRE_FINISH_ERROR);
        } else if (how == 2) { /* after the first token: the same for all */
            say(0, 5);
            end(0, WIRE_FINISH_ERROR, 1);
            assert_true(first.n_done == 1 && second.n_done == 1 && second.finish == WIRE_FINISH_ERROR && n_asked == 1);
        } else { /* the engine is gone */
            is_away = true;
            asked[0].events.on_lost(asked[0].context, "gone");
            assert_true(first.n_lost == 1 && second.n_lost == 1 && n_asked == 1);
            assert_int_equal(ask_with(&late, &(struct completion_terms){.is_bounded = true}), QUIRE_IO);
        }
        struct response_cache_stats s;
        response_cache_stats(cache, &s);
        assert_int_equal(s.layers[CACHE_MEMORY].n_entries, how == 0);
        close_cache();
    }
}

/* A waiter that cuts choices: the answer is complete up to the cut. An answer that ends before the requested length
 * is not cached. */
void flight_cut_test(void **state)
{
    (void)state;
    const struct completion_terms cuts = {.is_bounded = true, .cut = {{4}}};
    open_cache((struct response_cache_options){.max_entries = 4});
    struct ear first = {.cut_after = 2}, second = {.cut_after = 2}, third = {.cut_after = 2}, fourth = {.n_done = 0};
    assert_int_equal(ask_with(&first, &cuts), QUIRE_OK);
    assert_int_equal(ask_with(&second, &cuts), QUIRE_OK);
    for (uint32_t token = 5; token < 9; token++)
        say(0, token);
    assert_int_equal(asked[0].cut, 0);
    end(0, WIRE_FINISH_CANCELLED, 4);
    assert_int_equal(ask_with(&third, &cuts), QUIRE_OK);
    assert_true(n_asked == 1 && third.from == COMPLETION_CACHED);
    assert_string_equal(first.said, "56");
    assert_string_equal(second.said, "56");
    assert_string_equal(third.said, "56");
    assert_true(first.n_done == 1 && second.n_done == 1 && third.n_done == 1);
    ask(&fourth); /* a request without a cut is another request */
    assert_int_equal(n_asked, 2);
    say(1, 5);
    end(1, WIRE_FINISH_LENGTH, 1); /* of the 4 requested tokens */
    struct ear fifth = {.n_done = 0};
    ask(&fifth);
    assert_int_equal(n_asked, 3);
    fifth.source.cancel(fifth.source.self, fifth.id, -1);
    assert_true(asked[2].cancelled);
    close_cache();
}

/* An answer that is too long for the cache, and a client that reads nothing for a while: every client receives all
 * of it. */
void flight_long_test(void **state)
{
    (void)state;
    const uint32_t n = (uint32_t)(ANSWER_MAX_BYTES / 170);
    struct ear first = {.n_done = 0}, slow = {.is_full = true}, late = {.n_done = 0};
    open_cache((struct response_cache_options){.max_entries = 4});
    ask(&first);
    asked[0].events.on_accepted(asked[0].context, 1);
    for (uint32_t i = 0; i < n; i++) {
        const struct wire_token token = {.token = 7, .has_logprob = true, .n_top = 20};
        asked[0].events.on_token(asked[0].context, &token);
        if (i == n / 2)
            ask(&slow);
        if (i == n / 2 + 5)
            assert_true(slow.n_tokens == 0 && slow.n_accepted == 1);
    }
    assert_true(first.n_tokens == n && slow.n_tokens == n);
    usleep(10000); /* its timer is still to come */
    turn();
    ask(&late); /* no later request joins it */
    assert_int_equal(n_asked, 2);
    end(0, WIRE_FINISH_STOP, n);
    assert_true(first.n_done == 1 && slow.n_done == 1 && late.n_done == 0);
    late.source.cancel(late.source.self, late.id, -1);
    close_cache();
    /* One that is kept waits with its rest, and goes on in slices. */
    open_cache((struct response_cache_options){.max_entries = 4});
    max_tokens = 1000;
    struct ear one = {.n_done = 0}, again = {.is_full = true};
    ask(&one);
    for (uint32_t i = 0; i < 1000; i++)
        say(0, 7);
    end(0, WIRE_FINISH_STOP, 1000);
    ask(&again);
    assert_true(again.n_tokens == 0 && again.n_accepted == 1);
    again.is_full = false;
    for (int i = 0; i < 60000 && again.n_done == 0; i++) {
        usleep(1000);
        turn();
    }
    assert_true(again.n_tokens == 1000 && again.n_done == 1);
    max_tokens = 4;
    close_cache();
}

/* Each second answer that is given is computed again. */
void flight_verify_test(void **state)
{
    (void)state;
    const struct completion_terms cuts = {.is_bounded = true, .cut = {{4}}};
    struct response_cache_stats s;
    struct cached_reply reply;
    open_cache((struct response_cache_options){.max_entries = 4, .verify = 0.5});
    struct ear ears[9] = {{.cut_after = 2}, {.cut_after = 2}, {.cut_after = 2}, {.cut_after = 2}, {.cut_after = 2}};
    assert_int_equal(ask_with(&ears[0], &cuts), QUIRE_OK);
    say(0, 5);
    say(0, 6);
    end(0, WIRE_FINISH_CANCELLED, 2);
    response_cache_keep_reply(cache, &asked_key, &identity, "reply", 5);
    assert_true(response_cache_find_reply(cache, &identity, &reply) && n_asked == 1);
    assert_false(response_cache_find_reply(cache, &identity, &reply)); /* it is due: the request must be known */
    assert_int_equal(ask_with(&ears[1], &cuts), QUIRE_OK);
    assert_true(n_asked == 2 && ears[1].from == COMPLETION_CACHED && ears[1].n_done == 1);
    say(1, 5);
    say(1, 6);
    assert_int_equal(asked[1].cut, -1);
    say(1, 7); /* past where it was cut: not compared */
    assert_int_equal(asked[1].cut, 0);
    end(1, WIRE_FINISH_CANCELLED, 4);
    response_cache_stats(cache, &s);
    assert_true(s.n_verified == 1 && s.n_differing == 0);
    assert_true(response_cache_find_reply(cache, &identity, &reply));
    assert_int_equal(ask_with(&ears[2], &cuts), QUIRE_OK);
    /* reports no event */
    asked[2].events.on_refused(asked[2].context, &(struct wire_refuse){.status = QUIRE_EXHAUSTED});
    assert_int_equal(ask_with(&ears[3], &cuts), QUIRE_OK);
    assert_int_equal(n_asked, 3);
    assert_int_equal(ask_with(&ears[4], &cuts), QUIRE_OK);
    assert_int_equal(n_asked, 4);
    say(3, 5);
    say(3, 7);
    assert_true(asked[3].cancelled);
    response_cache_stats(cache, &s);
    assert_true(s.n_verified == 1 && s.n_differing == 1 && s.layers[CACHE_MEMORY].n_entries == 0);
    close_cache();
}

/* ---- a store that the test answers for ------------------------------------------------------ */

static struct fake_store {
    struct answer_store store; /* first */
    store_answer answer;
    void *context;
    struct key256 key;
    struct buffer put;
    uint32_t n_gets, n_cancels, n_puts, n_removes;
    bool is_full;
    int64_t left_s; /* of what is found */
    void (*cleared)(void *context, bool ok, uint64_t n_removed);
    void *clear_context;
} fake;

static struct store_lookup *store_get(struct answer_store *s, struct key256 key, store_answer answer, void *context)
{
    (void)s;
    fake.n_gets++;
    fake.key = key;
    fake.answer = answer;
    fake.context = context;
    return fake.is_full ? NULL : (struct store_lookup *)&fake;
}

static void store_cancel(struct answer_store *s, struct store_lookup *lookup)
{
    (void)s;
    (void)lookup;
    fake.n_cancels++;
}

static void store_put(struct answer_store *s, struct key256 key, const uint8_t *bytes, size_t n, int64_t created_s,
                      uint32_t ttl_s, uint32_t n_tokens, struct key256 domain)
{
    (void)s;
    (void)key;
    (void)created_s;
    (void)domain;
    assert_true(ttl_s == RESPONSE_CACHE_TTL_S && n_tokens == 1);
    fake.n_puts++;
    buffer_clear(&fake.put);
    buffer_append(&fake.put, bytes, n);
}

static void store_remove(struct answer_store *s, struct key256 key)
{
    (void)s;
    (void)key;
    fake.n_removes++;
}

static void store_hit(struct answer_store *s, struct key256 key)
{
    (void)s;
    (void)key;
}

static void store_clear(struct answer_store *s, void (*done)(void *context, bool ok, uint64_t n_removed), void *context)
{
    (void)s;
    fake.cleared = done;
    fake.clear_context = context;
}

static void store_stats(const struct answer_store *s, struct store_stats *out)
{
    (void)s;
    *out = (struct store_stats){.connected = true};
}

static void store_close(struct answer_store *s, uint32_t wait_ms)
{
    (void)s;
    (void)wait_ms;
}

static struct answer_store *open_store(void *context, const struct key256 *of)
{
    static const struct answer_store_ops ops = {.name = "fake",
                                                .get = store_get,
                                                .cancel = store_cancel,
                                                .put = store_put,
                                                .remove = store_remove,
                                                .hit = store_hit,
                                                .clear = store_clear,
                                                .stats = store_stats,
                                                .close = store_close};
    (void)context;
    assert_memory_equal(of, &identity, sizeof identity);
    fake.store.ops = &ops;
    fake.left_s = 100;
    return &fake.store;
}

static void found(enum store_found what, size_t n, uint8_t spoil)
{
    if (n > 0)
        fake.put.data[n / 2] ^= (char)spoil;
    fake.answer(fake.context, what, (const uint8_t *)fake.put.data, n, 0, time(NULL) + fake.left_s, 3);
    if (n > 0)
        fake.put.data[n / 2] ^= (char)spoil;
}

void flight_store_test(void **state)
{
    (void)state;
    const struct response_cache_options options = {.max_entries = 1, .open_store = open_store};
    const struct completion_terms other = {.is_bounded = true, .domain = {{1}}};
    struct ear ears[11] = {{.n_done = 0}};
    open_cache(options);
    ask(&ears[0]);
    ask(&ears[1]); /* waits for the same lookup */
    assert_true(n_asked == 0 && fake.n_gets == 1);
    found(STORE_MISS, 0, 0);
    assert_int_equal(n_asked, 1);
    say(0, 5);
    end(0, WIRE_FINISH_STOP, 1);
    assert_true(ears[0].n_done == 1 && ears[1].n_done == 1 && fake.n_puts == 1);
    close_cache();
    /* Another process: what the store has is given to both who wait, and is in memory then. */
    open_cache(options);
    ask(&ears[2]);
    ask(&ears[3]);
    found(STORE_FOUND, fake.put.n, 0);
    ask(&ears[4]);
    assert_true(n_asked == 0 && ears[2].n_done == 1 && ears[3].n_done == 1 && ears[4].n_done == 1 && fake.n_gets == 2);
    assert_string_equal(ears[2].layer, "fake");
    assert_string_equal(ears[4].layer, "memory");
    /* An answer to another question, or a changed one, is rejected and removed. */
    assert_int_equal(ask_with(&ears[5], &other), QUIRE_OK);
    found(STORE_FOUND, fake.put.n, 0);
    assert_true(n_asked == 1 && fake.n_removes == 1);
    end(0, WIRE_FINISH_ERROR, 0);
    close_cache();
    open_cache(options);
    ask(&ears[6]);
    found(STORE_FOUND, fake.put.n, 1);
    assert_true(n_asked == 1 && fake.n_removes == 2);
    end(0, WIRE_FINISH_ERROR, 0);
    /* An answer that has expired, or lives longer than the limit, is rejected but stays for servers with another
     * clock. */
    for (uint32_t i = 0; i < 2; i++) {
        fake.left_s = i ? INT64_MAX - time(NULL) : 0;
        ask(&ears[9 + i]);
        found(STORE_FOUND, fake.put.n, 0);
        assert_true(ears[9 + i].n_done == 0 && n_asked == 2 + i && fake.n_removes == 2);
        end(1 + i, WIRE_FINISH_ERROR, 0);
    }
    /* All leave while it is asked; a store that takes no more. */
    ask(&ears[7]);
    ears[7].source.cancel(ears[7].source.self, ears[7].id, -1);
    assert_int_equal(fake.n_cancels, 1);
    fake.is_full = true;
    ask(&ears[8]);
    assert_int_equal(n_asked, 4);
    end(3, WIRE_FINISH_ERROR, 0);
    close_cache();
    buffer_free(&fake.put);
}

/* A request after a clear receives nothing that was found or computed for an earlier request, and nothing of that is
 * cached. */
void flight_clear_test(void **state)
{
    (void)state;
    struct ear ears[8] = {{.n_done = 0}};
    struct response_cache_stats s;
    bool cleared = false;
    open_cache((struct response_cache_options){.max_entries = 4});
    ask(&ears[0]);
    say(0, 5);
    response_cache_clear(cache, on_cleared, &cleared);
    ask(&ears[1]);
    ask(&ears[2]); /* joins that one */
    assert_true(cleared && n_asked == 2);
    end(0, WIRE_FINISH_STOP, 1);
    response_cache_stats(cache, &s);
    assert_true(ears[0].n_done == 1 && ears[1].n_done == 0 && s.layers[CACHE_MEMORY].n_entries == 0 &&
                s.n_not_stored == 1);
    say(1, 5);
    end(1, WIRE_FINISH_STOP, 1);
    response_cache_stats(cache, &s);
    assert_true(ears[1].n_done == 1 && ears[2].n_done == 1 && s.layers[CACHE_MEMORY].n_entries == 1);
    close_cache();
    /* While a store is asked, and while it is cleared. */
    const struct response_cache_options options = {.max_entries = 4, .open_store = open_store};
    fake = (struct fake_store){.n_puts = 0};
    open_cache(options);
    ask(&ears[3]);
    found(STORE_MISS, 0, 0);
    say(0, 5);
    end(0, WIRE_FINISH_STOP, 1);
    close_cache();
    open_cache(options);
    ask(&ears[4]);
    cleared = false;
    response_cache_clear(cache, on_cleared, &cleared);
    found(STORE_FOUND, fake.put.n, 0);
    assert_true(ears[4].n_done == 1 && !cleared);
    ask(&ears[5]);
    assert_true(n_asked == 1 && fake.n_gets == 2);
    end(0, WIRE_FINISH_ERROR, 0);
    fake.cleared(fake.clear_context, true, 1);
    ask(&ears[6]);
    assert_true(cleared && fake.n_gets == 3);
    found(STORE_MISS, 0, 0);
    end(1, WIRE_FINISH_ERROR, 0);
    close_cache();
    buffer_free(&fake.put);
}

/* An answer of the last tenth of a second is kept for its time all the same. */
void flight_ttl_test(void **state)
{
    (void)state;
    struct ear first = {.n_done = 0}, again = {.n_done = 0};
    open_cache((struct response_cache_options){.max_entries = 4, .ttl_s = 1});
    ask(&first);
    say(0, 5);
    while (quire_wall_ns() / 1000000 % 1000 < 900)
        usleep(1000);
    const uint64_t begun_ns = quire_now_ns();
    end(0, WIRE_FINISH_STOP, 1);
    usleep(150000);
    ask(&again);
    if (quire_now_ns() - begun_ns < UINT64_C(900000000)) /* else the machine stood still */
        assert_true(again.n_done == 1 && again.from == COMPLETION_CACHED);
    else
        again.source.cancel(again.source.self, again.id, -1);
    close_cache();
}
