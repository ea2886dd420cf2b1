/* The identity of this host, for ranks that check whether they share one: its name, and the boot id of its kernel. Two
 * containers of a host with different names count as two hosts: NCCL does the same, and they need not share memory. */
#ifndef QUIRE_PARALLEL_HOST_ID_H
#define QUIRE_PARALLEL_HOST_ID_H

#define QUIRE_HOST_ID_BYTES 128

/* Writes "NAME ID"; either may be empty. Any thread. */
void quire_host_id(char out[QUIRE_HOST_ID_BYTES]);

#endif
