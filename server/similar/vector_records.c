#include "server/similar/vector_records.h"

#include "base/encoding/little_endian.h"

#include <string.h>

#define VERSION 1u
#define KIND_VECTOR 1u
#define KIND_GONE 2u
#define SUM_BYTES 8u

static const char magic[8] = {'Q', 'u', 'i', 'r', 'e', 'V', 'e', 'c'};
static const char label[QUIRE_HASH_LABEL_BYTES] = "quire vectors 1";

static uint64_t sum_of(const uint8_t *bytes, size_t n)
{
    return le_load_u64(quire_labelled_hash(label, bytes, n).bytes);
}

static void end_with_sum(struct buffer *to, uint8_t *begin, size_t n_bytes)
{
    le_store_u64(begin + n_bytes - SUM_BYTES, sum_of(begin, n_bytes - SUM_BYTES));
    to->n += n_bytes;
}

void vector_records_head(struct buffer *to, const struct key256 *identity, uint32_t n_numbers)
{
    uint8_t *p = buffer_reserve(to, VECTOR_HEAD_BYTES);
    if (!p)
        return;
    memcpy(p, magic, sizeof magic);
    le_store_u32(p + 8, VERSION);
    le_store_u32(p + 12, n_numbers);
    memcpy(p + 16, identity, sizeof *identity);
    end_with_sum(to, p, VECTOR_HEAD_BYTES);
}

void vector_records_add(struct buffer *to, const struct key256 *context, const float *vector, uint32_t n_numbers,
                        const struct key256 *answer, int64_t expires_ms)
{
    const size_t n_bytes = vector_record_bytes(n_numbers);
    uint8_t *p = buffer_reserve(to, n_bytes);
    if (!p)
        return;
    le_store_u32(p, KIND_VECTOR);
    le_store_u32(p + 4, 0);
    memcpy(p + 8, answer, sizeof *answer);
    memcpy(p + 40, context, sizeof *context);
    le_store_u64(p + 72, (uint64_t)expires_ms);
    for (uint32_t i = 0; i < n_numbers; i++) {
        uint32_t bits;
        memcpy(&bits, vector + i, sizeof bits);
        le_store_u32(p + 80 + (size_t)i * 4, bits);
    }
    end_with_sum(to, p, n_bytes);
}

void vector_records_gone(struct buffer *to, const struct key256 *answer)
{
    uint8_t *p = buffer_reserve(to, VECTOR_GONE_BYTES);
    if (!p)
        return;
    le_store_u32(p, KIND_GONE);
    le_store_u32(p + 4, 0);
    memcpy(p + 8, answer, sizeof *answer);
    end_with_sum(to, p, VECTOR_GONE_BYTES);
}

/* The length of the record that begins here; 0 for an unknown kind. */
static size_t bytes_of(const uint8_t *p, uint32_t n_numbers)
{
    const uint32_t kind = le_load_u32(p);
    if (le_load_u32(p + 4) != 0)
        return 0;
    return kind == KIND_VECTOR ? vector_record_bytes(n_numbers) : kind == KIND_GONE ? VECTOR_GONE_BYTES : 0;
}

static int check_head(const uint8_t *bytes, size_t n, const struct key256 *identity, uint32_t n_numbers,
                      struct quire_error *err)
{
    if (n < VECTOR_HEAD_BYTES || memcmp(bytes, magic, sizeof magic) != 0)
        return quire_fail(err, QUIRE_INVALID, "is not a file of vectors");
    if (le_load_u32(bytes + 8) != VERSION)
        return quire_fail(err, QUIRE_INVALID, "has version %u, not %u", le_load_u32(bytes + 8), VERSION);
    if (le_load_u64(bytes + VECTOR_HEAD_BYTES - SUM_BYTES) != sum_of(bytes, VECTOR_HEAD_BYTES - SUM_BYTES))
        return quire_fail(err, QUIRE_INVALID, "its head is damaged");
    if (le_load_u32(bytes + 12) != n_numbers || memcmp(bytes + 16, identity, sizeof *identity) != 0)
        return quire_fail(err, QUIRE_INVALID, "holds vectors of another model");
    return QUIRE_OK;
}

/* Is the record at `at`, which is not whole, where writing ended when the power failed? A file system may have made the file longer
 * by then without its blocks: from somewhere in the record to the end of the file all is zero. */
static bool ends_in_zeros(const uint8_t *bytes, size_t n, size_t at, size_t n_bytes)
{
    const size_t from = n_bytes > 0 ? at + n_bytes - 1 : at;
    for (size_t i = from; i < n; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

int vector_records_check(const uint8_t *bytes, size_t n, const struct key256 *identity, uint32_t n_numbers,
                         size_t *n_whole, struct quire_error *err)
{
    const int status = check_head(bytes, n, identity, n_numbers, err);
    if (status != QUIRE_OK)
        return status;
    size_t at = VECTOR_HEAD_BYTES;
    while (n - at >= 8) {
        const size_t n_bytes = bytes_of(bytes + at, n_numbers);
        if (n_bytes > n - at)
            break;
        if (n_bytes == 0 || le_load_u64(bytes + at + n_bytes - SUM_BYTES) != sum_of(bytes + at, n_bytes - SUM_BYTES)) {
            if (ends_in_zeros(bytes, n, at, n_bytes))
                break;
            return quire_fail(err, QUIRE_INVALID, "the record at byte %zu is damaged", at);
        }
        at += n_bytes;
    }
    *n_whole = at;
    return QUIRE_OK;
}

static struct vector_record read_record(const uint8_t *p)
{
    const bool is_vector = le_load_u32(p) == KIND_VECTOR;
    struct vector_record r = {.vector = is_vector ? p + 80 : NULL};
    memcpy(&r.answer, p + 8, sizeof r.answer);
    if (is_vector) {
        memcpy(&r.context, p + 40, sizeof r.context);
        r.expires_ms = (int64_t)le_load_u64(p + 72);
    }
    return r;
}

bool vector_records_next(const uint8_t *bytes, size_t n_whole, uint32_t n_numbers, size_t *at,
                         struct vector_record *out)
{
    if (*at == 0)
        *at = VECTOR_HEAD_BYTES;
    if (*at >= n_whole)
        return false;
    *out = read_record(bytes + *at);
    *at += bytes_of(bytes + *at, n_numbers);
    return true;
}

bool vector_record_check(const uint8_t *bytes, size_t n, uint32_t n_numbers, struct vector_record *out)
{
    if (n < VECTOR_GONE_BYTES || bytes_of(bytes, n_numbers) != n ||
        le_load_u64(bytes + n - SUM_BYTES) != sum_of(bytes, n - SUM_BYTES))
        return false;
    *out = read_record(bytes);
    return true;
}

void vector_record_numbers(const struct vector_record *r, uint32_t n_numbers, float *out)
{
    for (uint32_t i = 0; i < n_numbers; i++) {
        const uint32_t bits = le_load_u32(r->vector + (size_t)i * 4);
        memcpy(out + i, &bits, sizeof bits);
    }
}
