/* Ranks as real processes: forked by a test, each joins a group, does something and leaves; what it says is kept.
 * The group is one of shared memory, or with TEST_HOSTS one over TCP. */
#ifndef QUIRE_TESTS_RANKS_H
#define QUIRE_TESTS_RANKS_H

#include "parallel/collective.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/* What a rank leaves behind, in memory that it shares with the test. */
struct outcome {
    atomic_int progress; /* the rank's own count, for who waits for it */
    atomic_bool is_done;
    int status;
    char text[QUIRE_ERROR_BYTES];
    uint64_t failed_ns; /* quire_now_ns() when status was set */
    uint64_t value; /* whatever the test compares */
    char problem[256]; /* an expectation that did not hold; empty: none */
};

struct ranks {
    uint32_t n, timeout_ms;
    int fd; /* of the group's memory */
    uint16_t port; /* with TEST_HOSTS: of rank 0, on the loopback interface, instead */
    pid_t processes[COLLECTIVE_MAX_RANKS];
    struct outcome *outcomes; /* [n] */
};

typedef int (*rank_fn)(struct collective *c, const void *argument, struct outcome *mine, struct quire_error *err);

/* Forks n processes that run fn; its status and message are the rank's outcome. */
void ranks_start(struct ranks *ranks, uint32_t n, uint32_t timeout_ms, rank_fn fn, const void *argument);
/* Until the rank has counted so far. */
void ranks_await(const struct ranks *ranks, uint32_t rank, int progress);
/* Waits for all processes and checks that nothing of them is left. The outcomes stay until ranks_free(). */
void ranks_join(struct ranks *ranks);
void ranks_free(struct ranks *ranks);

/* A port of the loopback interface that nobody has. */
uint16_t free_port(void);

/* Descriptors of this process, and names in /dev/shm. */
uint32_t count_descriptors(void);
uint32_t count_shared_memory(void);

#endif
