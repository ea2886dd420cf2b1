/* Frames for a rank, as another process may leave them: options, a step, moves. An accepted frame is within the
 * rank's limits and is written again to the same bytes. Every error is one line of text. The first byte selects one
 * of the three. */
#include "../fuzz.h"

#include "engine/ranks/setup.h"
#include "engine/ranks/step_frame.h"

#include <stdlib.h>
#include <string.h>

static const struct step_limits limits = {.n_groups = 2,
                                          .block_tokens = 8,
                                          .n_blocks = {10, 6},
                                          .n_host_blocks = {4, 2},
                                          .windows = {0, 16},
                                          .n_tokens = 64,
                                          .n_rows = 16,
                                          .n_outputs = 16,
                                          .n_entries = 64,
                                          .vocab_size = 100,
                                          .n_positions = 40};

static void check_text(int status, const struct quire_error *err)
{
    if ((status == QUIRE_OK) != !err->text[0])
        abort();
    for (const char *c = err->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
}

static void read_setup(const uint8_t *data, size_t n)
{
    static char texts[SETUP_MAX_BYTES];
    static unsigned char again[SETUP_MAX_BYTES];
    struct quire_error err = {.text = ""};
    struct engine_options options = {.model_dir = NULL};
    size_t n_again;
    int status = setup_read(data, n, texts, &options, &err);
    check_text(status, &err);
    if (status != QUIRE_OK)
        return;
    if (setup_write(&options, again, &n_again, &err) != QUIRE_OK || n_again != n || memcmp(again, data, n) != 0)
        abort();
}

static void read_step(const uint8_t *data, size_t n)
{
    static uint32_t ids[64], positions[64], slots[2][64], tables[2][64], logits[16];
    static struct k_attn_row rows[16];
    static unsigned char again[65536];
    struct quire_error err = {.text = ""};
    struct step_sizes s;
    int status = step_frame_sizes(&limits, data, n, &s, &err);
    if (status == QUIRE_OK) {
        struct forward_batch b = {.n_tokens = s.n_tokens,
                                  .n_rows = s.n_rows,
                                  .n_outputs = s.n_outputs,
                                  .n_entries = s.n_entries,
                                  .ids = ids,
                                  .positions = positions,
                                  .slots = {slots[0], slots[1]},
                                  .tables = {tables[0], tables[1]},
                                  .rows = rows,
                                  .output_tokens = logits};
        status = step_frame_read(&limits, data, &b, &err);
        if (status == QUIRE_OK && (step_frame_write(&limits, &b, again) != n || memcmp(again, data, n) != 0))
            abort();
    }
    check_text(status, &err);
}

static void read_moves(const uint8_t *data, size_t n)
{
    struct quire_error err = {.text = ""};
    struct kv_move *moves = malloc(n + 1);
    unsigned char *again = malloc(n + 1);
    uint32_t n_moves;
    if (moves && again) {
        int status = moves_frame_read(&limits, data, n, moves, &n_moves, &err);
        check_text(status, &err);
        if (status == QUIRE_OK && (moves_frame_write(moves, n_moves, again) != n || memcmp(again, data, n) != 0))
            abort();
    }
    free(moves);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    switch (data[0] % 3) {
    case 0: read_setup(data + 1, n - 1); break;
    case 1: read_step(data + 1, n - 1); break;
    default: read_moves(data + 1, n - 1); break;
    }
    return 0;
}
