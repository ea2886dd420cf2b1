/* Assigns connection slots and selects connections to close: see struct http_handler in http.h. This file decides;
 * http.c acts. */
#include "server/http/http_internal.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/id_map.h"

#include <event2/buffer.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* This many connections without a slot are kept, to send health requests or to wait. More, up to HTTP_SLOTS_UNPLACED,
 * are accepted within one turn of the loop, so that their requests are read before they are closed. */
#define MAX_UNPLACED 64
/* A new connection is given so long for its first request. */
#define FIRST_REQUEST_MS 500
/* Bodies up to here are never too many: with a limit below the rest, 4,096 connections would hold no more than that. */
#define SMALL_BODY_BYTES 65536

/* A client, identified by its address, with its share of the connections and of the bodies. */
struct http_peer {
    uint64_t key;
    uint32_t n_connections, n_placed;
    size_t n_body_bytes;
    struct connection_list waiting; /* its part of all `waiting`, by peer_link */
};

struct http_slots {
    uint32_t n_placed, n_unplaced;
    size_t n_body_bytes;
    /* By slot_link. waiting: with a slot, for a request or the rest of one, the longest first. unplaced: in order of
     * arrival. */
    struct connection_list waiting, unplaced;
    struct id_map peers; /* by http_peer.key */
    struct key256 secret; /* secret of those keys */
};

struct http_slots *http_slots_new(void)
{
    struct http_slots *slots = calloc(1, sizeof *slots);
    if (!slots)
        return NULL;
    TAILQ_INIT(&slots->waiting);
    TAILQ_INIT(&slots->unplaced);
    quire_random(slots->secret.bytes, sizeof slots->secret.bytes);
    return slots;
}

void http_slots_free(struct http_slots *slots)
{
    if (slots)
        id_map_free(&slots->peers);
    free(slots);
}

uint32_t http_slots_n_placed(const struct http_server *s)
{
    return s->slots->n_placed;
}

struct http_connection *http_slots_first_unplaced(const struct http_server *s)
{
    return TAILQ_FIRST(&s->slots->unplaced);
}

/* ---- peers ---------------------------------------------------------------------------------- */

static bool is_trusted(const struct http_server *s, const struct http_address *address)
{
    for (size_t i = 0; i < s->limits.n_trusted; i++)
        if (http_network_has(&s->limits.trusted[i], address))
            return true;
    return false;
}

/* The entry for an address; NULL: no memory. */
static struct http_peer *find_peer(struct http_server *s, const struct http_address *address)
{
    const struct http_address client = http_address_client(address);
    const struct key256 hash = quire_keyed_hash(&s->slots->secret, client.bytes, sizeof client.bytes);
    uint64_t key;
    memcpy(&key, hash.bytes, sizeof key);
    struct http_peer *peer = (struct http_peer *)id_map_find(&s->slots->peers, key);
    if (peer)
        return peer;
    peer = calloc(1, sizeof *peer);
    if (!peer || id_map_add(&s->slots->peers, key, (uintptr_t)peer) != QUIRE_OK) {
        free(peer);
        return NULL;
    }
    peer->key = key;
    TAILQ_INIT(&peer->waiting);
    return peer;
}

/* ---- waiting connections ---------------------------------------------------------------------- */

static void unlist(struct http_connection *c)
{
    if (!c->listed)
        return;
    TAILQ_REMOVE(&c->server->slots->waiting, c, slot_link);
    if (c->peer)
        TAILQ_REMOVE(&c->peer->waiting, c, peer_link);
    c->listed = false;
}

void http_slots_note(struct http_connection *c)
{
    unlist(c);
    if (!c->placed || (c->phase != READING && c->phase != LINGERING))
        return;
    if (c->phase == READING) {
        TAILQ_INSERT_TAIL(&c->server->slots->waiting, c, slot_link);
        if (c->peer)
            TAILQ_INSERT_TAIL(&c->peer->waiting, c, peer_link);
    } else { /* it has received its whole request */
        TAILQ_INSERT_HEAD(&c->server->slots->waiting, c, slot_link);
        if (c->peer)
            TAILQ_INSERT_HEAD(&c->peer->waiting, c, peer_link);
    }
    c->listed = true;
}

