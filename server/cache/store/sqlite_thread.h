/* The only thread that opens, reads, writes and closes a SQLite file of answers. Private to server/cache/store.
 *
 * The loop gives it items and takes them back, in their order. It never waits for the thread, which the system may
 * suspend anywhere. It takes no lock: with a mutex and a condition the loop stood still for 5 to 15 ms when more threads
 * than cores were busy. It also avoids malloc's lock, which had the same effect when one thread freed what the other had
 * allocated. Items move between them through two lock-free stacks. The loop allocates and frees all items, and the thread
 * allocates only the data that it has read. Functions are the loop's. */
#ifndef QUIRE_CACHE_SQLITE_THREAD_H
#define QUIRE_CACHE_SQLITE_THREAD_H

#include "server/cache/store/sqlite_file.h"
#include "server/cache/store/store.h"

enum item_kind { LOOKUP, READ /* a lookup whose bytes the thread may free */, PUT, REMOVE, HIT, CLEAR, CLOSE };
struct item {
    struct item *next;
    enum item_kind kind;
};
struct sqlite_lookup { /* LOOKUP and READ */
    struct item item; /* first member, as in a job */
    struct key256 key;
    int code; /* the thread's, until it gives it back; what was found, too */
    struct sqlite_found found;
};
struct sqlite_job { /* of the other kinds */
    struct item item;
    struct sqlite_put put;
    bool ok;
    uint64_t n_removed, n_evicted; /* n_evicted: of its batch, at one of it */
};

struct sqlite_thread;

/* Starts it. QUIRE_NO_MEMORY. */
int sqlite_thread_start(const char *path, struct key256 identity, uint64_t max_bytes, struct sqlite_thread **out,
                        struct quire_error *err);
/* Waits until jobs are done, for at most wait_ms. Afterwards only the two functions below may be called. */
void sqlite_thread_stop(struct sqlite_thread *t, uint32_t wait_ms);
/* Returns the next item that the thread did not hand back, or NULL. Frees the bytes that a lookup found. */
struct item *sqlite_thread_left(struct sqlite_thread *t);
void sqlite_thread_free(struct sqlite_thread *t);

/* An eventfd, readable when there is something to take. */
int sqlite_thread_wake_fd(const struct sqlite_thread *t);
void sqlite_thread_give(struct sqlite_thread *t, struct item *i);
/* Gives it a READ without waking it; sqlite_thread_wake() after the last of several. */
void sqlite_thread_lay(struct sqlite_thread *t, struct item *i);
void sqlite_thread_wake(struct sqlite_thread *t);
/* All that came back, in its order. */
struct item *sqlite_thread_take(struct sqlite_thread *t);

/* Copies what the thread knows of the file into *out, unless it is just changing that. */
void sqlite_thread_report(struct sqlite_thread *t, struct store_stats *out);

#endif
