/* Lines over two axes, as SVG: by itself a file, and part of a page of HTML. Any thread. */
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
struct plot { /* all borrowed; the texts have no character that means something in HTML */
    const char *title, *x_label, *y_label;
    bool log_x;
    struct plot_line lines[PLOT_MAX_LINES];
    size_t n_lines;
};

/* The y axis begins at 0. Writing may fail as any: ferror(f). */
void plot_draw(FILE *f, const struct plot *p);

#endif
