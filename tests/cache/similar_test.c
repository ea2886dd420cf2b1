/* Answers that begin as a shorter one, and answers to similar questions: the requests to the source below and the
 * events to the client. */
#include "base/clock.h"
#include "tests/cache/flight_fixture.h"

#include <math.h>
#include <unistd.h>

/* ---- longer answers -------------------------------------------------------------------------- */

/* The answer to {1, 2, 3} of four tokens begins the one of six. */
void flight_resume_test(void **state)
{
    struct ear e = {.n_done = 0}, late = e, again = e;
    struct response_cache_stats stats;
    (void)state;
    open_cache((struct response_cache_options){.max_entries = 4});
    ask(&e);
    for (uint32_t t = 5; t < 9; t++)
        say(0, t);
    end(0, WIRE_FINISH_LENGTH, 4);
    max_tokens = 6;
    ask(&again);
    assert_true(n_asked == 2 && asked[1].n_prompt == 7 && asked[1].max_tokens == 2 && again.n_tokens == 0);
    asked[1].events.on_refused(asked[1].context, &(struct wire_refuse){.status = QUIRE_EXHAUSTED});
    assert_true(again.n_refused == 1 && again.n_tokens == 0);
    again = (struct ear){.n_done = 0};
    ask(&again);
    asked[2].events.on_accepted(asked[2].context, 3);
    assert_true(again.n_accepted == 1 && again.n_tokens == 4 && again.from == COMPLETION_COMPUTED);
    say(2, 9);
    ask(&late); /* joins, and receives all of it */
    say(2, 1);
    end(2, WIRE_FINISH_LENGTH, 2);
    turn();
    assert_string_equal(again.said, "567891");
    assert_string_equal(late.said, "567891");
    assert_true(again.n_done == 1 && late.n_done == 1 && n_asked == 3);
    late = (struct ear){.n_done = 0};
    ask(&late); /* it is kept as a whole */
    turn();
    assert_true(late.from == COMPLETION_CACHED && strcmp(late.said, "567891") == 0 && n_asked == 3);
    max_tokens = 5; /* shorter than the longest: from the beginning */
    ask(&late);
    assert_true(n_asked == 4 && asked[3].n_prompt == 3);
    response_cache_stats(cache, &stats);
    assert_true(stats.n_resumed == 1 && stats.n_tokens_resumed == 4);
    late.source.cancel(late.source.self, late.id, -1);
    max_tokens = 4;
    close_cache();
}

static bool is_reported(uint64_t name, uint32_t n_served)
{
    for (uint32_t i = 0; i < reported.n_served; i++)
        if ((reported.served[3 * i] | (uint64_t)reported.served[3 * i + 1] << 32) == name &&
            reported.served[3 * i + 2] == n_served)
            return true;
    return false;
}

/* The source below learns which answers are cached and how often cached responses were served: before the next
 * request, or after a short time, and not once per served response. */
void flight_served_test(void **state)
{
    struct ear e = {.n_done = 0};
    bool cleared = false;
    (void)state;
    open_cache((struct response_cache_options){.max_entries = 4, .ttl_s = 20});
    ask(&e);
    assert_true(asked[0].keep_us == 20000000 && reported.n == 0);
    say(0, 5);
    end(0, WIRE_FINISH_STOP, 1);
    for (uint32_t i = 0; i < 3; i++) {
        e = (struct ear){.n_done = 0};
        ask(&e);
        turn();
        assert_true(e.n_done == 1 && n_asked == 1);
    }
    max_tokens = 5;
    is_away = true;
    e = (struct ear){.n_done = 0};
    assert_int_equal(ask_with(&e, &(struct completion_terms){.is_bounded = true}), QUIRE_IO); /* the hit reports stay */
    is_away = false;
    e = (struct ear){.n_done = 0};
    ask(&e);
    assert_int_equal(n_asked, 2);
    assert_true(reported.n == 1 && reported.n_served == 1 && is_reported(asked[0].keep_name, 3));
    assert_true(asked[1].keep_name != asked[0].keep_name);
    say(1, 5);
    end(1, WIRE_FINISH_STOP, 1);
    for (uint32_t i = 0; i < 5; i++) { /* no request follows */
        e = (struct ear){.n_done = 0};
        ask(&e);
        turn();
    }
    assert_true(e.n_done == 1 && reported.n == 1);
    event_base_loop(base, EVLOOP_ONCE);
    assert_true(reported.n == 2 && reported.n_served == 1 && is_reported(asked[1].keep_name, 5));
    is_away = true;
    response_cache_clear(cache, on_cleared, &cleared); /* it is not lost while the source is away */
    is_away = false;
    assert_true(cleared && reported.n == 2);
    event_base_loop(base, EVLOOP_ONCE);
    assert_true(reported.n == 3 && reported.n_served == 1 && is_reported(0, 0));
    response_cache_clear(cache, on_cleared, &cleared); /* at once */
    assert_true(reported.n == 4);
    e = (struct ear){.n_done = 0};
    ask(&e);
    assert_true(n_asked == 3 && reported.n == 4);
    e.source.cancel(e.source.self, e.id, -1);
    max_tokens = 4;
    close_cache();
}