/* Nothing is about to be said, by either side. */
static bool is_silent(const struct http_connection *c)
{
    char byte;
    return evbuffer_get_length(bufferevent_get_output(c->bev)) == 0 &&
           evbuffer_get_length(bufferevent_get_input(c->bev)) == 0 &&
           recv(bufferevent_getfd(c->bev), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0;
}

static bool is_unfinished(const struct http_connection *c)
{
    return c->phase == READING && (c->x->live || !http_parser_is_idle(c->parser));
}

/* The connection that has waited longest and may be closed, of this peer or (NULL) of all; NULL if none may be
 * closed. */
static struct http_connection *longest(struct http_server *s, struct http_peer *peer)
{
    const uint64_t now = quire_now_ms();
    struct http_connection *c = TAILQ_FIRST(peer ? &peer->waiting : &s->slots->waiting);
    for (; c; c = peer ? TAILQ_NEXT(c, peer_link) : TAILQ_NEXT(c, slot_link)) {
        if (c->phase == READING && !c->served && now - c->opened_ms < FIRST_REQUEST_MS)
            return NULL; /* all later ones are newer */
        if (c->phase == LINGERING || is_unfinished(c) || is_silent(c))
            return c;
    }
    return NULL;
}

/* ---- places --------------------------------------------------------------------------------- */

enum http_place http_slots_place(struct http_connection *c, struct http_connection **goes)
{
    struct http_server *s = c->server;
    struct http_peer *peer = c->peer;
    *goes = NULL;
    if (c->placed)
        return HTTP_PLACED;
    if (peer && peer->n_placed >= s->limits.max_connections_per_address) {
        *goes = longest(s, peer);
        return HTTP_NO_SHARE;
    }
    if (s->slots->n_placed >= s->limits.max_connections) {
        /* Held connections came first. */
        *goes = s->n_held == 0 || c->phase == HELD ? longest(s, NULL) : NULL;
        return HTTP_NO_PLACE;
    }
    TAILQ_REMOVE(&s->slots->unplaced, c, slot_link);
    s->slots->n_unplaced--;
    s->slots->n_placed++;
    if (peer)
        peer->n_placed++;
    c->placed = true;
    http_slots_note(c);
    return HTTP_PLACED;
}

bool http_slots_enter(struct http_connection *c, const struct sockaddr *from)
{
    struct http_server *s = c->server;
    const struct http_address address = from ? http_address_of(from) : (struct http_address){{0}};
    c->client = !from ? HTTP_ADOPTED : http_address_is_loopback(&address) ? HTTP_LOOPBACK : HTTP_ELSEWHERE;
    http_address_text(&address, c->address);
    c->from_proxy = from && is_trusted(s, &address);
    if (from && !c->from_proxy) {
        c->peer = find_peer(s, &address);
        if (!c->peer)
            return false;
        c->peer->n_connections++;
    }
    TAILQ_INSERT_TAIL(&s->slots->unplaced, c, slot_link);
    s->slots->n_unplaced++;
    return true;
}

void http_slots_leave(struct http_connection *c)
{
    struct http_server *s = c->server;
    struct http_peer *peer = c->peer;
    unlist(c);
    s->n_held -= c->phase == HELD;
    if (c->placed) {
        s->slots->n_placed--;
    } else {
        TAILQ_REMOVE(&s->slots->unplaced, c, slot_link);
        s->slots->n_unplaced--;
    }
    if (!peer)
        return;
    peer->n_placed -= c->placed;
    if (--peer->n_connections > 0)
        return;
    id_map_remove(&s->slots->peers, peer->key);
    free(peer);
}

bool http_slots_is_crowded(const struct http_server *s)
{
    return s->slots->n_unplaced >= HTTP_SLOTS_UNPLACED;
}

struct http_connection *http_slots_too_many(struct http_server *s)
{
    return s->slots->n_unplaced > MAX_UNPLACED ? TAILQ_FIRST(&s->slots->unplaced) : NULL;
}

/* ---- bodies --------------------------------------------------------------------------------- */

/* The connection that holds the largest incomplete body, of this peer or (NULL) of all. */
static struct http_connection *largest(struct http_server *s, struct http_peer *peer)
{
    struct http_connection *c, *found = NULL;
    if (peer) {
        TAILQ_FOREACH(c, &peer->waiting, peer_link)
        found = !found || c->n_body > found->n_body ? c : found;
    } else {
        TAILQ_FOREACH(c, &s->slots->waiting, slot_link)
        found = !found || c->n_body > found->n_body ? c : found;
    }
    return found;
}

void http_slots_count_body(struct http_connection *c, size_t n_bytes)
{
    c->server->slots->n_body_bytes += n_bytes - c->n_body;
    if (c->peer)
        c->peer->n_body_bytes += n_bytes - c->n_body;
    c->n_body = n_bytes;
}

bool http_slots_for_body(struct http_connection *c, struct http_connection **goes)
{
    struct http_server *s = c->server;
    struct http_peer *over = NULL;
    *goes = NULL;
    if (c->peer && c->peer->n_body_bytes > s->limits.max_all_bodies_bytes / 2)
        over = c->peer;
    else if (s->slots->n_body_bytes <= s->limits.max_all_bodies_bytes)
        return true;
    struct http_connection *most = largest(s, over);
    if (most && most->n_body > c->n_body)
        *goes = most;
    return c->n_body <= SMALL_BODY_BYTES;
}
