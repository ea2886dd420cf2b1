/* Token events, from the engine to the socket: an engine without kernels gives a token to each of n streams at a fixed
 * rate. Every token is a frame to the front end and an SSE event of its own to a client over loopback TCP. Measures the
 * CPU time per token of the whole server process, all threads, user and system, without the stand-in for the kernels;
 * the clients are another process. Loopback counts the receiver kernel's work on a segment as the sender's system time.
 */
#include "engine/stats.h"
#include "tests/bench/bench_server.h"
#include "tests/bench/host_bench.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define N_PARTS 20 /* of the time in which all streams run: the samples */

struct server {
    struct bench_server whole;
    struct stream_client client;
    double tokens_per_second;

    int port_fd;
    clockid_t loop_clock;
    struct event *idle_over; /* the server is left alone until then */
    double idle_seconds, idle_wall, idle_cpu;
    double anonymous_mib; /* resident */

    /* The engine's first step is held until every client has sent its request. */
    struct event *look;
    pthread_mutex_t mutex;
    pthread_cond_t all_in;
    bool is_in;

    /* the engine's thread */
    uint64_t n_tokens, n_part;           /* of the current part; of a whole one */
    double process, loop, engine_cpu, wall, waited;
    double per_token[N_PARTS], loop_per_token[N_PARTS], engine_per_token[N_PARTS], rate[N_PARTS];
    uint32_t n;
};

/* A part contains only steps in which every stream had a token: nothing is counted before the last stream began and
 * after the first one ended. */
static void sink(void *context, const struct engine_event *events, size_t n_events)
{
    struct server *s = context;
    if (s->wall == 0) {
        pthread_mutex_lock(&s->mutex);
        while (!s->is_in)
            pthread_cond_wait(&s->all_in, &s->mutex);
        pthread_mutex_unlock(&s->mutex);
    }
    daemon_sink(s->whole.daemon, events, n_events);
    if (n_events != s->client.n_streams) {
        s->wall = 0;
        return;
    }
    s->n_tokens += n_events;
    if (s->wall > 0 && (s->n_tokens < s->n_part || s->n == N_PARTS))
        return;
    double process = bench_seconds(CLOCK_PROCESS_CPUTIME_ID), loop = bench_seconds(s->loop_clock);
    double engine_cpu = bench_seconds(CLOCK_THREAD_CPUTIME_ID);
    double wall = bench_seconds(CLOCK_MONOTONIC), waited = null_backend_waited();
    if (s->wall > 0) {
        double us = 1e6 / (double)s->n_tokens;
        s->per_token[s->n] = (process - s->process - (waited - s->waited)) * us;
        s->loop_per_token[s->n] = (loop - s->loop) * us;
        s->engine_per_token[s->n] = (engine_cpu - s->engine_cpu - (waited - s->waited)) * us;
        s->rate[s->n++] = (double)s->n_tokens / (wall - s->wall);
        if (s->n == N_PARTS)
            s->anonymous_mib = bench_anonymous_mib();
    }
    s->process = process;
    s->loop = loop;
    s->engine_cpu = engine_cpu;
    s->wall = wall;
    s->waited = waited;
    s->n_tokens = 0;
}

static void on_look(evutil_socket_t fd, short what, void *context)
{
    struct server *s = context;
    struct engine_stats stats;
    (void)fd;
    (void)what;
    engine_stats(s->whole.engine, &stats);
    if (stats.n_running + stats.n_waiting < s->client.n_streams)
        return;
    event_del(s->look);
    pthread_mutex_lock(&s->mutex);
    s->is_in = true;
    pthread_cond_signal(&s->all_in);
    pthread_mutex_unlock(&s->mutex);
}

static void on_idle_over(evutil_socket_t fd, short what, void *context)
{
    struct server *s = context;
    uint16_t port = front_port(s->whole.front);
    struct timeval often = {.tv_usec = 10000};
    (void)fd;
    (void)what;
    event_add(s->look, &often);
    s->idle_cpu = bench_seconds(CLOCK_PROCESS_CPUTIME_ID) - s->idle_cpu;
    s->idle_wall = bench_seconds(CLOCK_MONOTONIC) - s->idle_wall;
    if (write(s->port_fd, &port, sizeof port) != sizeof port)
        bench_die("pipe: %m");
}

