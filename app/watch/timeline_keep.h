/* A timeline that its process did not close, as after kill -9, is closed and kept by the next start.
 *
 * No state; any thread.
 */
#ifndef QUIRE_APP_WATCH_TIMELINE_KEEP_H
#define QUIRE_APP_WATCH_TIMELINE_KEEP_H

#include "base/status.h"

#include <stdbool.h>

/* The first bytes of a timeline. */
#define TIMELINE_BEGIN "[\n{\"name\":\"process_name\","

/* If the file at path is a timeline without its end: cuts a torn last event, closes the array, and renames the file to
 * path.unfinished, over an earlier one. *kept tells whether it did. Any other file is left as it is. QUIRE_IO. */
int timeline_keep(const char *path, bool *kept, struct quire_error *err);

#endif
