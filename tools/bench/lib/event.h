/* One event of a completion stream. Pure; any thread. The bytes come from an untrusted server. */
#ifndef QUIRE_TOOLS_BENCH_EVENT_H
#define QUIRE_TOOLS_BENCH_EVENT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_event {
    bool is_end;      /* [DONE] */
    bool has_choice;  /* part of the answer */
    /* with at least one token: not the event that only names the role, nor one that only has the reason of the end */
    bool has_token;
    bool is_finish; /* finish_reason is present */
    bool has_usage;
    uint32_t n_prompt, n_output; /* with has_usage */
};

/* QUIRE_INVALID if it is not JSON, or if it is an error object: then the text is the server's message. */
int bench_event_read(const char *data, size_t n, struct bench_event *out, struct quire_error *err);

/* The message of an error reply's body, or the body itself, on one line, in printable ASCII. */
void bench_error_text(const char *body, size_t n, char *out, size_t size);

#endif
