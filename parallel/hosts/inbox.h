/* Messages that have arrived before they were requested, by peer and in order. The lead of a peer is bounded: when its
 * slots are full, no more is read from it. One thread. */
#ifndef QUIRE_PARALLEL_HOSTS_INBOX_H
#define QUIRE_PARALLEL_HOSTS_INBOX_H

#include "parallel/collective.h"
#include "parallel/hosts/message.h"

#include <stdalign.h>
#include <stdbool.h>

/* 16 messages of 128 KiB: 2 MiB per peer. Ranks in the same call need two. */
#define INBOX_PLACES 16u

struct inbox_message {
    struct inbox_message *next;
    struct message_head head;
    alignas(64) unsigned char payload[MESSAGE_MAX_BYTES];
};

struct inbox_peer {
    struct inbox_message *first, **end;
    uint32_t n;
    bool is_closed; /* no more messages will come */
};

struct inbox {
    struct inbox_peer peers[COLLECTIVE_MAX_RANKS];
    struct inbox_message *free;
};

void inbox_open(struct inbox *in);
void inbox_close(struct inbox *in);

bool inbox_has_place(const struct inbox *in, uint32_t peer);
/* Returns an empty message, to be filled and put. NULL: out of memory. */
struct inbox_message *inbox_new(struct inbox *in);
void inbox_put(struct inbox *in, uint32_t peer, struct inbox_message *m);
/* Returns the peer's first message for the group, owned by the caller until inbox_give_back(). NULL: no message. */
struct inbox_message *inbox_take(struct inbox *in, uint32_t peer, uint32_t group);
void inbox_give_back(struct inbox *in, struct inbox_message *m);

#endif
