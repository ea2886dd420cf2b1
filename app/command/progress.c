#include "app/command/progress.h"

#include "app/command/status_line.h"
#include "base/clock.h"

#include <stdio.h>

#define SHOW_AFTER_S 2.0
#define DRAW_EVERY_S 0.1
#define WIDTH 30
#define LINE_BYTES 512

void bench_progress_begin(struct bench_progress *p, const char *what, uint64_t total)
{
    *p = (struct bench_progress){
        .what = what, .total = total ? total : 1, .began = quire_now_s(), .is_tty = status_line_possible()};
}

void bench_progress_set(struct bench_progress *p, uint64_t done)
{
    double now = quire_now_s(), past = now - p->began;
    if (!p->is_tty && p->line_every_s > 0 && now - (p->drawn > 0 ? p->drawn : p->began) >= p->line_every_s) {
        fprintf(stderr, "quire: %llu of %llu %s after %.0f s\n", (unsigned long long)done, (unsigned long long)p->total,
                p->what, past);
        p->drawn = now;
    }
    if (!p->is_tty || past < SHOW_AFTER_S || now - p->drawn < DRAW_EVERY_S)
        return;
    char bar[WIDTH + 1], line[LINE_BYTES], rest[64] = "";
    uint64_t filled = done < p->total ? done * WIDTH / p->total : WIDTH;
    for (uint64_t i = 0; i < WIDTH; i++)
        bar[i] = i < filled ? '#' : ' ';
    bar[WIDTH] = 0;
    if (done > p->before) {
        const double rate = (double)(done - p->before) / past;
        snprintf(rest, sizeof rest, " %.3g/s, about %.0f s left", rate,
                 (double)(p->total - (done < p->total ? done : p->total)) / rate);
    }
    snprintf(line, sizeof line, "%s %llu/%llu [%s]%s%s%s", p->what, (unsigned long long)done,
             (unsigned long long)p->total, bar, rest, p->note[0] ? ", " : "", p->note);
    status_line_draw(line);
    p->drawn = now;
    p->shown = true;
}

void bench_progress_end(struct bench_progress *p)
{
    if (p->shown)
        status_line_clear();
    p->shown = false;
}
