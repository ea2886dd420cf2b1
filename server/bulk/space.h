/* What the results of running batches take of --batch-max-bytes. Private to server/bulk. Loop's thread. */
#ifndef QUIRE_BULK_SPACE_H
#define QUIRE_BULK_SPACE_H

struct bulk;

/* Counts the results of running batches, and sets active.lacks_space of those that may not grow: no further line of theirs
 * begins until files are deleted. Call it once a second; the result comes later. */
void space_look(struct bulk *b);

#endif
