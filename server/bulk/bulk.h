/* Work in bulk: files and batches of OpenAI's API (/v1/files, /v1/batches) and Anthropic's (/v1/messages/batches), kept in
 * a directory and run line by line through the server's own front door, in the background. docs/guides/batches.md.
 *
 * A batch continues after the end of the process, however it ended. Loop's thread; blocking work is on threads of its
 * own.
 */
#ifndef QUIRE_BULK_H
#define QUIRE_BULK_H

#include "base/status.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct bulk;
struct more_routes;
struct tenants;

#define BULK_CONCURRENCY 10
#define BULK_MAX_BYTES ((uint64_t)64 << 30)
/* The largest body of an upload: a file of 1 GiB, and the form around it. */
#define BULK_MAX_UPLOAD_BYTES (((uint64_t)1 << 30) + 65536)
#define BULK_EXIT_UNFINISHED 75 /* EX_TEMPFAIL of sysexits.h */

/* Values of the command line. */
struct bulk_settings {
    const char *dir; /* NULL: no batches; their routes reply 404 */
    uint64_t max_bytes; /* of all files. With keys, a tenant has a quarter */
    uint32_t concurrency; /* running lines of a tenant, unless the tenants' file sets another number */
    uint32_t per_minute; /* lines that a batch begins in a minute; 0: no limit */
    const char *notice; /* a file or a URL that announces the end of this machine; NULL: none */
};

struct bulk_options {
    const struct bulk_settings *settings; /* borrowed, as its texts */
    struct tenants *tenants; /* outlives the bulk */
    /* The notice has come: the process should end as after SIGTERM. From the loop, once. */
    void (*on_notice)(void *context);
    void *context;
};

/* QUIRE_INVALID: the directory cannot be used; the message names it. */
int bulk_open(struct event_base *base, const struct bulk_options *options, struct bulk **out, struct quire_error *err);
/* For front_options.more and gateway_options.more. Valid until bulk_close(). */
const struct more_routes *bulk_routes(const struct bulk *b);
/* Runs batches, and continues those of an earlier process. socket: the name of the front door's abstract Unix socket, whose
 * requests have the header of server/front/tenant/inside.h; copied. */
int bulk_start(struct bulk *b, const char *socket, struct quire_error *err);
/* Cancels running lines and writes every result to the disk. New work is rejected from now on. Returns the number of
 * batches that have not ended. */
uint32_t bulk_stop(struct bulk *b);
/* Call it after the front door was closed. NULL is allowed. */
void bulk_close(struct bulk *b);

#endif
