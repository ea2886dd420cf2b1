/* A daemon over the fake engine, to test clients of the protocol without a model.
 *
 *     fake_engine_server --listen unix:/run/x.sock --mode count
 *
 * Prints "listening at ADDRESS" once clients may connect. SIGTERM drains it; a second one ends it. */
#include "engine/engine.h"
#include "server/daemon/daemon.h"
#include "tests/daemon/fake_engine.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct server {
    struct event_base *base;
    struct daemon *d;
    bool drained;
};

static const char usage[] =
    "fake_engine_server --listen unix:PATH|tcp:HOST:PORT [options]\n"
    "  --key-file PATH            ask for this key (tcp must)\n"
    "  --identity-text HEX        64 hex digits each; default all zero\n"
    "  --identity-config HEX\n"
    "  --model NAME               default \"fake\"\n"
    "  --mode echo|count          the prompt, then eos; or the prompt's last token + 1, + 2, ...\n"
    "  --vocab-size N             1000\n"
    "  --max-model-len N          4096\n"
    "  --eos ID                   2\n"
    "  --interval-us N            pause between steps: 0\n"
    "  --tokens-per-step N        1\n"
    "  --max-live N               requests at once, past it REFUSE: 1024\n"
    "  --retry-after-ms N         what REFUSE says: 1500\n"
    "  --fail-token ID            a choice that would say it ends with an error\n"
    "  --max-queued-bytes N       of one connection: 8388608\n"
    "  --hello-timeout-ms N       5000\n";

static void on_idle(void *context)
{
    struct server *s = context;
    event_base_loopexit(s->base, NULL);
}

static void on_signal(evutil_socket_t signal_number, short what, void *context)
{
    struct server *s = context;
    (void)signal_number;
    (void)what;
    if (s->drained)
        event_base_loopexit(s->base, NULL);
    s->drained = true;
    daemon_drain(s->d);
}

static bool parse_hex(const char *text, struct key256 *out)
{
    if (strlen(text) != 64)
        return false;
    for (size_t i = 0; i < 32; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], '\0'}, *end;
        out->bytes[i] = (uint8_t)strtoul(digits, &end, 16);
        if (*end)
            return false;
    }
    return true;
}

static const struct option names[] = {
    {"listen", required_argument, NULL, 'l'},
    {"key-file", required_argument, NULL, 'k'},
    {"identity-text", required_argument, NULL, 't'},
    {"identity-config", required_argument, NULL, 'c'},
    {"model", required_argument, NULL, 'm'},
    {"mode", required_argument, NULL, 'o'},
    {"vocab-size", required_argument, NULL, 'v'},
    {"max-model-len", required_argument, NULL, 'x'},
    {"eos", required_argument, NULL, 'e'},
    {"interval-us", required_argument, NULL, 'i'},
    {"tokens-per-step", required_argument, NULL, 's'},
    {"max-live", required_argument, NULL, 'L'},
    {"retry-after-ms", required_argument, NULL, 'r'},
    {"fail-token", required_argument, NULL, 'f'},
    {"refuse-below-us", required_argument, NULL, 'R'},
    {"max-queued-bytes", required_argument, NULL, 'q'},
    {"hello-timeout-ms", required_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool parse(int argc, char **argv, struct daemon_options *d, struct fake_engine_options *f, const char **address,
                  const char **key_file)
{
    int letter;
    while ((letter = getopt_long(argc, argv, "", names, NULL)) != -1) {
        uint32_t number = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        switch (letter) {
        case 'l': *address = optarg; break;
        case 'k': *key_file = optarg; break;
        case 't':
        case 'c':
            if (!parse_hex(optarg, letter == 't' ? &d->identity_text : &d->identity_config))
                return false;
            break;
        case 'm': d->model = optarg; break;
        case 'o': f->mode = strcmp(optarg, "count") == 0 ? FAKE_ENGINE_COUNT : FAKE_ENGINE_ECHO; break;
        case 'v': f->vocab_size = number; break;
        case 'x': f->max_model_len = number; break;
        case 'e': f->eos = number; break;
        case 'i': f->interval_us = number; break;
        case 's': f->tokens_per_step = number; break;
        case 'L': f->max_live = number; break;
        case 'r': f->retry_after_ms = number; break;
        case 'f': f->fail_token = number; break;
        case 'R': f->refuse_below_us = number; break;
        case 'q': d->max_queued_bytes = number; break;
        case 'h': d->hello_timeout_ms = number; break;
        default: return false;
        }
    }
    return *address && f->vocab_size && f->tokens_per_step;
}

static int serve(struct server *s, struct daemon_options *options, const struct fake_engine_options *fake,
                 const char *address, const char *key_file, struct quire_error *err)
{
    struct engine *engine = NULL;
    options->on_idle = on_idle;
    options->context = s;
    int status = daemon_create(s->base, options, &s->d, err);
    if (!status)
        status = fake_engine_open(fake, daemon_sink, s->d, &engine, err);
    if (!status) {
        daemon_set_engine(s->d, engine);
        status = daemon_listen(s->d, address, key_file, err);
    }
    if (!status) {
        printf("listening at %s\n", daemon_address(s->d, 0));
        fflush(stdout);
        event_base_dispatch(s->base);
    }
    engine_close(engine);
    daemon_close(s->d);
    return status;
}

int main(int argc, char **argv)
{
    struct daemon_options options = {.model = "fake"};
    struct fake_engine_options fake;
    const char *address = NULL, *key_file = NULL;
    struct quire_error err;
    fake_engine_options_default(&fake);
    if (!parse(argc, argv, &options, &fake, &address, &key_file)) {
        fputs(usage, stderr);
        return 2;
    }
    struct server s = {.base = event_base_new()};
    struct event *terminate = evsignal_new(s.base, SIGTERM, on_signal, &s);
    struct event *interrupt = evsignal_new(s.base, SIGINT, on_signal, &s);
    event_add(terminate, NULL);
    event_add(interrupt, NULL);
    int status = serve(&s, &options, &fake, address, key_file, &err);
    if (status)
        fprintf(stderr, "fake_engine_server: %s\n", err.text);
    event_free(terminate);
    event_free(interrupt);
    event_base_free(s.base);
    return status ? 1 : 0;
}
