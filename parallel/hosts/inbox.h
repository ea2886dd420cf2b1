/* Messages that have arrived and were not asked for yet, by peer in their order. What a peer may be ahead by is bounded: when its
 * places are taken nothing more is read of it. One thread. */
#ifndef QUIRE_PARALLEL_HOSTS_INBOX_H
#define QUIRE_PARALLEL_HOSTS_INBOX_H

#include "parallel/collective.h"
#include "parallel/hosts/message.h"

#include <stdalign.h>
#include <stdbool.h>

/* 16 messages of 128 KiB: 2 MiB a peer. Ranks that are about the same call need two. */
#define INBOX_PLACES 16u

struct inbox_message {
    struct inbox_message *next;
    struct message_head head;
    alignas(64) unsigned char payload[MESSAGE_MAX_BYTES];
};

struct inbox_peer {
    struct inbox_message *first, **end;
    uint32_t n;
    bool is_closed; /* nothing more comes */
};

struct inbox {
    struct inbox_peer peers[COLLECTIVE_MAX_RANKS];
    struct inbox_message *free;
};

void inbox_open(struct inbox *in);
void inbox_close(struct inbox *in);

bool inbox_has_place(const struct inbox *in, uint32_t peer);
/* An empty message, to be filled and put. NULL: out of memory. */
struct inbox_message *inbox_new(struct inbox *in);
void inbox_put(struct inbox *in, uint32_t peer, struct inbox_message *m);
/* The peer's first message for the group, which is then the caller's until inbox_give_back(); NULL: none is there. */
struct inbox_message *inbox_take(struct inbox *in, uint32_t peer, uint32_t group);
void inbox_give_back(struct inbox *in, struct inbox_message *m);

#endif
