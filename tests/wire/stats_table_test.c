/* The table of statistics (base/stats/rows.h): the frame of a program before the table, the documents, and the rules
 * for rows. */
#include "server/wire/decode.h"
#include "server/wire/encode.h"
#include "server/wire/frame.h"
#include "server/wire/stats_frame.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct row {
    const char *member, *type, *from, *unit, *shown, *name, *help;
    unsigned tag;
};
#define ROW(member, type, tag, from, unit, shown, group, name, help) \
    {#member, #type, #from, #unit, #shown, name, help, tag},
static const struct row rows[] = {STATS_ROWS(ROW)};
#undef ROW
#define N_ROWS (sizeof rows / sizeof rows[0])

#define ROW(member, type, at, shown, name, help) {#member, #type, "", "", #shown, name, help, at},
static const struct row tenant_rows[] = {STATS_TENANT_ROWS(ROW)};
#define N_TENANT_ROWS (sizeof tenant_rows / sizeof tenant_rows[0])

static char *read_file(const char *path, size_t *n)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s/%s", QUIRE_SOURCE_DIR, path);
    FILE *file = fopen(whole, "rb");
    if (!file)
        fail_msg("%s: cannot be opened", whole);
    char *text = calloc(1, 1 << 20);
    *n = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    return text;
}

/* The frame was written by the program before the table, with every field set. It is read, and written again with
 * equal bytes. */
static void a_frame_of_before(void **state)
{
    (void)state;
    size_t n;
    char *file = read_file("tests/fuzz/corpus/frames/stats-all", &n);
    const uint8_t *frame = (const uint8_t *)file + 1; /* after the fuzz target's own byte */
    n--;
    struct wire_stats s;
    struct quire_error err;
    struct buffer b = {0};
    assert_int_equal(wire_get_stats(frame + WIRE_HEADER_BYTES, n - WIRE_HEADER_BYTES, &s, &err), QUIRE_OK);
    assert_true(s.n_running == 3 && s.n_waiting == 4 && s.n_waiting_tokens == UINT64_C(1) << 40 && s.kv_usage == 0.625);
    assert_true(s.n_preemptions == 6 && s.n_prefix_queries == 7 && s.n_prefix_hits == 8 && s.n_prompt_tokens == 9);
    assert_true(s.n_generation_tokens == 10 && s.n_steps == 11 && s.n_blocks_leaked == 12 && s.n_blocks == 13);
    assert_true(s.n_block_tokens == 16 && s.draining && s.dead && s.n_host_hits == 17 && s.n_recomputed == 18);
    assert_true(s.n_refused == 19 && s.n_evicted_blocks == 20 && s.n_swapped_out == 21 && s.n_swapped_in == 22);
    assert_true(s.swap_usage == 0.5 && s.n_pins == 24 && s.n_pinned_blocks == 25 && s.token_budget == 26);
    assert_true(s.figure == 1.5 && s.n_shadow == 31 && s.n_shadow_refused == 32 && s.live_ttft_us == 33.5);
    assert_true(s.live_queue_us == 34.5 && s.shadow_ttft_us == 35.5 && s.shadow_queue_us == 36.5);
    assert_true(s.n_step_tokens == 38 && s.prefix_caching && s.n_host_blocks == 42 && s.n_drafts == 43);
    assert_true(s.n_draft_tokens == 44 && s.n_accepted_tokens == UINT64_C(1) << 45 && s.draft_us == 1234567890123);
    assert_true(s.n_kept == 3 && s.n_kept_blocks == 41 && s.kept_bytes == 1234567890124);
    struct wire_tenant t;
    wire_tenant_get(&s, 0, &t);
    assert_true(t.n_prompt_tokens == 1 && t.n_generated_tokens == 2 && t.n_prefix_queries == 3 && t.n_prefix_hits == 4);
    assert_true(t.n_evicted_blocks == 5 && t.n_running == 6 && t.n_waiting == 7);
    /* The encoder takes words for lists; the machine is little-endian, so the body's bytes are such words. */
    uint32_t tenants[2 * WIRE_TENANT_WORDS], buckets[WIRE_SHADOW_BUCKET_WORDS], steps[2 * WIRE_STEP_BUCKET_WORDS];
    uint32_t accepted[2 * WIRE_ACCEPTED_WORDS], waits[4 * WIRE_RANK_WAIT_WORDS];
    memcpy(tenants, s.tenant_bytes, sizeof tenants);
    memcpy(buckets, s.shadow_bucket_bytes, sizeof buckets);
    memcpy(steps, s.step_bucket_bytes, sizeof steps);
    memcpy(accepted, s.accepted_at_bytes, sizeof accepted);
    memcpy(waits, s.rank_wait_bytes, sizeof waits);
    s.tenants = tenants;
    s.shadow_buckets = buckets;
    s.step_buckets = steps;
    s.accepted_at = accepted;
    s.rank_waits = waits;
    assert_int_equal(wire_put_stats(&b, &s), QUIRE_OK);
    assert_int_equal(b.n, n);
    assert_memory_equal(b.data, frame, n);
    buffer_free(&b);
    free(file);
}

