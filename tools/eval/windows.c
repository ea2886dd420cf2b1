#include "tools/eval/windows.h"

#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT_BYTES ((size_t)256 << 20)

static int encode(const char *path, const struct buffer *bytes, const struct quire_text *text, struct eval_windows *out,
                  struct quire_error *err)
{
    struct quire_encoder *encoder = NULL;
    const uint32_t *ids;
    size_t n, capacity = 0;
    int status = quire_encoder_open(text, bytes->data ? bytes->data : "", bytes->n, true, &encoder, err);
    while (status == QUIRE_OK && (status = quire_encoder_next(encoder, &ids, &n, err)) == QUIRE_OK && ids) {
        if (out->n_ids + n > capacity) {
            capacity = 2 * (out->n_ids + n);
            uint32_t *more = realloc(out->ids, capacity * sizeof *more);
            if (!more)
                status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
            out->ids = more ? more : out->ids;
        }
        if (status == QUIRE_OK)
            memcpy(out->ids + out->n_ids, ids, n * sizeof *ids);
        out->n_ids += n;
    }
    if (encoder)
        quire_encoder_close(encoder);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "--text: %.200s", path);
    return status;
}

int eval_windows_read(const char *path, const struct quire_text *text, uint32_t window, uint32_t stride, uint32_t most,
                      struct eval_windows *out, struct quire_error *err)
{
    struct buffer bytes = {0};
    *out = (struct eval_windows){.window = window, .stride = stride ? stride : window};
    if (out->stride > window)
        return quire_fail(err, QUIRE_INVALID, "--stride %u: is longer than the window of %u tokens", stride, window);
    FILE *file = fopen(path, "rbe");
    if (!file)
        return quire_fail(err, QUIRE_NOT_FOUND, "--text: %.300s: %s", path, strerror(errno));
    int status = buffer_read(&bytes, file, MAX_TEXT_BYTES, path, err);
    fclose(file);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "--text");
    if (status == QUIRE_OK)
        status = encode(path, &bytes, text, out, err);
    buffer_free(&bytes);
    if (status == QUIRE_OK && out->n_ids < 2)
        status = quire_fail(err, QUIRE_INVALID, "--text: %.300s: has %zu tokens; a text of two or more is needed", path,
                            out->n_ids);
    if (status != QUIRE_OK) {
        eval_windows_free(out);
        return status;
    }
    const size_t past = out->n_ids > window ? out->n_ids - window : 0;
    const size_t n = 1 + (past + out->stride - 1) / out->stride;
    out->n = (uint32_t)(most && n > most ? most : n);
    return QUIRE_OK;
}

void eval_windows_free(struct eval_windows *w)
{
    free(w->ids);
    w->ids = NULL;
}

struct eval_window eval_window_at(const struct eval_windows *w, uint32_t i)
{
    const size_t begin = (size_t)i * w->stride, left = w->n_ids - begin;
    struct eval_window out = {.ids = w->ids + begin, .n = (uint32_t)(left < w->window ? left : w->window)};
    const size_t seen = i ? begin - w->stride + w->window : begin + 1; /* the end of what was scored */
    const size_t end = begin + out.n, first = seen > begin + 1 ? seen : begin + 1;
    out.scored = (uint32_t)(end > first ? end - first : 0);
    return out;
}
