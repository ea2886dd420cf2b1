/* The options of a server's batches. Main thread. */
#ifndef QUIRE_APP_SERVING_BULK_FLAGS_H
#define QUIRE_APP_SERVING_BULK_FLAGS_H

#include "app/command/cli.h"
#include "server/bulk/bulk.h"

#define BULK_FLAGS_MAX 6

/* Sets the defaults, and writes the option rows. */
size_t bulk_flags(struct bulk_settings *settings, struct cli_option out[BULK_FLAGS_MAX]);
int bulk_flags_check(const struct bulk_settings *settings, struct quire_error *err);
/* For bulk_options.on_notice: the process gets SIGTERM. */
void bulk_flags_on_notice(void *context);

#endif
