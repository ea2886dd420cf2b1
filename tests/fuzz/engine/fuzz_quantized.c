/* config.json and, after a NUL byte, a safetensors image. Every view lies inside the image or the arena that was
 * counted for it, and all its elements and scales can be read, also those of a plain matrix that is quantized. */
#include "../fuzz.h"

#include "base/encoding/json.h"
#include "engine/model/quantization/quantize.h"
#include "engine/model/quantization/quantized.h"
#include "kernels/quant.h"
#include "kernels/weight_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 16u
#define COLS 64u

static void read_view(const struct k_weight_view *v, uint32_t want_rows)
{
    float q[1], scale, least;
    uint32_t n_rows;
    struct quire_error err;
    if (k_weight_check(v, 1, &n_rows, &err) != QUIRE_OK || n_rows != want_rows || v->n_cols != COLS)
        abort();
    for (uint32_t n = 0; n < n_rows; n++)
        for (uint32_t k = 0; k < COLS; k++) {
            k_quant_read(v, n, k, k + 1, q);
            k_quant_scale(v, n, k, &scale, &least);
            if (!isfinite(scale) || scale == 0)
                abort();
        }
}

static void view(const struct checkpoint *st, const struct quantization *how, struct quantized_place place,
                 uint32_t first_row)
{
    struct quantized_matrix m = {.checkpoint = st,
                                 .how = how,
                                 .name = "m",
                                 .n_rows = ROWS - first_row,
                                 .n_cols = COLS,
                                 .all_rows = ROWS,
                                 .first_row = first_row,
                                 .place = place,
                                 .n_threads = 1,
                                 .is_read = true};
    struct quantized_arena counted = {0}, made = {0};
    struct k_weight_view v;
    struct quire_error err;
    if (!quantized_has(&m) || quantized_view(&m, &counted, &v, &err) != QUIRE_OK)
        return;
    made.base = aligned_alloc(64, counted.used ? counted.used : 64);
    if (!made.base)
        return;
    if (quantized_view(&m, &made, &v, &err) == QUIRE_OK) {
        if (made.used != counted.used)
            abort();
        read_view(&v, m.n_rows);
    }
    free(made.base);
}

static void quantize(const struct checkpoint *st, enum k_packing packing)
{
    struct checkpoint_tensor t;
    struct quantized_arena counted = {0}, made = {0};
    struct k_weight_view v;
    struct quire_error err;
    float q[1], scale, least;
    if (checkpoint_find(st, "m.weight", &t, NULL) != QUIRE_OK || !k_format_is_plain(t.format) || t.n_dims != 2 ||
        t.shape[0] != ROWS || t.shape[1] != COLS)
        return;
    const struct quantize making = {.tensor = &t,
                                    .to = packing == K_PACKING_PLANES ? k_format_of_planes(K_E4M3, 8, 128, K_F32)
                                                                      : k_format_of_blocks(packing),
                                    .n_rows = ROWS,
                                    .n_cols = COLS,
                                    .n_threads = 1};
    if (quantize_view(&making, &counted, &v, &err) != QUIRE_OK || !(made.base = aligned_alloc(64, counted.used)))
        abort();
    if (quantize_view(&making, &made, &v, &err) == QUIRE_OK)
        for (uint32_t i = 0; i < ROWS * COLS; i++) {
            k_quant_read(&v, i / COLS, i % COLS, i % COLS + 1, q);
            k_quant_scale(&v, i / COLS, i % COLS, &scale, &least);
            if (!isfinite(scale) || !isfinite(q[0]))
                abort();
        }
    free(made.base);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *split = n ? memchr(data, 0, n) : NULL;
    const size_t n_config = split ? (size_t)(split - data) : n;
    struct quantization how;
    struct quire_error err;
    json_t *config = NULL;
    struct checkpoint *st = NULL;
    uint8_t *image = NULL;
    int status = quire_json_parse((const char *)data, n_config, 64, "config.json", &config, &err);
    if (status == QUIRE_OK && json_is_object(config))
        status = quantization_read(config, &how, &err);
    if (status == QUIRE_OK && json_is_object(config) && split && (image = malloc(n - n_config)) != NULL) {
        memcpy(image, split + 1, n - n_config - 1); /* on a boundary of its own */
        if (checkpoint_open_memory(image, n - n_config - 1, &st, &err) == QUIRE_OK) {
            view(st, &how, (struct quantized_place){.count = 0}, 0);
            view(st, &how, (struct quantized_place){.count = 0}, 9);
            view(st, &how, (struct quantized_place){.count = 3, .index = 2, .first = 1, .step = 2}, 0);
            quantize(st, K_PACKING_Q8_0);
            quantize(st, K_PACKING_Q4_0);
            quantize(st, K_PACKING_PLANES);
        }
        checkpoint_close(st);
    }
    free(image);
    json_decref(config);
    return 0;
}