/* ---- similar questions ----------------------------------------------------------------------- */

/* A text of a digit and anything has a vector of two numbers, that many tenths of a right angle up. */
static struct fake_embedder {
    void (*done)(void *context, const float *vector, uint32_t n_numbers);
    void *context;
    float vector[2];
    char text[1]; /* its beginning */
    uint32_t n_asked, n_cancelled;
    bool is_there, is_away;
} embeds;

static struct embedding *fake_embed(void *self, const char *text, size_t n, uint32_t tenant,
                                    void (*done)(void *context, const float *vector, uint32_t n_numbers), void *context)
{
    const float angle = (float)(text[0] - '0') * 0.15707963f;
    (void)self;
    (void)n;
    (void)tenant;
    if (embeds.is_away)
        return NULL;
    assert_false(embeds.is_there);
    embeds.n_asked++;
    embeds.is_there = true;
    embeds.done = done;
    embeds.context = context;
    embeds.text[0] = text[0];
    embeds.vector[0] = cosf(angle);
    embeds.vector[1] = sinf(angle);
    return (struct embedding *)&embeds;
}

static void fake_cancel(void *self, struct embedding *e)
{
    (void)self;
    assert_true(embeds.is_there && e == (struct embedding *)&embeds);
    embeds.is_there = false;
    embeds.n_cancelled++;
}

static void embed_now(void)
{
    assert_true(embeds.is_there);
    embeds.is_there = false;
    embeds.done(embeds.context, embeds.vector, 2);
}

static void open_similar(enum similar_mode mode, struct response_cache_options options)
{
    const struct similar_options compared = {.mode = mode, .threshold = 0.95f};
    const struct embedder embedder = {.embed = fake_embed, .cancel = fake_cancel};
    struct similar *similar;
    open_cache(options);
    embeds = (struct fake_embedder){.n_asked = 0};
    assert_int_equal(similar_open(base, &compared, embedder, &similar, NULL), QUIRE_OK);
    response_cache_compare(cache, similar);
}

/* Requests prompt {n_prompt}, whose question is text, in the context `around`. */
static void ask_like(struct ear *e, const char *text, uint8_t around, uint32_t n_prompt, bool is_bounded)
{
    static const uint32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const struct completion_terms terms = {
        .question = text, .n_question = strlen(text), .around = {{around}}, .is_bounded = is_bounded};
    struct request_spec spec;
    request_spec_default(&spec);
    spec.prompt = prompt;
    spec.n_prompt = n_prompt;
    spec.max_tokens = is_bounded ? 4 : 100 - n_prompt;
    spec.temperature = 0;
    *e = (struct ear){.source = response_cache_source(cache)};
    assert_int_equal(e->source.submit(e->source.self, &spec, &terms, &events, e, &e->id, NULL), QUIRE_OK);
}

static void answer_it(uint64_t i)
{
    asked[i].events.on_accepted(asked[i].context, i + 1);
    for (uint32_t t = 5; t < 8; t++)
        say(i, t);
    end(i, WIRE_FINISH_STOP, 3);
    turn();
}

void flight_draft_test(void **state)
{
    struct ear e;
    struct response_cache_stats stats;
    (void)state;
    open_similar(SIMILAR_DRAFT, (struct response_cache_options){.max_entries = 5});
    ask_like(&e, "1 first", 1, 2, false);
    assert_int_equal(n_asked, 1); /* and waits for no vector */
    embed_now();
    answer_it(0);
    assert_true(e.n_done == 1 && e.from == COMPLETION_COMPUTED && asked[0].n_prediction == 0);
    ask_like(&e, "1 first", 1, 2, false); /* the same: no vector is needed */
    turn();
    assert_true(e.n_done == 1 && e.from == COMPLETION_CACHED && embeds.n_asked == 1);
    ask_like(&e, "2 nearly", 1, 3,
             false); /* a longer prompt, so there is less room: still the same but for the question */
    assert_true(n_asked == 2 && asked[1].n_prediction == 0);
    embed_now(); /* before it is accepted: its owner receives the event at once */
    assert_true(asked[1].n_prediction == 3 && asked[1].prediction[2] == 7 && e.n_origins == 0);
    answer_it(1);
    assert_true(e.n_done == 1 && e.from == COMPLETION_DRAFTED && strcmp(e.layer, "draft") == 0);
    assert_true(e.similarity > 0.98f && e.similarity < 0.99f && e.n_origins == 1);
    static const struct {
        const char *text;
        uint8_t around;
        bool is_bounded;
        uint32_t n_prediction;
    } others[] = {{"9 far", 1, false, 0}, {"1 of another", 2, false, 0}, {"1 first", 1, true, 3}};
    for (size_t i = 0; i < 3; i++) { /* not near; in another context; the same, which may end sooner */
        ask_like(&e, others[i].text, others[i].around, (uint32_t)(4 + i), others[i].is_bounded);
        embed_now();
        assert_true(n_asked == 3 + i && asked[2 + i].n_prediction == others[i].n_prediction);
        answer_it(2 + i);
    }
    response_cache_stats(cache, &stats);
    const struct cache_layer_stats *looked = &stats.layers[CACHE_SEMANTIC].stats;
    assert_true(stats.layers[CACHE_SEMANTIC].name && looked->n_lookups == 5 && looked->n_hits == 2);
    assert_true(looked->n_misses == 3 && stats.n_computed == 5);
    close_cache();
}

