/* A file of vectors is rejected by name, or every record of it can be read and added to an index. The sums of the
 * head and of the records are corrected, so that the checks behind them are reached. The first byte is the number of
 * records to correct. */
#include "fuzz.h"

#include "base/encoding/little_endian.h"
#include "server/similar/vector_index.h"
#include "server/similar/vector_records.h"

#include <stdlib.h>
#include <string.h>

#define N_NUMBERS 3u

static void make_right(uint8_t *at, size_t n)
{
    static const char label[QUIRE_HASH_LABEL_BYTES] = "quire vectors 1";
    const struct key256 sum = quire_labelled_hash(label, at, n - 8);
    memcpy(at + n - 8, &sum, 8);
}

static void make_sums(uint8_t *bytes, size_t n, uint32_t n_records)
{
    if (n < VECTOR_HEAD_BYTES)
        return;
    make_right(bytes, VECTOR_HEAD_BYTES);
    for (size_t at = VECTOR_HEAD_BYTES; n_records > 0 && n - at >= VECTOR_GONE_BYTES; n_records--) {
        const size_t n_bytes = le_load_u32(bytes + at) == 1 ? vector_record_bytes(N_NUMBERS) : VECTOR_GONE_BYTES;
        if (n_bytes > n - at)
            return;
        make_right(bytes + at, n_bytes);
        at += n_bytes;
    }
}

/* One alone, as it comes from others: the same. */
static void read_one(const uint8_t *bytes, size_t n)
{
    struct vector_record r;
    float v[N_NUMBERS];
    if (n < VECTOR_GONE_BYTES || !vector_record_check(bytes, n, N_NUMBERS, &r))
        return;
    if (n != (r.vector ? vector_record_bytes(N_NUMBERS) : VECTOR_GONE_BYTES))
        abort();
    if (r.vector)
        vector_record_numbers(&r, N_NUMBERS, v);
}

static void walk(const uint8_t *bytes, size_t n_whole)
{
    struct vector_index *x = vector_index_create(N_NUMBERS, 4);
    struct vector_record r;
    size_t at = 0;
    if (!x)
        return;
    while (vector_records_next(bytes, n_whole, N_NUMBERS, &at, &r)) {
        float v[N_NUMBERS];
        if (!r.vector) {
            vector_index_remove(x, &r.answer);
            continue;
        }
        memcpy(v, r.vector, sizeof v);
        (void)vector_index_add(x, &r.context, v, &r.answer, r.expires_ms);
    }
    if (at != n_whole)
        abort();
    vector_index_free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct quire_error err = {.text = ""};
    const struct key256 identity = {{0}};
    size_t n_whole = 0;
    if (n < 1)
        return 0;
    uint8_t *copy = malloc(n > 1 ? n - 1 : 1); /* of exact size, so that a read beyond the end is detected */
    if (!copy)
        return 0;
    memcpy(copy, data + 1, n - 1);
    make_sums(copy, n - 1, data[0]);
    if (n - 1 >= VECTOR_HEAD_BYTES + VECTOR_GONE_BYTES) {
        uint8_t *alone = malloc(n - 1 - VECTOR_HEAD_BYTES);
        if (alone) {
            memcpy(alone, copy + VECTOR_HEAD_BYTES, n - 1 - VECTOR_HEAD_BYTES);
            read_one(alone, n - 1 - VECTOR_HEAD_BYTES);
            read_one(alone, vector_record_bytes(N_NUMBERS) < n - 1 - VECTOR_HEAD_BYTES ? vector_record_bytes(N_NUMBERS)
                                                                                       : VECTOR_GONE_BYTES);
        }
        free(alone);
    }
    if (vector_records_check(copy, n - 1, &identity, N_NUMBERS, &n_whole, &err) != QUIRE_OK) {
        if (!err.text[0])
            abort();
    } else {
        if (n_whole > n - 1)
            abort();
        walk(copy, n_whole);
    }
    free(copy);
    return 0;
}
