/* A progress bar on standard error, after two seconds: "random prompts 12/40 [####### ] 3.1/s 9 s left". Only on a
 * terminal. One thread. */
#ifndef QUIRE_APP_COMMAND_PROGRESS_H
#define QUIRE_APP_COMMAND_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_PROGRESS_LINE_S 10.0 /* for line_every_s */

struct bench_progress {
    const char *what;
    uint64_t total;
    uint64_t before; /* done at the beginning: not counted in the rate; the owner may set it */
    char note[32]; /* at the end of the bar; the owner may set it at any time */
    double began, drawn; /* seconds of quire_now_s() */
    bool is_tty, shown;
    double line_every_s; /* where standard error is not a terminal, a line this often; set after begin. 0: none */
};

/* what: borrowed until the end. */
void bench_progress_begin(struct bench_progress *p, const char *what, uint64_t total);
/* May be called at any rate; it draws at most ten times a second. */
void bench_progress_set(struct bench_progress *p, uint64_t done);
/* Removes the bar. */
void bench_progress_end(struct bench_progress *p);

#endif