/* The vector is there when the answer has begun, is over, or its owner leaves at that; others join meanwhile. */
void flight_late_draft_test(void **state)
{
    struct ear e, other;
    struct response_cache_stats stats;
    (void)state;
    open_similar(SIMILAR_DRAFT, (struct response_cache_options){.max_entries = 5});
    ask_like(&e, "1 first", 1, 2, true);
    answer_it(0); /* is kept before its vector is there */
    response_cache_stats(cache, &stats);
    assert_true(e.n_done == 1 && stats.layers[CACHE_SEMANTIC].n_entries == 0 && e.n_origins == 1);
    embed_now();
    response_cache_stats(cache, &stats);
    assert_int_equal(stats.layers[CACHE_SEMANTIC].n_entries, 1);
    ask_like(&e, "2 nearly", 1, 3, true);
    asked[1].events.on_accepted(asked[1].context, 1);
    say(1, 5);
    ask_like(&other, "2 nearly", 1, 3, true); /* joins it */
    assert_true(e.n_tokens == 1 && e.from == COMPLETION_COMPUTED && e.n_lookups == 2); /* memory, beginning */
    embed_now();
    assert_true(asked[1].n_prediction == 3 && asked[1].prediction[0] == 5);
    assert_true(e.from == COMPLETION_DRAFTED && e.similarity > 0.98f && e.n_origins == 2);
    assert_true(e.n_lookups == 5 && other.from == COMPLETION_JOINED); /* embedding, similar, memory */
    say(1, 6);
    end(1, WIRE_FINISH_STOP, 2);
    turn();
    assert_true(e.n_done == 1 && other.n_done == 1 && strcmp(e.said, "56") == 0 && strcmp(other.said, "56") == 0);
    ask_like(&e, "2 again", 1, 4, true); /* a source that accepts no predictions, or no longer */
    asked[2].refuses = true;
    asked[2].events.on_accepted(asked[2].context, 1);
    embed_now();
    assert_true(e.from == COMPLETION_COMPUTED && e.n_origins == 2);
    answer_it(2);
    ask_like(&e, "2 leaves then", 1, 5, true);
    e.leaves_again = true;
    asked[3].events.on_accepted(asked[3].context, 1);
    embed_now();
    assert_true(e.n_origins == 2 && asked[3].cancelled && asked[3].n_prediction > 0);
    ask_like(&e, "2 fails", 1, 6, true);
    asked[4].events.on_lost(asked[4].context, "gone");
    assert_true(e.n_lost == 1 && embeds.n_cancelled == 1);
    ask_like(&e, "2 is the last", 1, 7, true);
    answer_it(5);
    close_cache(); /* while its vector is awaited */
    assert_int_equal(embeds.n_cancelled, 2);
}

/* The terms of a request are borrowed until submit() returns, also where it is computed again later. */
void flight_borrowed_question_test(void **state)
{
    struct ear first, joined;
    char text[] = "3 borrowed";
    (void)state;
    open_similar(SIMILAR_DRAFT, (struct response_cache_options){.max_entries = 5});
    ask_like(&first, "3 borrowed", 1, 2, true);
    ask_like(&joined, text, 1, 2, true);
    memcpy(text, "9 changed.", sizeof text);
    embed_now();
    assert_int_equal(n_asked, 1);
    asked[0].events.on_lost(asked[0].context, "gone"); /* the one that joined is computed alone */
    assert_true(first.n_lost == 1 && joined.n_lost == 0 && n_asked == 2);
    assert_true(embeds.n_asked == 2 && embeds.text[0] == '3');
    embed_now();
    answer_it(1);
    assert_int_equal(joined.n_done, 1);
    close_cache();
}