/* ---- the documents --------------------------------------------------------------------------- */

/* Checks that the STATS section has a line that begins like this. */
static void expect_line(const char *section, const char *begin)
{
    for (const char *at = section; (at = strstr(at, begin)) != NULL; at++)
        if (at[-1] == '\n')
            return;
    fail_msg("docs/reference/protocol.md, STATS: no line \"%s\"", begin);
}

static void the_protocol_has_every_row(void **state)
{
    (void)state;
    size_t n;
    char begin[128], *page = read_file("docs/reference/protocol.md", &n);
    char *section = strstr(page, "\n### STATS\n");
    assert_non_null(section);
    *strstr(section + 1, "\n### ") = '\0';
    for (size_t i = 0; i < N_ROWS; i++) {
        char type[8] = "";
        for (size_t k = 0; rows[i].type[k]; k++)
            type[k] = (char)tolower((unsigned char)rows[i].type[k]);
        snprintf(begin, sizeof begin, "| %u | %s | %s |", rows[i].tag, rows[i].member, type);
        expect_line(section, begin);
    }
    for (size_t i = 0; i < N_TENANT_ROWS; i++) {
        snprintf(begin, sizeof begin, "| %u | %s |", tenant_rows[i].tag,
                 strcmp(tenant_rows[i].type, "U32") == 0 ? "u32" : "u64");
        expect_line(section, begin);
    }
    free(page);
}

static void the_metrics_page_has_every_name(void **state)
{
    (void)state;
    size_t n;
    char name[128], *page = read_file("docs/reference/metrics.md", &n);
    for (size_t i = 0; i < N_ROWS + N_TENANT_ROWS; i++) {
        const struct row *row = i < N_ROWS ? &rows[i] : &tenant_rows[i - N_ROWS];
        if (!row->name)
            continue;
        snprintf(name, sizeof name, "`%s`", row->name);
        if (!strstr(page, name))
            fail_msg("docs/reference/metrics.md: %s is missing", name);
    }
    free(page);
}

/* ---- the rows -------------------------------------------------------------------------------- */

static bool ends(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Names show type and unit, as Prometheus requires. */
static void names_fit(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ROWS + N_TENANT_ROWS; i++) {
        const struct row *row = i < N_ROWS ? &rows[i] : &tenant_rows[i - N_ROWS];
        const bool counts = strncmp(row->shown, "COUNTER", 7) == 0;
        assert_int_equal(row->name == NULL, strcmp(row->shown, "HIDDEN") == 0);
        assert_int_equal(row->name == NULL, row->help == NULL);
        if (!row->name)
            continue;
        if (strncmp(row->name, "vllm:", 5) != 0 && strncmp(row->name, "quire:", 6) != 0)
            fail_msg("%s: belongs to nobody", row->name);
        if (counts != ends(row->name, "_total"))
            fail_msg("%s: a counter ends in _total, and only a counter", row->name);
        if ((strcmp(row->unit, "MICROSECONDS") == 0) != (strstr(row->name, "_seconds") != NULL) ||
            (strcmp(row->unit, "BYTES") == 0) != (strstr(row->name, "_bytes") != NULL) ||
            (strcmp(row->unit, "SHARE") == 0) != ends(row->name, "_perc"))
            fail_msg("%s: does not say its unit, %s", row->name, row->unit);
        for (size_t k = 0; k < i; k++) {
            const char *other = k < N_ROWS ? rows[k].name : tenant_rows[k - N_ROWS].name;
            assert_true(!other || strcmp(other, row->name) != 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_of_before),
        cmocka_unit_test(the_protocol_has_every_row),
        cmocka_unit_test(the_metrics_page_has_every_name),
        cmocka_unit_test(names_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
