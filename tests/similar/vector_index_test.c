/* The nearest vector, against a loop over all of them; places that are removed, late, evicted or taken again. */
#include "server/similar/codes.h"
#include "server/similar/sketch.h"
#include "server/similar/vector_index.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define WIDTH 19u /* no multiple of what is added up at once */
#define MOST 1500u

static uint64_t state_of = 1;
static uint32_t draw(uint32_t below)
{
    state_of = state_of * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(state_of >> 33) % below;
}

static void draw_vector(float v[WIDTH])
{
    double square = 0;
    for (uint32_t i = 0; i < WIDTH; i++) {
        v[i] = (float)draw(2001) - 1000 + (i == 0 ? 2500 : 0); /* all are close to each other */
        square += (double)v[i] * v[i];
    }
    for (uint32_t i = 0; i < WIDTH; i++)
        v[i] = (float)(v[i] / sqrt(square));
}

static struct known {
    struct key256 context, answer;
    float v[WIDTH];
    int64_t expires_ms;
    bool there;
} known[MOST];

static double cosine(const float *a, const float *b)
{
    double sum = 0;
    for (uint32_t i = 0; i < WIDTH; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static void check_find(struct vector_index *x, uint32_t n, int64_t now)
{
    float v[WIDTH], similarity = 0;
    struct key256 context = {{(uint8_t)draw(3)}}, answer;
    const float threshold = 0.5f + 0.1f * (float)draw(5);
    const struct known *best = NULL;
    draw_vector(v);
    for (uint32_t i = 0; i < n; i++) {
        const struct known *k = &known[i];
        if (k->there && k->expires_ms > now && memcmp(&k->context, &context, sizeof context) == 0 &&
            cosine(k->v, v) >= (double)threshold && (!best || cosine(k->v, v) > cosine(best->v, v)))
            best = k;
    }
    assert_int_equal(vector_index_find(x, &context, v, threshold, now, &answer, &similarity), best != NULL);
    if (best) {
        assert_memory_equal(&answer, &best->answer, sizeof answer);
        assert_true(fabs((double)similarity - cosine(best->v, v)) < 1e-5);
    }
}

static void forget(const struct key256 *answer, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(&known[i].answer, answer, sizeof *answer) == 0)
            known[i].there = false;
}

static void nearest(void **state)
{
    (void)state;
    struct vector_index *x = vector_index_create(WIDTH, MOST);
    struct vector_index_stats stats;
    assert_true(x && vector_index_width(x) == WIDTH);
    for (uint32_t n = 0; n < MOST; n++) {
        struct known *k = &known[n];
        const int64_t now = n;
        *k = (struct known){
            .context = {{(uint8_t)draw(3)}}, .answer = {{(uint8_t)n, (uint8_t)(n >> 8)}}, .there = true};
        k->expires_ms = now + 1 + draw(60);
        draw_vector(k->v);
        if (n > 0 && draw(4) == 0) { /* one that is there, or was, again */
            k->answer = known[draw(n)].answer;
            forget(&k->answer, n);
        }
        assert_true(vector_index_add(x, &k->context, k->v, &k->answer, k->expires_ms));
        if (draw(5) == 0) {
            const struct key256 gone = known[draw(n + 1)].answer;
            forget(&gone, n + 1);
            vector_index_remove(x, &gone);
        }
        vector_index_stats(x, &stats);
        assert_true(stats.n_entries <= n + 1 && stats.n_evicted == 0);
        check_find(x, n + 1, now);
    }
    vector_index_clear(x);
    vector_index_stats(x, &stats);
    assert_int_equal(stats.n_entries, 0);
    vector_index_free(x);
}

static void refused(void **state)
{
    (void)state;
    struct vector_index *x = vector_index_create(2, 2);
    const struct key256 one = {{1}}, two = {{2}}, three = {{3}};
    const float up[2] = {0, 1}, long_one[2] = {1, 1}, none[2] = {NAN, 1}, zero[2] = {0, 0};
    struct key256 answer;
    float similarity;
    assert_false(vector_index_add(x, &one, long_one, &one, 9));
    assert_false(vector_index_add(x, &one, none, &one, 9));
    assert_false(vector_index_add(x, &one, zero, &one, 9));
    assert_false(vector_index_find(x, &one, none, 0.1f, 1, &answer, &similarity));
    assert_true(vector_index_add(x, &one, up, &one, 9));
    assert_true(vector_index_add(x, &one, up, &two, 9));
    assert_true(vector_index_find(x, &one, up, 1, 1, &answer, &similarity));
    assert_memory_equal(&answer, &one, sizeof one); /* of equals the first */
    assert_true(vector_index_add(x, &one, up, &three, 9)); /* in two's place: one was found, two was not */
    vector_index_remove(x, &one);
    assert_true(vector_index_find(x, &one, up, 1, 1, &answer, &similarity));
    assert_memory_equal(&answer, &three, sizeof three);
    assert_false(vector_index_find(x, &one, none, 0.1f, 1, &answer, &similarity));
    assert_false(vector_index_find(x, &one, up, 1, 9, &answer, &similarity)); /* their time is over */
    struct vector_index_stats stats;
    vector_index_stats(x, &stats);
    assert_true(stats.n_entries == 0 && stats.n_evicted == 1);
    vector_index_free(x);
    vector_index_free(NULL);
}

/* ---- many vectors in one context: codes, tiles, blocks --------------------------------------- */

#define WIDE 130u /* three stages, the last of two numbers */
#define MANY 2600u /* two full blocks and a part of a third */

static float many[MANY][WIDE];
static bool is_there[MANY];

static void draw_wide(float *v, const float *near, float noise)
{
    double squares = 0;
    for (uint32_t i = 0; i < WIDE; i++) {
        v[i] = ((float)draw(2001) - 1000) * 1e-3f * noise + (near ? near[i] : 0);
        squares += (double)v[i] * v[i];
    }
    for (uint32_t i = 0; i < WIDE; i++)
        v[i] = (float)(v[i] / sqrt(squares));
}

/* The index's own definition of a cosine: in double, rounded once. Sums in another order differ in 1e-16. */
static float wide_cosine(const float *a, const float *b)
{
    double sum = 0;
    for (uint32_t i = 0; i < WIDE; i++)
        sum += (double)a[i] * b[i];
    return (float)sum;
}

static void check_wide(struct vector_index *x, const float *v, float threshold)
{
    const struct key256 context = {{1}};
    struct key256 answer;
    uint32_t best = MANY;
    float nearest_one = threshold, similarity = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        const float c = is_there[i] ? wide_cosine(many[i], v) : -2;
        if (best == MANY ? c >= nearest_one : c > nearest_one) {
            best = i;
            nearest_one = c;
        }
    }
    assert_int_equal(vector_index_find(x, &context, v, threshold, 1, &answer, &similarity), best < MANY);
    if (best < MANY) {
        uint32_t found;
        memcpy(&found, answer.bytes, sizeof found);
        assert_int_equal(found, best);
        assert_true(similarity == nearest_one);
    }
}