/* A cancel while a vector is computed; an embedder that is missing, does not reply, or returns no vector. */
void flight_embedder_test(void **state)
{
    struct ear e, other;
    struct response_cache_stats stats;
    (void)state;
    open_similar(SIMILAR_DRAFT, (struct response_cache_options){.max_entries = 4});
    ask_like(&e, "1 leaves", 1, 2, true);
    ask_like(&other, "1 leaves", 1, 2, true); /* joins it */
    e.source.cancel(e.source.self, e.id, -1);
    assert_int_equal(embeds.n_cancelled, 0);
    other.source.cancel(other.source.self, other.id, -1);
    assert_true(embeds.n_cancelled == 1 && n_asked == 1 && asked[0].cancelled);
    embeds.is_away = true;
    ask_like(&e, "2 at once", 1, 3, true);
    assert_int_equal(n_asked, 2);
    answer_it(1);
    embeds.is_away = false;
    ask_like(&e, "3 without", 1, 4, true);
    embeds.is_there = false;
    embeds.done(embeds.context, NULL, 0);
    answer_it(2);
    ask_like(&e, "4 late", 1, 5, true);
    for (uint64_t until = quire_now_ms() + 60000; embeds.n_cancelled == 1 && quire_now_ms() < until;)
        event_base_loop(base, EVLOOP_ONCE);
    assert_true(n_asked == 4 && embeds.n_cancelled == 2);
    answer_it(3);
    assert_int_equal(e.n_done, 1);
    response_cache_stats(cache, &stats);
    struct similar_stats similar;
    assert_true(response_cache_similar_stats(cache, &similar));
    assert_true(similar.n_late == 2 && stats.layers[CACHE_SEMANTIC].n_entries == 0 && stats.n_stored == 3);
    close_cache();
}

/* The answer that was found no longer exists: cleared, or evicted from memory. */
void flight_ghost_test(void **state)
{
    struct ear e;
    struct response_cache_stats stats;
    (void)state;
    open_similar(SIMILAR_DRAFT, (struct response_cache_options){.max_entries = 1});
    for (uint32_t i = 0; i < 2; i++) {
        ask_like(&e, i ? "9 far" : "1 first", 1, 2 + i, true);
        embed_now();
        answer_it(i);
    }
    response_cache_stats(cache, &stats);
    assert_true(stats.layers[CACHE_SEMANTIC].n_entries == 2 && stats.layers[CACHE_MEMORY].n_entries == 1);
    ask_like(&e, "2 nearly", 1, 4, true);
    embed_now();
    assert_true(n_asked == 3 && asked[2].n_prediction == 0);
    response_cache_stats(cache, &stats);
    assert_int_equal(stats.layers[CACHE_SEMANTIC].n_entries, 1);
    answer_it(2);
    bool cleared = false;
    response_cache_clear(cache, on_cleared, &cleared);
    ask_like(&e, "2 nearly", 1, 5, true);
    embed_now();
    assert_true(n_asked == 4 && asked[3].n_prediction == 0);
    answer_it(3);
    ask_like(&e, "2 on its way", 1, 6, true); /* while its vector is awaited, all is forgotten */
    response_cache_clear(cache, on_cleared, &cleared);
    embed_now();
    assert_true(n_asked == 5 && asked[4].n_prediction == 0);
    answer_it(4);
    ask_like(&e, "2 is kept", 1, 7, true);
    answer_it(5); /* before its vector is there, and then all is forgotten: it is of no use any more */
    response_cache_clear(cache, on_cleared, &cleared);
    assert_int_equal(embeds.n_cancelled, 1);
    close_cache();
}

void flight_semantic_test(void **state)
{
    struct ear e;
    struct response_cache_stats stats;
    (void)state;
    open_similar(SIMILAR_ANSWER, (struct response_cache_options){.max_entries = 4});
    ask_like(&e, "1 tablet of the medicine", 1, 2, true);
    assert_int_equal(n_asked, 0); /* an answer may spare the computing: it is waited for */
    embed_now();
    answer_it(0);
    ask_like(&e, "1 tablet of a medicine", 1, 3, true);
    embed_now();
    turn();
    assert_true(n_asked == 1 && e.n_done == 1 && e.from == COMPLETION_SIMILAR && e.n_tokens == 3);
    assert_string_equal(e.layer, "semantic");
    ask_like(&e, "2 tablets of the medicine", 1, 4, true); /* near, but not the same number: a draft */
    embed_now();
    assert_true(n_asked == 2 && asked[1].n_prediction == 3);
    answer_it(1);
    assert_true(e.from == COMPLETION_DRAFTED);
    response_cache_stats(cache, &stats);
    assert_true(stats.n_guarded[GUARD_NONE] == 1 && stats.n_guarded[GUARD_NUMBERS] == 1 && stats.n_stored == 2);
    close_cache();
}
