#include "app/serving/bulk_flags.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

size_t bulk_flags(struct bulk_settings *s, struct cli_option out[BULK_FLAGS_MAX])
{
    *s = (struct bulk_settings){.max_bytes = BULK_MAX_BYTES, .concurrency = BULK_CONCURRENCY};
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Batches:", .kind = CLI_GROUP},
        {.names = "batch-dir", .kind = CLI_STRING, .target = &s->dir, .value = "DIR",
         .help = "Serve /v1/files, /v1/batches and /v1/messages/batches, and keep files and results in this directory. "
                 "Batches run behind live requests and continue after a restart (docs/guides/batches.md)."},
        {.names = "batch-max-bytes", .kind = CLI_BYTES, .target = &s->max_bytes, .min = 1048576, .max = 1125899906842624.0, .value = "SIZE",
         .help = "Maximum size of all files, uploads in progress and results of batches. With keys, a tenant has at most a quarter. Default 64G."},
        {.names = "batch-concurrency", .kind = CLI_U32, .target = &s->concurrency, .min = 1, .max = 4096, .value = "N",
         .help = "Maximum number of lines of a tenant's batches that run at a time; batch_concurrency in --tenants "
                 "sets another number for a tenant. Default 10."},
        {.names = "batch-requests-per-minute", .kind = CLI_U32, .target = &s->per_minute, .min = 1, .max = 10000000, .value = "N",
         .help = "Maximum number of lines that each batch begins in a minute. Default: no limit."},
        {.names = "eviction-notice", .kind = CLI_STRING, .target = &s->notice, .value = "FILE|URL",
         .help = "Act as after SIGTERM once this file exists or this URL answers 200, as spot instances announce their "
                 "end. The exit status is 75 if batches are unfinished."},
    };
    /* clang-format on */
    _Static_assert(sizeof rows / sizeof *rows <= BULK_FLAGS_MAX, "the callers' arrays have this space");
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof *rows;
}

int bulk_flags_check(const struct bulk_settings *s, struct quire_error *err)
{
    if (s->notice && !s->dir)
        return quire_fail(err, QUIRE_INVALID, "--eviction-notice needs --batch-dir: without batches nothing is saved");
    return QUIRE_OK;
}

void bulk_flags_on_notice(void *context)
{
    (void)context;
    kill(getpid(), SIGTERM);
}
