#include "engine/model/quantization/repack_rows.h"

#include "base/encoding/little_endian.h"
#include "engine/model/quantization/row_threads.h"

#define BAND 64u /* rows that are made together: so many words of a cache line are used at once */

/* Where AWQ puts row j of 8 in a word. */
static const uint8_t awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t repack_rows_element(const struct repack_rows *r, uint32_t k, uint32_t n)
{
    const uint32_t per_word = 32 / r->bits, mask = (1u << r->bits) - 1;
    const uint64_t row_words = (r->n_cols + per_word - 1) / per_word;
    uint64_t word;
    uint32_t place;
    switch (r->source) {
    case REPACK_ROWS_ALONG_K:
        word = (uint64_t)(k / per_word) * r->all_rows + n;
        place = k % per_word;
        break;
    case REPACK_ROWS_ALONG_N:
        word = (uint64_t)k * (r->all_rows / 8) + n / 8;
        place = awq_place[n % 8];
        break;
    case REPACK_ROWS_BY_ROW:
    default:
        word = n * row_words + k / per_word;
        place = k % per_word;
        break;
    }
    return le_load_u32(r->words + word * 4) >> place * r->bits & mask;
}

/* Rows [first, last), whose words lie along K: a word is 4 bytes of the plane. */
static void transpose_words(const struct repack_rows *r, uint32_t first, uint32_t last)
{
    const uint64_t stride = (uint64_t)r->n_cols * r->bits / 8;
    const uint32_t flip = r->bits == 8 ? 0x80808080u : 0;
    const uint8_t *words = r->words + (uint64_t)r->first_row * 4;
    for (uint32_t n = first; n < last; n += BAND)
        for (uint64_t w = 0; w < stride / 4; w++)
            for (uint32_t i = n; i < last && i < n + BAND; i++)
                le_store_u32(r->plane + i * stride + w * 4, le_load_u32(words + (w * r->all_rows + i) * 4) ^ flip);
}

static void one_by_one(const struct repack_rows *r, uint32_t first, uint32_t last)
{
    const uint64_t stride = (uint64_t)r->n_cols * r->bits / 8;
    for (uint32_t n0 = first; n0 < last; n0 += BAND)
        for (uint32_t i = 0; i < r->n_cols; i++) {
            const uint32_t k = r->permutation ? r->permutation[i] : i;
            for (uint32_t n = n0; n < last && n < n0 + BAND; n++) {
                const uint32_t e = repack_rows_element(r, k, r->first_row + n);
                uint8_t *row = r->plane + n * stride;
                if (r->bits == 8)
                    row[i] = (uint8_t)(e ^ 0x80);
                else
                    row[i / 2] = (uint8_t)(i % 2 ? row[i / 2] | e << 4 : e);
            }
        }
}

static void run_share(void *context, uint32_t share, uint32_t first, uint32_t last)
{
    const struct repack_rows *r = context;
    (void)share;
    if (r->source == REPACK_ROWS_ALONG_K && !r->permutation)
        transpose_words(r, first, last);
    else
        one_by_one(r, first, last);
}

void repack_rows_run(const struct repack_rows *r, uint32_t n_threads)
{
    struct repack_rows copy = *r;
    row_threads_run(r->n_rows, 1, (uint64_t)r->n_rows * r->n_cols * r->bits / 8, n_threads, run_share, &copy);
}
