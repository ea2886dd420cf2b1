/* A plan frame, head and payload, as another process may leave them: what is accepted is within bounds and written again to
 * the same bytes; every error is one line of text. The first byte says which step is expected. */
#include "fuzz.h"

#include "parallel/plan_frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct quire_error err = {.text = ""};
    struct plan_frame frame;
    if (n < 1 + PLAN_FRAME_HEAD_BYTES)
        return 0;
    const size_t max_bytes = n - 1 - PLAN_FRAME_HEAD_BYTES;
    unsigned char *copy = malloc(n - 1), again[PLAN_FRAME_HEAD_BYTES];
    if (!copy)
        return 0;
    memcpy(copy, data + 1, n - 1);
    int status = plan_frame_read(copy, data[0], max_bytes, &frame, &err);
    if (status == QUIRE_OK && frame.n_bytes > max_bytes)
        abort();
    if (status == QUIRE_OK)
        status = plan_frame_check(&frame, copy + PLAN_FRAME_HEAD_BYTES, &err);
    if ((status == QUIRE_OK) != !err.text[0])
        abort();
    if (status == QUIRE_OK) {
        plan_frame_write(&frame, copy + PLAN_FRAME_HEAD_BYTES, again);
        if (memcmp(again, copy, sizeof again) != 0)
            abort();
    }
    for (const char *c = err.text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
    free(copy);
    return 0;
}
