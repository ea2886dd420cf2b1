/* A file of pairs: an accepted file has a line and two texts, and the computed statistics are plausible. */
#include "fuzz.h"

#include "tools/cache/calibration.h"
#include "tools/cache/pairs_file.h"

#include <stdlib.h>
#include <string.h>

static void check(const struct pairs_file *file)
{
    static struct calibration c;
    struct calibration_pair *rated = calloc(file->n, sizeof *rated);
    if (!rated)
        abort();
    for (size_t i = 0; i < file->n; i++) {
        const struct pair *p = &file->pairs[i];
        if (p->line == 0 || !p->text[0] || !p->text[1] || !p->text[0][0] || !p->text[1][0])
            abort();
        rated[i] = (struct calibration_pair){.similarity = (double)strlen(p->text[0]) / (double)strlen(p->text[1]),
                                             .same = p->same,
                                             .guard = p->line % N_GUARDS};
    }
    calibrate(rated, file->n, &c);
    for (int guarded = 0; guarded < 2; guarded++)
        for (int step = 1; step <= CALIBRATION_STEPS; step++) {
            const struct calibration_point *p = &c.points[guarded][step];
            if (p->n_wrong > p->n_answered || p->n_answered > p[-1].n_answered || calibration_recall(&c, p) > 1)
                abort();
        }
    free(rated);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct pairs_file file;
    struct quire_error err = {.text = ""};
    if (pairs_file_parse((const char *)data, n, "pairs", &file, &err) == QUIRE_OK) {
        check(&file);
    } else {
        for (const char *c = err.text; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                abort();
    }
    pairs_file_free(&file);
    return 0;
}
