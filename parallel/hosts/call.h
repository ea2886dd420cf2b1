/* Calls the listener of another rank and proves membership in its group. One thread. */
#ifndef QUIRE_PARALLEL_HOSTS_CALL_H
#define QUIRE_PARALLEL_HOSTS_CALL_H

#include "parallel/hosts/rank_listener.h"

/* Opens one connection to rank `to`. port: where this process listens. until_ms: by quire_now_ms(). QUIRE_UNAVAILABLE:
 * no rank answers there (yet); the caller may retry. Other errors are that rank's final answer. */
int call_rank(const struct rank_listener_own *own, uint32_t to, enum join_kind kind, uint16_t port,
              const struct sockaddr_storage *address, uint64_t until_ms, int *fd, struct join_welcome *welcome,
              struct quire_error *err);

/* Reads exactly n bytes. QUIRE_UNAVAILABLE: the connection or the time ended. */
int call_read(int fd, void *to, size_t n, uint64_t until_ms, struct quire_error *err);

#endif
