#include "app/bulk/model_flags.h"

#include "app/command/command.h"
#include "app/gateway/target_values.h"

#include <stdlib.h>
#include <string.h>

/* The values are read again when the model is opened; here they are only checked. */
struct space {
    struct target_values *values;
    struct target_rows model;
    struct cli_option rows[];
};

bool model_flags_begin(const struct cli_command *command, const struct cli_option *own, size_t n_own, int argc,
                       char **argv, struct model_flags *out, int *code)
{
    struct space *s = calloc(1, sizeof *s + (n_own + TARGET_ROWS_MAX + 1) * sizeof *s->rows);
    *out = (struct model_flags){.options = calloc((size_t)argc + 1, sizeof *out->options)};
    if (s)
        s->values = target_values_create(NULL);
    bool goes_on = s && s->values && out->options;
    if (goes_on) {
        struct cli_command all = *command;
        target_values_rows(s->values, &s->model);
        for (size_t i = 0; i < s->model.n_own; i++) /* a server's: the short help has those of the engine */
            s->model.all[i].common = false;
        memcpy(s->rows, own, n_own * sizeof *own);
        memcpy(s->rows + n_own, s->model.all, (s->model.n + 1) * sizeof *own);
        all.options = s->rows;
        goes_on = command_begin(&all, argc, argv, code);
        out->n = goes_on ? cli_pick(&all, argc, argv, s->rows + n_own, s->model.n, out->options) : 0;
    } else {
        *code = command_fail(1, "out of memory");
    }
    if (s)
        target_values_destroy(s->values);
    free(s);
    if (!goes_on)
        model_flags_end(out);
    return goes_on;
}

void model_flags_end(struct model_flags *f)
{
    free(f->options);
    *f = (struct model_flags){0};
}
