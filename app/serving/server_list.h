/* The servers of this user on this machine: a small file per process in $XDG_RUNTIME_DIR/quire, or else /tmp/quire-UID.
 * A file is a hint only: server_list_read() checks that its process still runs, and the reader that the address answers.
 * Main thread. */
#ifndef QUIRE_APP_SERVING_SERVER_LIST_H
#define QUIRE_APP_SERVING_SERVER_LIST_H

#include "base/status.h"

#include <stddef.h>
#include <sys/types.h>
#include <time.h>

struct listed_server {
    char kind[16]; /* the command: "serve", "engine" */
    char model[256]; /* as clients name it */
    char address[300]; /* http[s]://HOST:PORT, unix:PATH or tcp:HOST:PORT */
    pid_t pid;
    time_t since;
};

/* Writes this process's file. NULL, without an error: the directory is missing, unsafe or full; a server runs without it.
 */
struct server_entry;
struct server_entry *server_list_announce(const char *kind, const char *model, const char *address);
void server_list_withdraw(struct server_entry *entry); /* removes the file; NULL is allowed */

struct server_list {
    struct listed_server *items; /* owned; by pid */
    size_t n;
};
/* Files of processes that have ended are removed. */
int server_list_read(struct server_list *out, struct quire_error *err);
void server_list_free(struct server_list *list);

#endif
