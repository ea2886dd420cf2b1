/* Calls another rank at its door, and proves to be one of its group. */
#ifndef QUIRE_PARALLEL_HOSTS_CALL_H
#define QUIRE_PARALLEL_HOSTS_CALL_H

#include "parallel/hosts/door.h"

/* One connection to rank `to`. port: where this process listens itself. until_ms: of quire_now_ms().
 * QUIRE_UNAVAILABLE: nobody (yet) answers there as a rank does; it may be tried again. Others are that rank's last word. */
int call_rank(const struct door_own *own, uint32_t to, enum join_kind kind, uint16_t port,
              const struct sockaddr_storage *address, uint64_t until_ms, int *fd, struct join_welcome *welcome,
              struct quire_error *err);

/* n bytes of a connection, all of them. QUIRE_UNAVAILABLE: it ended, or the time did. */
int call_read(int fd, void *to, size_t n, uint64_t until_ms, struct quire_error *err);

#endif
