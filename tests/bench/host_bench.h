/* The parts of host_bench: each measures one thing and adds its rows. One thread. */
#ifndef QUIRE_TESTS_BENCH_HOST_BENCH_H
#define QUIRE_TESTS_BENCH_HOST_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* A measurement: the median of n samples, the range of nine in ten of them, and the 99th percentile. */
void bench_row(const char *name, const char *unit, double *samples, uint32_t n);

/* Ends the program with a message: a benchmark that cannot run measures nothing. */
__attribute__((noreturn, format(printf, 1, 2))) void bench_die(const char *format, ...);

static inline double bench_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Scheduling alone. */
void bench_sched(bool quick);
/* Blocks alone: taken, returned, found, named. */
void bench_blocks(bool quick);
/* The drafts of a row. */
void bench_drafts(bool quick);
/* Scheduling with many waiting, under each policy. */
void bench_policies(bool quick);
/* One step of the engine without kernels. */
void bench_engine(const char *model_dir, bool quick);
/* Token events from that engine through frames and HTTP to clients in another process. */
void bench_stream(const char *model_dir, bool quick);
void bench_one_stream(const char *model_dir, bool quick);

/* Requests for one token each from the socket to that engine and back. */
void bench_requests(const char *model_dir, bool quick);
/* The same client with another server, which answers anything on that port of this machine: the share of the client and
 * the kernel in a rate. */
void bench_other_server(uint16_t port, bool quick);

/* ---- client_process.c ---- */

/* Forks a process that runs run(), whose result is its status. It waits for the server's port, which arrives through
 * *port_fd as 2 bytes. */
int client_process_start(int (*run)(const void *client, int port_fd), const void *client, int *port_fd);
/* Waits for it; exits unless its status is 0: every client has received everything. */
void client_process_end(int child);

/* ---- request_client.c ---- */

struct request_client {
    uint32_t n_connections, n_requests, n_words; /* of each prompt */
};
int request_client_start(const struct request_client *c, int *port_fd);

/* ---- stream_client.c ---- */

struct stream_client {
    uint32_t n_streams, n_tokens; /* tokens of each stream */
};
int stream_client_start(const struct stream_client *c, int *port_fd);

/* ---- null_backend.c ---- */

/* Tokens per second of the backend, over all rows; 0: as fast as possible. Set before the engine is opened. */
void null_backend_pace(double tokens_per_second);
/* CPU seconds of the engine's thread so far in the sleep that replaces the kernels: a timer's cost, 17 us each in a
 * virtual machine, which is not the host's. For that thread. */
double null_backend_waited(void);

#endif
