#include "parallel/hosts/inbox.h"

#include <stdlib.h>
#include <string.h>

void inbox_open(struct inbox *in)
{
    memset(in, 0, sizeof *in);
    for (uint32_t r = 0; r < COLLECTIVE_MAX_RANKS; r++)
        in->peers[r].end = &in->peers[r].first;
}

static void free_list(struct inbox_message *m)
{
    while (m) {
        struct inbox_message *next = m->next;
        free(m);
        m = next;
    }
}

void inbox_close(struct inbox *in)
{
    for (uint32_t r = 0; r < COLLECTIVE_MAX_RANKS; r++)
        free_list(in->peers[r].first);
    free_list(in->free);
}

bool inbox_has_place(const struct inbox *in, uint32_t peer)
{
    return in->peers[peer].n < INBOX_PLACES;
}

struct inbox_message *inbox_new(struct inbox *in)
{
    struct inbox_message *m = in->free;
    if (!m)
        return aligned_alloc(alignof(struct inbox_message), sizeof *m);
    in->free = m->next;
    return m;
}

void inbox_put(struct inbox *in, uint32_t peer, struct inbox_message *m)
{
    struct inbox_peer *p = &in->peers[peer];
    m->next = NULL;
    *p->end = m;
    p->end = &m->next;
    p->n++;
}

struct inbox_message *inbox_take(struct inbox *in, uint32_t peer, uint32_t group)
{
    struct inbox_peer *p = &in->peers[peer];
    for (struct inbox_message **at = &p->first; *at; at = &(*at)->next) {
        struct inbox_message *m = *at;
        if (m->head.group != group)
            continue;
        *at = m->next;
        if (!m->next)
            p->end = at;
        p->n--;
        return m;
    }
    return NULL;
}

void inbox_give_back(struct inbox *in, struct inbox_message *m)
{
    m->next = in->free;
    in->free = m;
}