static void fill_wide(struct vector_index *x, uint32_t i)
{
    const struct key256 context = {{1}};
    struct key256 answer = {{0}};
    memcpy(answer.bytes, &i, sizeof i);
    assert_true(vector_index_add(x, &context, many[i], &answer, 9));
    is_there[i] = true;
}

static void many_in_one(void **state)
{
    (void)state;
    static const float thresholds[] = {-1, 0.3f, 0.8f, 0.92f};
    struct vector_index *x = vector_index_create(WIDE, MANY);
    struct vector_index_stats empty, full, end;
    float v[WIDE];
    vector_index_stats(x, &empty);
    for (uint32_t i = 0; i < MANY; i++) { /* far from all, near some, the same as one */
        draw_wide(many[i], i % 3 ? many[i / 50] : NULL, i % 7 ? 0.1f : 0.01f);
        if (i % 11 == 10)
            memcpy(many[i], many[i - 10], sizeof many[i]);
        fill_wide(x, i);
    }
    vector_index_stats(x, &full);
    for (uint32_t round = 0; round < 400; round++) {
        draw_wide(v, round % 4 ? many[draw(MANY)] : NULL, 0.02f * (float)draw(8) + 0.001f);
        check_wide(x, round % 5 ? v : many[draw(MANY)], thresholds[round % 4]);
        const uint32_t gone = draw(MANY);
        struct key256 answer = {{0}};
        memcpy(answer.bytes, &gone, sizeof gone);
        vector_index_remove(x, &answer);
        is_there[gone] = false;
    }
    vector_index_stats(x, &end);
    assert_true(end.n_compared < 400 * MANY / 2); /* and the codes are what makes it quick */
    for (uint32_t i = 0; i < MANY; i++) {
        struct key256 answer = {{0}};
        memcpy(answer.bytes, &i, sizeof i);
        vector_index_remove(x, &answer);
    }
    vector_index_stats(x, &end);
    assert_true(end.n_entries == 0 && end.n_contexts == 0 && end.n_bytes == empty.n_bytes);
    assert_true(full.n_bytes > empty.n_bytes + MANY * WIDE * sizeof(float));
    vector_index_free(x);
}

/* ---- instruction sets ------------------------------------------------------------------------ */

