/* Ranks as real processes: forked by a test, each joins a group, runs a function and leaves; its outcome is kept. The
 * group uses shared memory, or TCP with TEST_HOSTS. One thread. */
#ifndef QUIRE_TESTS_RANKS_H
#define QUIRE_TESTS_RANKS_H

#include "parallel/collective.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/* The outcome of a rank, in memory shared with the test. */
struct outcome {
    atomic_int progress; /* the rank's own count, for ranks_await() */
    atomic_bool is_done;
    int status;
    char text[QUIRE_ERROR_BYTES];
    uint64_t failed_ns; /* quire_now_ns() when status was set */
    uint64_t value; /* any value that the test compares */
    char problem[256]; /* a failed expectation; empty: none */
};

struct ranks {
    uint32_t n, timeout_ms;
    int fd; /* of the group's memory */
    uint16_t port; /* with TEST_HOSTS: rank 0's port on the loopback interface */
    int port_fd; /* what holds it */
    pid_t processes[COLLECTIVE_MAX_RANKS];
    struct outcome *outcomes; /* [n] */
};

typedef int (*rank_fn)(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err);

/* Forks n processes that run fn; its status and message are the rank's outcome. */
void ranks_start(struct ranks *ranks, uint32_t n, uint32_t timeout_ms, rank_fn fn, const void *argument);
/* Waits until the rank has counted this far. */
void ranks_await(const struct ranks *ranks, uint32_t rank, int progress);
/* Waits for all processes and checks that nothing remains of them. The outcomes stay until ranks_free(). */
void ranks_join(struct ranks *ranks);
void ranks_free(struct ranks *ranks);

/* A port of the loopback interface that no other program gets until *fd is closed. Rank 0 may listen there. */
uint16_t hold_port(int *fd);

/* Descriptors of this process, and names of this program in /dev/shm. */
uint32_t count_descriptors(void);
uint32_t count_shared_memory(void);

#endif