static void on_ready(void *context, bool is_first)
{
    (void)is_first;
    struct server *s = context;
    struct timeval time = {.tv_sec = (time_t)s->idle_seconds,
                           .tv_usec = (suseconds_t)(s->idle_seconds * 1e6) % 1000000};
    s->idle_cpu = bench_seconds(CLOCK_PROCESS_CPUTIME_ID);
    s->idle_wall = bench_seconds(CLOCK_MONOTONIC);
    event_add(s->idle_over, &time);
}

/* The clients have received everything. */
static void on_child(evutil_socket_t number, short what, void *context)
{
    (void)number;
    (void)what;
    event_base_loopexit(context, NULL);
}

static void open_server(struct server *s, const char *model_dir)
{
    struct engine_options options;
    engine_options_default(&options);
    options.model_dir = model_dir;
    options.device = "ref";
    options.n_threads = 1;
    options.max_num_seqs = s->client.n_streams;
    options.max_queued_requests = s->client.n_streams;
    options.max_num_batched_tokens = 2048;
    options.max_model_len = s->client.n_tokens + 64;
    options.num_kv_blocks = s->client.n_streams * (s->client.n_tokens / 16 + 8);
    null_backend_pace(s->tokens_per_second);
    bench_server_open(&s->whole, &options, sink, on_ready, s);
}

static void show_rest(const struct server *s, const char *name)
{
    char row[96];
    double tokenizer = s->whole.tokenizer_mib, memory = s->anonymous_mib - tokenizer;
    double idle = s->idle_cpu * 1e6 / s->idle_wall;
    snprintf(row, sizeof row, "%s: memory, tokenizer", name);
    bench_row(row, "MiB", &tokenizer, 1);
    snprintf(row, sizeof row, "%s: memory, all but it, weights, arenas", name);
    bench_row(row, "MiB", &memory, 1);
    snprintf(row, sizeof row, "%s: CPU time while idle", name);
    bench_row(row, "us/s", &idle, 1);
}

/* idle_seconds: how long the server is left alone first; 0: memory and idle cost are not shown. */
static void stream(const char *model_dir, const char *name, uint32_t n_streams, uint32_t n_tokens,
                   double tokens_per_second, double idle_seconds)
{
    struct server *s = calloc(1, sizeof *s);
    char row[96];
    if (!s)
        bench_die("out of memory");
    s->client = (struct stream_client){.n_streams = n_streams, .n_tokens = n_tokens};
    s->tokens_per_second = tokens_per_second;
    s->idle_seconds = idle_seconds;
    /* A fifth is left for the prompts' steps and the end. */
    s->n_part = (uint64_t)n_streams * n_tokens * 4 / 5 / N_PARTS;
    int child = stream_client_start(&s->client, &s->port_fd);
    pthread_getcpuclockid(pthread_self(), &s->loop_clock);
    s->whole.base = event_base_new();
    struct event *over = evsignal_new(s->whole.base, SIGCHLD, on_child, s->whole.base);
    event_add(over, NULL);
    s->idle_over = evtimer_new(s->whole.base, on_idle_over, s);
    s->look = event_new(s->whole.base, -1, EV_PERSIST, on_look, s);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->all_in, NULL);
    open_server(s, model_dir);
    event_base_dispatch(s->whole.base);
    client_process_end(child);
    bench_server_close(&s->whole);
    event_free(over);
    event_free(s->idle_over);
    event_free(s->look);
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->all_in);
    event_base_free(s->whole.base);
    close(s->port_fd);
    snprintf(row, sizeof row, "%s: whole server", name);
    bench_row(row, "us/token", s->per_token, s->n);
    snprintf(row, sizeof row, "%s: of it the loop", name);
    bench_row(row, "us/token", s->loop_per_token, s->n);
    snprintf(row, sizeof row, "%s: of it the engine", name);
    bench_row(row, "us/token", s->engine_per_token, s->n);
    snprintf(row, sizeof row, "%s: rate", name);
    bench_row(row, "token/s", s->rate, s->n);
    if (idle_seconds > 0)
        show_rest(s, name);
    free(s);
}

void bench_one_stream(const char *model_dir, bool quick)
{
    /* Between two tokens of the first case, caches are lost; the second case is the rate of a small model. */
    stream(model_dir, "1 stream, 250 tokens/s", 1, quick ? 100 : 1000, 250, 0);
    stream(model_dir, "1 stream, 4,000 tokens/s", 1, quick ? 100 : 1900, 4000, 0);
}

void bench_stream(const char *model_dir, bool quick)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (quick) {
        stream(model_dir, "16 streams", 16, 100, 20000, 0.2);
        return;
    }
    stream(model_dir, "1,024 streams", 1024, 400, 50000, 3);
}
