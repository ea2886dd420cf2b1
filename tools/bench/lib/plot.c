#include "tools/bench/lib/plot.h"

#include <math.h>
#include <string.h>

#define WIDTH 560.0
#define HEIGHT 280.0
#define LEFT 64.0
#define RIGHT 14.0
#define TOP 30.0
#define BOTTOM 42.0
#define LEGEND_ROW 16.0

/* Okabe and Ito's colours, which colour-blind people can distinguish; lines also differ by their dashes. */
static const char *const colours[PLOT_MAX_LINES] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                    "#56b4e9", "#e69f00", "#7a5195", "#666666"};
static const char *const dashes[PLOT_MAX_LINES] = {"", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 2", "6 2 1 2 1 2"};

struct range {
    double low, high;
};

static struct range range_of(const struct plot *p, bool of_x)
{
    struct range r = {INFINITY, -INFINITY};
    for (size_t l = 0; l < p->n_lines; l++) {
        for (size_t i = 0; i < p->lines[l].n; i++) {
            double v = of_x ? p->lines[l].x[i] : p->lines[l].y[i];
            r.low = fmin(r.low, v);
            r.high = fmax(r.high, v);
        }
    }
    if (!(r.low <= r.high))
        r = (struct range){0, 1};
    if (of_x && p->log_x) {
        r.low = pow(10, floor(log10(fmax(r.low, 1e-3))));
        r.high = pow(10, ceil(log10(fmax(r.high, r.low * 1.01))));
    } else if (!of_x) {
        r.low = 0;
    }
    if (r.high <= r.low)
        r.high = r.low + 1;
    return r;
}

static double place_x(const struct plot *p, struct range r, double x)
{
    double part = p->log_x ? log10(fmax(x, r.low) / r.low) / log10(r.high / r.low) : (x - r.low) / (r.high - r.low);
    return LEFT + part * (WIDTH - LEFT - RIGHT);
}

static double place_y(struct range r, double y)
{
    return HEIGHT - BOTTOM - (y - r.low) / (r.high - r.low) * (HEIGHT - TOP - BOTTOM);
}

/* "1.5k", "20M": at most four digits. */
static const char *short_number(double x, char out[32])
{
    static const char units[] = " kMGT";
    size_t unit = 0;
    while (fabs(x) >= 10000 && unit < 4) {
        x /= 1000;
        unit++;
    }
    snprintf(out, 32, unit ? "%.4g%c" : "%.4g", x, units[unit]);
    return out;
}

/* 1, 2 or 5 times a power of ten: about five ticks in the range. */
static double tick_distance(struct range r)
{
    double rough = (r.high - r.low) / 5, power = pow(10, floor(log10(rough))), part = rough / power;
    return power * (part > 5 ? 10 : part > 2 ? 5 : part > 1 ? 2 : 1);
}

static void draw_x_tick(FILE *f, const struct plot *p, struct range r, double x)
{
    char text[32];
    double at = place_x(p, r, x);
    fprintf(f, "<path stroke='#8884' d='M%.1f %.1fV%.1f'/><text x='%.1f' y='%.1f' text-anchor='middle'>%s</text>\n", at,
            TOP, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 15, short_number(x, text));
}

static void draw_axes(FILE *f, const struct plot *p, struct range x, struct range y)
{
    char text[32];
    double step = tick_distance(y);
    for (double v = 0; v <= y.high * 1.0001; v += step)
        fprintf(f, "<path stroke='#8884' d='M%.1f %.1fH%.1f'/><text x='%.1f' y='%.1f' text-anchor='end'>%s</text>\n",
                LEFT, place_y(y, v), WIDTH - RIGHT, LEFT - 5, place_y(y, v) + 4, short_number(v, text));
    if (p->log_x) {
        for (double v = x.low; v <= x.high * 1.0001; v *= 10)
            draw_x_tick(f, p, x, v);
    } else {
        step = tick_distance(x);
        for (double v = ceil(x.low / step) * step; v <= x.high * 1.0001; v += step)
            draw_x_tick(f, p, x, v);
    }
    fprintf(f, "<text x='%.1f' y='%.1f' text-anchor='middle'>%s</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8,
            p->x_label);
    fprintf(f, "<text transform='translate(13 %.1f) rotate(-90)' text-anchor='middle'>%s</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2, p->y_label);
}

static void draw_line(FILE *f, const struct plot *p, size_t l, struct range x, struct range y)
{
    const struct plot_line *line = &p->lines[l];
    fprintf(f, "<path fill='none' stroke='%s' stroke-width='2' stroke-dasharray='%s' d='", colours[l], dashes[l]);
    for (size_t i = 0; i < line->n; i++)
        fprintf(f, "%c%.1f %.1f", i ? 'L' : 'M', place_x(p, x, line->x[i]), place_y(y, line->y[i]));
    fputs("'/>\n", f);
}

/* Draws the legend from the top of the chart upwards, or only counts its rows if f is NULL. */
static size_t draw_legend(FILE *f, const struct plot *p, size_t n_rows)
{
    double at = LEFT;
    size_t row = 0;
    for (size_t l = 0; l < p->n_lines; l++) {
        const double width = 42 + 7 * (double)strlen(p->lines[l].name);
        if (at > LEFT && at + width > WIDTH) {
            at = LEFT;
            row++;
        }
        const double y = 16 - LEGEND_ROW * ((double)n_rows - 1 - (double)row);
        if (f)
            fprintf(f,
                    "<path stroke='%s' stroke-width='2' stroke-dasharray='%s' d='M%.1f %.0fh24'/>"
                    "<text x='%.1f' y='%.0f'>%s</text>\n",
                    colours[l], dashes[l], at, y, at + 28, y + 4, p->lines[l].name);
        at += width;
    }
    return row + 1;
}

void plot_draw(FILE *f, const struct plot *p)
{
    struct range x = range_of(p, true), y = range_of(p, false);
    const size_t n_rows = draw_legend(NULL, p, 0);
    const double above = LEGEND_ROW * (double)(n_rows - 1);
    fprintf(f,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 %.0f %.0f %.0f' role='img' aria-label='%s' "
            "font-size='11' font-family='system-ui,sans-serif' fill='currentColor'>\n",
            0 - above, WIDTH, HEIGHT + above, p->title);
    draw_axes(f, p, x, y);
    for (size_t l = 0; l < p->n_lines; l++)
        draw_line(f, p, l, x, y);
    draw_legend(f, p, n_rows);
    fputs("</svg>\n", f);
}
