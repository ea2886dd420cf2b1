/* The options of quire run and quire generate that are not the engine's. Main thread. */
#ifndef QUIRE_APP_GENERATE_FLAGS_H
#define QUIRE_APP_GENERATE_FLAGS_H

#include "app/command/cli.h"

/* The request's part of the command line; /set changes it in a chat. */
struct request_flags {
    const char *prompt, *prompt_option, *system; /* prompt_option: of --prompt */
    const char *json_schema; /* a schema, or @FILE */
    struct cli_list stops;
    uint32_t max_tokens, top_k;
    double temperature, top_p, min_p;
    bool has_temperature, has_top_p, has_top_k, has_min_p;
    bool raw, json, no_stream, verbose;
    bool context_shift, no_context_shift; /* the first is set, and the second is not */
};

#define REQUEST_FLAGS_MAX 16
void request_flags_default(struct request_flags *f);
/* Writes the rows to out. Returns their number. */
size_t request_flags(struct request_flags *f, struct cli_option out[REQUEST_FLAGS_MAX]);

#endif
