/* A text as tokens, in windows that a model scores. A window begins `stride` tokens after the one before it and scores
 * the tokens that no window before it scored; the first scores all but its first token, which nothing predicts. Any
 * thread on its own values. */
#ifndef QUIRE_TOOLS_EVAL_WINDOWS_H
#define QUIRE_TOOLS_EVAL_WINDOWS_H

#include "base/status.h"
#include "text/quire_text.h"

#include <stddef.h>
#include <stdint.h>

struct eval_windows {
    uint32_t *ids; /* [n_ids], owned */
    size_t n_ids;
    uint32_t window, stride, n; /* n: windows */
};
struct eval_window {
    const uint32_t *ids;
    uint32_t n;      /* tokens */
    uint32_t scored; /* the last so many are scored */
};

/* Reads a file of UTF-8 text, with what the tokenizer puts before a text. stride 0: the window's length. most: of the
 * windows, 0: all. QUIRE_INVALID for a text that has fewer than two tokens. The caller calls eval_windows_free(). */
int eval_windows_read(const char *path, const struct quire_text *text, uint32_t window, uint32_t stride, uint32_t most,
                      struct eval_windows *out, struct quire_error *err);
void eval_windows_free(struct eval_windows *w);
struct eval_window eval_window_at(const struct eval_windows *w, uint32_t i);

#endif
