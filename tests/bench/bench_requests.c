/* Requests, from the socket to the engine and back: /v1/completions for one token, not streamed, over persistent
 * connections; the engine's kernels do nothing. Measures the CPU time of the server process, by threads; the client is
 * another process and shares the machine's cores. */
#include "tests/bench/bench_server.h"
#include "tests/bench/host_bench.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define N_PARTS 20

struct requests {
    struct bench_server server;
    struct request_client client;
    int port_fd;
    clockid_t loop_clock;

    /* the engine's thread */
    uint32_t n_done, n_part; /* of the current part; of a whole one */
    double process, loop, engine_cpu, wall;
    double all[N_PARTS], loop_us[N_PARTS], engine_us[N_PARTS], text_us[N_PARTS], rate[N_PARTS];
    uint32_t n;
};

static void sink(void *context, const struct engine_event *events, size_t n_events)
{
    struct requests *s = context;
    daemon_sink(s->server.daemon, events, n_events);
    for (size_t i = 0; i < n_events; i++)
        s->n_done += events[i].kind == ENGINE_EVENT_DONE && events[i].last;
    if (s->n_done < s->n_part || s->n == N_PARTS)
        return;
    double process = bench_seconds(CLOCK_PROCESS_CPUTIME_ID), loop = bench_seconds(s->loop_clock);
    double engine_cpu = bench_seconds(CLOCK_THREAD_CPUTIME_ID), wall = bench_seconds(CLOCK_MONOTONIC);
    if (s->wall > 0) { /* the first part is the beginning */
        double us = 1e6 / s->n_done;
        s->all[s->n] = (process - s->process) * us;
        s->loop_us[s->n] = (loop - s->loop) * us;
        s->engine_us[s->n] = (engine_cpu - s->engine_cpu) * us;
        s->text_us[s->n] = s->all[s->n] - s->loop_us[s->n] - s->engine_us[s->n];
        s->rate[s->n++] = s->n_done / (wall - s->wall);
    }
    s->process = process;
    s->loop = loop;
    s->engine_cpu = engine_cpu;
    s->wall = wall;
    s->n_done = 0;
}

static void on_ready(void *context, bool is_first)
{
    (void)is_first;
    struct requests *s = context;
    uint16_t port = front_port(s->server.front);
    if (write(s->port_fd, &port, sizeof port) != sizeof port)
        bench_die("pipe: %m");
}

static void on_child(evutil_socket_t number, short what, void *context)
{
    (void)number;
    (void)what;
    event_base_loopexit(context, NULL);
}

static void requests(const char *model_dir, uint32_t n_connections, uint32_t n_requests, uint32_t n_words)
{
    struct requests *s = calloc(1, sizeof *s);
    char row[96], name[64];
    if (!s)
        bench_die("out of memory");
    s->client = (struct request_client){n_connections, n_requests, n_words};
    s->n_part = n_requests / (N_PARTS + 2);
    int child = request_client_start(&s->client, &s->port_fd);
    pthread_getcpuclockid(pthread_self(), &s->loop_clock);
    s->server.base = event_base_new();
    struct event *over = evsignal_new(s->server.base, SIGCHLD, on_child, s->server.base);
    event_add(over, NULL);
    struct engine_options options;
    engine_options_default(&options);
    options.model_dir = model_dir;
    options.device = "ref";
    options.n_threads = 1;
    options.max_num_seqs = n_connections;
    options.max_queued_requests = n_connections;
    options.max_num_batched_tokens = 2048;
    null_backend_pace(0);
    bench_server_open(&s->server, &options, sink, on_ready, s);
    event_base_dispatch(s->server.base);
    client_process_end(child);
    bench_server_close(&s->server);
    event_free(over);
    event_base_free(s->server.base);
    close(s->port_fd);
    snprintf(name, sizeof name, "requests, %u connections, %u words", n_connections, n_words);
    snprintf(row, sizeof row, "%s: whole server", name);
    bench_row(row, "us/req", s->all, s->n);
    snprintf(row, sizeof row, "%s: of it the loop", name);
    bench_row(row, "us/req", s->loop_us, s->n);
    snprintf(row, sizeof row, "%s: of it the text threads", name);
    bench_row(row, "us/req", s->text_us, s->n);
    snprintf(row, sizeof row, "%s: of it the engine", name);
    bench_row(row, "us/req", s->engine_us, s->n);
    snprintf(row, sizeof row, "%s: rate", name);
    bench_row(row, "req/s", s->rate, s->n);
    free(s);
}

void bench_other_server(uint16_t port, bool quick)
{
    const struct request_client client = {
        .n_connections = quick ? 4 : 32, .n_requests = quick ? 10 : 20000, .n_words = 16};
    double rate[5];
    char row[96];
    for (uint32_t i = 0; i < 5; i++) {
        int port_fd, child = request_client_start(&client, &port_fd);
        double begin = bench_seconds(CLOCK_MONOTONIC);
        if (write(port_fd, &port, sizeof port) != sizeof port)
            bench_die("pipe: %m");
        client_process_end(child);
        close(port_fd);
        rate[i] = client.n_requests / (bench_seconds(CLOCK_MONOTONIC) - begin);
    }
    snprintf(row, sizeof row, "requests, %u connections, 16 words: rate of the server at port %u", client.n_connections,
             port);
    bench_row(row, "req/s", rate, 5);
}

void bench_requests(const char *model_dir, bool quick)
{
    if (quick) {
        requests(model_dir, 4, 220, 16);
        return;
    }
    requests(model_dir, 32, 44000, 16);
    requests(model_dir, 32, 22000, 256);
    requests(model_dir, 1, 11000, 16);
}
