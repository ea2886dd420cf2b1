/* One token with planes in the lane form, in AVX-512, for kernels/cpu/gemm_quant_lane.c. 16 columns of a row become 16
 * floats in a register and are multiplied by x there, without an intermediate chunk. Four-bit columns use a table: a
 * register holds the 16 possible numbers, less the group's zero point, and each lane selects one by its four bits, so
 * 16 columns take four instructions. */
#ifndef QUIRE_KERNELS_CPU_QUANT_LANE_ONE_H
#define QUIRE_KERNELS_CPU_QUANT_LANE_ONE_H

#define AHEAD_ROWS 4u /* distance in rows of the prefetch */

/* Loads sixteen FP8 numbers. Shifted into position, e4m3 is f16 with another bias, 2^8 less. Its one NaN becomes a
 * number. */
CPU_INLINE lanes lanes_load_fp8(const uint8_t *p, const enum k_dtype kind)
{
    const __m256i size = _mm256_set1_epi16(0x3f80);
    if (kind == K_E5M2)
        return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(load_16(p)), 8));
    const __m256i h = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(load_16(p)), 7),
                                       _mm256_set1_epi16((short)0xbf80));
    const __mmask16 is_number = _mm256_cmpneq_epi16_mask(_mm256_and_si256(h, size), size);
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(-1));
    return _mm512_mask_mul_ps(nan, is_number, _mm512_cvtph_ps(h), _mm512_set1_ps(256.0f));
}

/* meaning: the number for each four-bit value. */
CPU_INLINE lanes sixteen_columns(const uint8_t *p, const enum k_dtype kind, const uint32_t bits, lanes meaning)
{
    if (kind == K_E4M3 || kind == K_E5M2)
        return lanes_load_fp8(p, kind);
    if (bits == 8)
        return lanes_load_i8(p);
    const __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i eight = _mm512_set1_epi32((int)word_at(p));
    const __m512i all = _mm512_mask_set1_epi32(eight, 0xff00, (int)word_at(p + 4));
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(all, shifts), meaning);
}

/* Returns the numbers for the four-bit values in a row's group. */
CPU_INLINE lanes meaning_of_4(const struct k_weight_view *w, uint32_t row, uint32_t group)
{
    if (w->format.kind == K_E2M1)
        return _mm512_setr_ps(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const int zero = w->zero_points ? w->zero_points[(uint64_t)row * plane_groups(w) + group] : 8;
    return lanes_sub(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), lanes_splat((float)zero));
}

/* Computes rows [row, row + n_rows), at most ROWS. */
CPU_INLINE void rows_one(const struct cpu_gemm *g, const struct host_part *part, const enum k_dtype kind,
                         const uint32_t bits, uint32_t row, uint32_t n_rows)
{
    const struct k_weight_view *w = &part->view;
    const float *x = g->args.workspace_dev;
    float y[K_SEGMENTS][ROWS] = {0};
    const uint8_t *data[ROWS];
    uint64_t scales[ROWS];
    lanes a[ROWS], sum[ROWS], meaning[ROWS];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < ROWS; i++) { /* missing rows repeat the last one */
        const uint32_t r = i < n_rows ? row + i : row + n_rows - 1;
        data[i] = (const uint8_t *)w->data + (uint64_t)r * w->row_stride_bytes;
        scales[i] = k_scale_row(w, r) * plane_groups(w);
        a[i] = sum[i] = meaning[i] = lanes_zero();
    }
    for (uint32_t n = 0; n < g->n_runs; n++) {
        const struct cpu_quant_run *run = &g->runs[n];
        const uint32_t group = w->format.group ? run->column / w->format.group : 0;
        for (uint32_t i = 0; i < ROWS && run->step == 0; i++)
            prefetch_chunk(w, K_PACKING_PLANES, row + AHEAD_ROWS + i, run->column,
                           w->n_cols - run->column < CHUNK ? w->n_cols - run->column : CHUNK);
        if (!run->is_rest) {
#pragma GCC unroll 4
            for (uint32_t i = 0; i < ROWS; i++) {
                sum[i] = lanes_zero();
                if (bits == 4)
                    meaning[i] = meaning_of_4(w, i < n_rows ? row + i : row + n_rows - 1, group);
            }
        }
        for (uint32_t k = run->column, end = k + run->n_steps * 4u; k < end; k += 16) {
            const lanes v = lanes_load_f32(x + k);
#pragma GCC unroll 4
            for (uint32_t i = 0; i < ROWS; i++)
                sum[i] = lanes_fma(sixteen_columns(data[i] + (uint64_t)k * bits / 8, kind, bits, meaning[i]), v,
                                   sum[i]);
        }
        if (!run->ends)
            continue;
#pragma GCC unroll 4
        for (uint32_t i = 0; i < ROWS; i++)
            a[i] = lanes_fma(lanes_splat(plane_scale(w, scales[i] + group)), sum[i], a[i]);
        if (n + 1 < g->n_runs && run[1].segment == run->segment)
            continue;
#pragma GCC unroll 4
        for (uint32_t i = 0; i < ROWS; i++) {
            y[run->segment][i] = lanes_fold(a[i]);
            a[i] = lanes_zero();
        }
    }
    cpu_put_sums(g, part, row, n_rows, 0, 1, y[0], 1, ROWS);
}

/* One copy for each kind. */
#define PART_ONE(name, kind, bits) \
    static void part_one_##name(const struct cpu_gemm *g, const struct host_part *part, uint32_t begin, uint32_t end) \
    { \
        for (uint32_t row = begin; row < end; row += ROWS) \
            rows_one(g, part, kind, bits, row, end - row < ROWS ? end - row : ROWS); \
    }
PART_ONE(int4, K_INT, 4)
PART_ONE(int8, K_INT, 8)
PART_ONE(e2m1, K_E2M1, 4)
PART_ONE(e4m3, K_E4M3, 8)
PART_ONE(e5m2, K_E5M2, 8)

/* Returns whether it computed the rows. Otherwise the chunk loops do, which also handle a row end that is not a
 * multiple of 16. */
static bool part_one(const struct cpu_gemm *g, const struct host_part *part, uint32_t begin, uint32_t end)
{
    const struct k_format format = part->view.format;
    if (g->args.n_tokens != 1 || format.packing != K_PACKING_PLANES || part->view.n_cols % 16 != 0)
        return false;
    if (format.kind == K_E4M3)
        part_one_e4m3(g, part, begin, end);
    else if (format.kind == K_E5M2)
        part_one_e5m2(g, part, begin, end);
    else if (format.kind == K_E2M1)
        part_one_e2m1(g, part, begin, end);
    else if (format.bits == 4)
        part_one_int4(g, part, begin, end);
    else
        part_one_int8(g, part, begin, end);
    return true;
}

#endif
