/* The words of quire batch that are about a server's batches. Main thread. */
#ifndef QUIRE_APP_BATCH_STATUS_H
#define QUIRE_APP_BATCH_STATUS_H

#include <stdbool.h>

/* Whether the first argument of quire batch is one of these words and not a file. */
bool batch_status_has(const char *action);
int command_batch_status(int argc, char **argv);

#endif
