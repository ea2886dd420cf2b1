#include "tools/quantize/calibrate/samples.h"

#include "base/buffer.h"
#include "base/encoding/json.h"
#include "base/encoding/utf8.h"
#include "base/file.h"
#include "text/quire_text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT_BYTES ((size_t)1 << 30)

static bool is_utf8(const struct buffer *text)
{
    size_t at = 0;
    for (size_t n; at < text->n; at += n)
        if ((n = utf8_character((const uint8_t *)text->data + at, text->n - at)) == 0)
            return false;
    return true;
}

static int read_file(const char *path, struct buffer *out, struct quire_error *err)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return quire_fail(err, QUIRE_IO, "--calibration: %.350s: cannot be opened: %m", path);
    int status = buffer_read(out, f, MAX_TEXT_BYTES, path, err);
    fclose(f);
    if (status != QUIRE_OK)
        quire_error_prefix(err, "--calibration");
    return status;
}

/* Replaces the lines by their texts. */
static int join_lines(const char *path, struct buffer *text, struct quire_error *err)
{
    struct buffer joined = {0};
    size_t line = 1;
    int status = QUIRE_OK;
    for (size_t at = 0; status == QUIRE_OK && at < text->n; line++) {
        const char *end = memchr(text->data + at, '\n', text->n - at), *one = NULL;
        const size_t n = end ? (size_t)(end - text->data) - at : text->n - at;
        json_t *json = NULL;
        char where[64];
        snprintf(where, sizeof where, "--calibration: line %zu", line);
        if (n > 0)
            status = quire_json_parse(text->data + at, n, 16, where, &json, err);
        if (status == QUIRE_OK && n > 0)
            status = quire_json_string(json, where, "text", &one, err);
        if (status == QUIRE_OK && n > 0 && !one)
            status = quire_fail(err, QUIRE_INVALID, "%s: text: is missing (of %.200s)", where, path);
        if (one) {
            buffer_append(&joined, one, strlen(one));
            buffer_append(&joined, "\n", 1);
        }
        json_decref(json);
        at += n + 1;
    }
    if (status == QUIRE_OK && joined.failed)
        status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    buffer_free(text);
    *text = joined;
    return status;
}

static int encode(const struct quire_text *tokenizer, const struct buffer *text, uint64_t n_wanted, uint32_t *ids,
                  uint64_t *n_ids, struct quire_error *err)
{
    struct quire_encoder *encoder;
    int status = quire_encoder_open(tokenizer, text->data, text->n, true, &encoder, err);
    *n_ids = 0;
    while (status == QUIRE_OK && *n_ids < n_wanted) {
        const uint32_t *piece;
        size_t n;
        status = quire_encoder_next(encoder, &piece, &n, err);
        if (status != QUIRE_OK || !piece)
            break;
        n = n < n_wanted - *n_ids ? n : (size_t)(n_wanted - *n_ids);
        memcpy(ids + *n_ids, piece, n * sizeof *ids);
        *n_ids += n;
    }
    if (status != QUIRE_OK)
        quire_error_prefix(err, "--calibration");
    quire_encoder_close(encoder);
    return status;
}

static int cut(const char *path, const char *model, const struct buffer *text, uint32_t n,
               struct calibration_samples *out, struct quire_error *err)
{
    struct quire_text *tokenizer = NULL;
    uint64_t n_ids = 0;
    const uint64_t n_wanted = (uint64_t)n * out->length;
    out->ids = malloc(n_wanted * sizeof *out->ids);
    int status = out->ids ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK)
        status = quire_text_open(model, &tokenizer, err);
    if (status == QUIRE_OK)
        status = encode(tokenizer, text, n_wanted, out->ids, &n_ids, err);
    quire_text_close(tokenizer);
    out->n = (uint32_t)(n_ids / out->length);
    if (status == QUIRE_OK && out->n == 0)
        status = quire_fail(err, QUIRE_INVALID,
                            "--calibration: %.250s: has %llu tokens, fewer than one sample of %u "
                            "(--calibration-length)",
                            path, (unsigned long long)n_ids, out->length);
    return status;
}

int calibration_samples_read(const char *path, const char *model, uint32_t n, uint32_t length,
                             struct calibration_samples *out, struct quire_error *err)
{
    struct buffer text = {0};
    const size_t n_path = strlen(path);
    *out = (struct calibration_samples){.length = length};
    int status = read_file(path, &text, err);
    if (status == QUIRE_OK && text.n == 0)
        status = quire_fail(err, QUIRE_INVALID, "--calibration: %.350s: is empty", path);
    if (status == QUIRE_OK && !is_utf8(&text))
        status = quire_fail(err, QUIRE_INVALID, "--calibration: %.350s: is not UTF-8", path);
    if (status == QUIRE_OK && n_path > 6 && strcmp(path + n_path - 6, ".jsonl") == 0)
        status = join_lines(path, &text, err);
    if (status == QUIRE_OK)
        status = cut(path, model, &text, n, out, err);
    buffer_free(&text);
    if (status != QUIRE_OK)
        calibration_samples_free(out);
    return status;
}

void calibration_samples_free(struct calibration_samples *s)
{
    free(s->ids);
    *s = (struct calibration_samples){0};
}
