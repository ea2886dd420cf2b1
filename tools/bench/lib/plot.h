/* Line charts as SVG: a file by itself, or part of an HTML page. Any thread. */
#ifndef QUIRE_TOOLS_BENCH_PLOT_H
#define QUIRE_TOOLS_BENCH_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define PLOT_MAX_LINES 8

struct plot_line {
    const char *name;
    const double *x, *y;
    size_t n;
};
struct plot { /* all borrowed; the texts contain no HTML special characters */
    const char *title, *x_label, *y_label;
    bool log_x;
    struct plot_line lines[PLOT_MAX_LINES];
    size_t n_lines;
};

/* The y axis begins at 0. Write errors: ferror(f). */
void plot_draw(FILE *f, const struct plot *p);

#endif