static void same_sums(void **state)
{
    (void)state;
    enum { TILES = 3, ROWS = TILES * SCAN_ROWS };
    static _Alignas(64) uint8_t codes[TILES * SCAN_TILE_BYTES];
    static _Alignas(64) float scale[ROWS], rest[ROWS];
    static _Alignas(64) int8_t query[SCAN_DIMS];
    const struct scan_isa *isas;
    const size_t n_isas = scan_isas(&isas);
    assert_true(isas[0].tiles == scan_isa()->tiles && isas[n_isas - 1].tiles == scan_tiles_plain);
    for (uint32_t round = 0; round < 50; round++) {
        for (uint32_t i = 0; i < sizeof codes; i++)
            codes[i] = round == 0 ? 255 : (uint8_t)draw(256); /* the first: as large as a sum can be */
        for (uint32_t i = 0; i < SCAN_DIMS; i++)
            query[i] = round == 0 ? SCAN_QUERY_MAX : (int8_t)((int)draw(127) - SCAN_QUERY_MAX);
        for (uint32_t i = 0; i < ROWS; i++) {
            scale[i] = (float)draw(1000) * 1e-5f;
            rest[i] = (float)draw(1000) * 1e-3f;
        }
        const struct scan_step step = {query, (int32_t)draw(9999), 1e-3f, 0.5f, 0.9f, 0.01f};
        int32_t sums[SCAN_MAX_ISAS][ROWS];
        uint16_t masks[SCAN_MAX_ISAS][TILES];
        for (size_t k = 0; k < n_isas; k++) {
            for (uint32_t i = 0; i < ROWS; i++)
                sums[k][i] = (int32_t)i;
            isas[k].tiles(codes, scale, rest, TILES, &step, 0.45f, sums[k], masks[k]);
            assert_memory_equal(sums[k], sums[0], sizeof sums[0]);
            assert_memory_equal(masks[k], masks[0], sizeof masks[0]);
        }
        int32_t expected = 5;
        for (uint32_t d = 0; d < SCAN_DIMS; d++)
            expected += codes[d / 4 * 64 + 5 * 4 + d % 4] * query[d];
        assert_int_equal(sums[0][5], expected);
    }
}

/* ---- sketches -------------------------------------------------------------------------------- */

#define SKETCHED (2 * SKETCH_ROWS)
#define SKETCH_MOST_DIMS 8192u

static double turned_product(const float *a, const float *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static void draw_turned(uint32_t n_dims, uint32_t n_stages, float *out)
{
    static float v[SKETCH_MOST_DIMS];
    double squares = 0;
    for (uint32_t i = 0; i < n_dims; i++) {
        v[i] = (float)draw(2001) - 999.5f;
        squares += (double)v[i] * v[i];
    }
    for (uint32_t i = 0; i < n_dims; i++)
        v[i] = (float)(v[i] / sqrt(squares));
    codes_turn(v, n_dims, n_stages, out);
}

/* The part of a vector that its signs leave, at length 1: no query's product with it is nearer to the bound. */
static void draw_hardest(const float *turned, float scale, float rest, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (turned[i] - (turned[i] > 0 ? scale : -scale)) / (rest > 0 ? rest : 1);
}

/* For every width: a row whose product reaches the cut is never excluded, distant rows are, and each instruction set
 * gives the same result for each row. */
static void sketches(void **state)
{
    (void)state;
    static const uint32_t widths[] = {1, 19, 64, 130, 384, 1024, SKETCH_MOST_DIMS};
    static _Alignas(64) uint8_t tiles[SKETCHED * SKETCH_MOST_DIMS / 8], tables[SKETCH_MOST_DIMS * 4];
    static _Alignas(64) float scale[SKETCHED], rest[SKETCHED];
    static float turned[SKETCHED][SKETCH_MOST_DIMS], query[SKETCH_MOST_DIMS];
    for (uint32_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        const uint32_t n_stages = (widths[w] + SCAN_DIMS - 1) / SCAN_DIMS;
        uint32_t n_out = 0;
        for (uint32_t r = 0; r < SKETCHED; r++) {
            draw_turned(widths[w], n_stages, turned[r]);
            sketch_put(turned[r], n_stages, r, tiles, scale, rest);
        }
        for (uint32_t round = 0; round < SKETCHED; round++) {
            struct sketch_query q;
            uint32_t masks[2], plain[2];
            memcpy(query, turned[round], sizeof query); /* one that is there */
            const uint32_t other = (round + 1) % SKETCHED, n = n_stages * SCAN_DIMS;
            if (round % 4 == 0)
                draw_turned(widths[w], n_stages, query);
            if (round % 4 == 2)
                draw_hardest(turned[other], scale[other], rest[other], n, query);
            sketch_of_query(query, n_stages, tables, &q);
            const float cut = round % 2 ? 0.8f : (float)turned_product(query, turned[other], n);
            sketch_tiles_plain(tiles, scale, rest, 2, &q, cut, plain);
            sketch_best()(tiles, scale, rest, 2, &q, cut, masks);
            assert_memory_equal(masks, plain, sizeof plain);
            for (uint32_t r = 0; r < SKETCHED; r++) {
                const bool stays = masks[r / SKETCH_ROWS] >> r % SKETCH_ROWS & 1;
                assert_true(stays || turned_product(query, turned[r], n) < (double)cut);
                n_out += round % 2 && !stays;
            }
        }
        if (widths[w] >= 384) /* all but those that are meant */
            assert_true(n_out >= SKETCHED / 2 * (SKETCHED - 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nearest), cmocka_unit_test(refused),
                                       cmocka_unit_test(many_in_one), cmocka_unit_test(same_sums),
                                       cmocka_unit_test(sketches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
