/* Options that all parts of quire eval have. Main thread. */
#ifndef QUIRE_TOOLS_EVAL_EVAL_FLAGS_H
#define QUIRE_TOOLS_EVAL_EVAL_FLAGS_H

#include "app/command/cli.h"
#include "tools/eval/session.h"

#include <stdbool.h>
#include <stddef.h>

/* What all have: the text and its windows, and how models are opened. */
struct eval_flags {
    const char *text; /* --text */
    uint32_t window, stride, most_windows;
    struct eval_how how;
    bool json;
};
#define EVAL_FLAGS_MAX 9
/* Sets defaults. Writes the option rows, without a terminating row, and returns their number. without_text: those of the
 * text are left out. */
size_t eval_flags(struct eval_flags *flags, bool without_text, struct cli_option out[EVAL_FLAGS_MAX]);

#define EVAL_MODEL_HELP \
    "MODEL is a directory, a GGUF file or a name in the cache, and may be followed by options of `quire serve`:\n" \
    "MODEL,quantization=int8,kv-cache-dtype=fp8 (also dtype and activation-dtype)."

#endif
