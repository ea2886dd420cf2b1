/* A recording: read to its end, then, where its scheduler is small, driven. The sums are recomputed first, because
 * no mutation would pass them.
 *
 * input: {u8: 1 = leave the sums as they are; 2 = sections alone} {file or sections}
 */
#include "../fuzz.h"

#include "engine/record/format.h"
#include "engine/record/drive.h"
#include "engine/record/sections.h"

#include <stdlib.h>

static void seal(uint8_t *bytes, size_t n)
{
    for (size_t at = RECORD_SUM_BYTES; n - at >= RECORD_HEAD_BYTES + RECORD_SUM_BYTES && n > at;) {
        uint32_t length = le_load_u32(bytes + at);
        record_sum(bytes + at - RECORD_SUM_BYTES, RECORD_SUM_BYTES + 8, bytes + at + 8, 4);
        if (n - at - RECORD_HEAD_BYTES - RECORD_SUM_BYTES < length)
            return;
        size_t covered = RECORD_HEAD_BYTES + length;
        record_sum(bytes + at - RECORD_SUM_BYTES, RECORD_SUM_BYTES + covered, bytes + at + covered, RECORD_SUM_BYTES);
        at += covered + RECORD_SUM_BYTES;
    }
}

static bool is_small(const struct sched_config *c)
{
    uint64_t n = c->max_num_seqs + (uint64_t)c->max_queued_requests + c->max_logit_rows + c->max_num_batched_tokens +
                 c->max_model_len;
    for (uint32_t g = 0; g < c->kv.n_groups; g++)
        n += (uint64_t)c->kv.groups[g].n_blocks + c->kv.groups[g].n_host_blocks;
    return n < 20000;
}

static void must(bool condition)
{
    if (!condition)
        abort();
}

static uint64_t sum_of(const uint32_t *numbers, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += numbers[i];
    return sum;
}

/* Every list of it. */
static uint64_t read_submit(const struct recording_submit *s)
{
    const struct request_spec *p = s->spec;
    uint64_t sum = sum_of(s->sched.prompt, s->sched.n_prompt) + sum_of(p->stop_token_ids, p->n_stop_token_ids) +
                   sum_of(p->allowed_token_ids, p->n_allowed_token_ids) + sum_of(p->bad_words, p->n_bad_words);
    for (uint32_t i = 0; i < p->n_biases; i++)
        sum += p->biases[i].id;
    return sum;
}

static void read_all(struct recording *r)
{
    struct recording_entry e;
    uint64_t position = recording_position(r), sum = 0;
    int status;
    while ((status = recording_next(r, &e, NULL)) == QUIRE_OK && e.kind != RECORDING_END) {
        must(e.offset == position && recording_position(r) > position);
        position = recording_position(r);
        if (e.kind == RECORDING_SUBMIT)
            sum += read_submit(e.submit);
        if (e.kind == RECORDING_PROPOSE)
            sum += sum_of(e.propose.tokens, e.propose.n);
        for (uint32_t i = 0; e.kind == RECORDING_COMMIT && i < e.commit.n_results; i++)
            sum += e.commit.results[i].tokens[e.commit.results[i].n_accepted];
        for (uint32_t i = 0; e.kind == RECORDING_FINISH && i < e.finish.n; i++)
            sum += e.finish.choices[i].n_tokens;
    }
    must(status != QUIRE_OK || position + recording_left_out(r) == recording_bytes(r));
    static volatile uint64_t read_to_the_end;
    read_to_the_end = sum;
    (void)read_to_the_end;
}

/* A later program's rows, of each kind of value: what is read is written again, and to the same values. */
struct later {
    bool flag;
    bool has_u64;
    uint32_t u32;
    int32_t i32;
    uint64_t u64;
    float f32;
    double f64;
    struct key256 key;
};
#define LATER(kind_, member_, tag_) \
    .member = #member_, .name = #member_, .tag = tag_, .kind = kind_, .flags = REQUEST_MUST, \
    .at = offsetof(struct later, member_)
static const struct request_field later_rows[] = {
    {LATER(REQUEST_BOOL, flag, 1)},
    {LATER(REQUEST_U32, u32, 2), .range = {.least = 0, .most = 1000}},
    {LATER(REQUEST_I32, i32, 3), .range = {.least = -5, .most = 5}},
    {LATER(REQUEST_U64, u64, 4), .has_at = offsetof(struct later, has_u64)},
    {LATER(REQUEST_F32, f32, 5), .range = {.low = 0, .high = 1}},
    {LATER(REQUEST_F64, f64, 6), .range = {.low = 0, .high = 1e9}},
    {LATER(REQUEST_KEY, key, 7)},
};
static const struct later later_defaults;
static const struct request_layout later_layout = {later_rows, 7, &later_defaults, sizeof later_defaults};

static void read_sections(const uint8_t *bytes, size_t n)
{
    struct later first = {0}, second = {0};
    struct body b = {.at = bytes, .end = bytes + n};
    struct buffer again = {0}, third = {0};
    record_sections_read(&b, &later_layout, &first);
    must(b.at == b.end);
    if (b.wrong)
        return;
    must(first.u32 <= 1000 && first.i32 >= -5 && first.i32 <= 5 && first.f32 <= 1 && first.f64 >= 0);
    must(request_layout_put(&again, &later_layout, &first, REQUEST_FOR_RECORDING, NULL) == QUIRE_OK);
    if (again.n)
        b = (struct body){.at = (const uint8_t *)again.data, .end = (const uint8_t *)again.data + again.n};
    else
        b = (struct body){0};
    record_sections_read(&b, &later_layout, &second);
    must(!b.wrong && request_layout_put(&third, &later_layout, &second, REQUEST_FOR_RECORDING, NULL) == QUIRE_OK);
    must(third.n == again.n && (third.n == 0 || memcmp(third.data, again.data, third.n) == 0));
    buffer_free(&again);
    buffer_free(&third);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct recording *r;
    struct recording_run run;
    if (n < 1 + RECORD_SUM_BYTES)
        return 0;
    uint8_t *bytes = malloc(n - 1);
    must(bytes != NULL);
    memcpy(bytes, data + 1, n - 1);
    if (data[0] == 2) {
        read_sections(bytes, n - 1);
        free(bytes);
        return 0;
    }
    if (data[0] != 1)
        seal(bytes, n - 1);
    if (recording_open_memory(bytes, n - 1, &r, NULL) == QUIRE_OK) {
        read_all(r);
        if (is_small(recording_header(r)->config) && recording_drive(r, NULL, NULL, &run, NULL) == QUIRE_OK)
            recording_run_free(&run);
        recording_close(r);
    }
    free(bytes);
    return 0;
}
