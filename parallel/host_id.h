/* Which host this is, to ranks that ask each other whether they are on one: its name, and what its kernel calls this start of it. Two
 * containers of a host that have names of their own are two: NCCL takes them so, too, and they need not share memory. */
#ifndef QUIRE_PARALLEL_HOST_ID_H
#define QUIRE_PARALLEL_HOST_ID_H

#define QUIRE_HOST_ID_BYTES 128

/* "NAME ID", of which either may be empty. Any thread. */
void quire_host_id(char out[QUIRE_HOST_ID_BYTES]);

#endif
