/* Watches for the notice that this machine will end: a file that appears, or a URL that begins to answer, as those of spot
 * instances do. Loop's thread.
 */
#ifndef QUIRE_BULK_NOTICE_H
#define QUIRE_BULK_NOTICE_H

#include "server/bulk/bulk_internal.h"

/* where: a path, or a URL that begins with "http://" or "https://"; borrowed. on_notice is called once. */
int notice_begin(struct bulk *b, const char *where, void (*on_notice)(void *context), void *context,
                 struct notice **out, struct quire_error *err);
void notice_end(struct notice *n); /* NULL is allowed; while the disk's threads do not run, or before they end */

#endif
