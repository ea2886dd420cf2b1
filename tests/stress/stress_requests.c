/* Makes the requests, and chooses how often each kind is sent. */
#include "tests/stress/stress_client.h"

#include <stdio.h>
#include <string.h>

const char *const ask_names[N_ASKS] = {"plain",    "chat", "stream", "long",  "long stream", "long prompt",
                                       "tokenize", "pin",  "health", "wrong", "garbage"};
const char *const moment_names[N_MOMENTS] = {"never", "unsent", "sent", "later", "replying"};
const char *const manner_names[N_MANNERS] = {"close", "reset", "half-close"};

const struct mix mixes[] = {
    {"cancel",
     .asks = {[ASK_PLAIN] = 2,
              [ASK_CHAT] = 1,
              [ASK_STREAM] = 2,
              [ASK_LONG] = 4,
              [ASK_LONG_STREAM] = 8,
              [ASK_LONG_PROMPT] = 3,
              [ASK_TOKENIZE] = 1,
              [ASK_PIN] = 1},
     .moments = {[MOMENT_UNSENT] = 2, [MOMENT_SENT] = 2, [MOMENT_LATER] = 4, [MOMENT_REPLYING] = 4},
     .manners = {1, 1, 1}},
    {"soak",
     .asks = {[ASK_PLAIN] = 40,
              [ASK_CHAT] = 10,
              [ASK_STREAM] = 25,
              [ASK_TOKENIZE] = 8,
              [ASK_HEALTH] = 4,
              [ASK_WRONG] = 10,
              [ASK_GARBAGE] = 1,
              [ASK_LONG] = 1,
              [ASK_LONG_STREAM] = 1},
     .moments =
         {[MOMENT_NEVER] = 95, [MOMENT_UNSENT] = 1, [MOMENT_SENT] = 1, [MOMENT_LATER] = 2, [MOMENT_REPLYING] = 1},
     .manners = {1, 1, 1}, .keep_alive_percent = 95},
    {"garbage", .asks = {[ASK_GARBAGE] = 90, [ASK_PLAIN] = 10}, .moments = {[MOMENT_NEVER] = 1}, .manners = {1, 1, 1},
     .keep_alive_percent = 50},
};
const size_t n_mixes = sizeof mixes / sizeof mixes[0];

uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

unsigned draw_below(uint64_t *state, unsigned n)
{
    return n ? (unsigned)(draw(state) % n) : 0;
}

unsigned draw_weighted(uint64_t *state, const unsigned *weights, unsigned n)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < n; i++)
        sum += weights[i];
    unsigned at = draw_below(state, sum);
    for (unsigned i = 0; i < n; i++) {
        if (at < weights[i])
            return i;
        at -= weights[i];
    }
    return 0;
}

static const char *const prompts[] = {"Once upon a time", "The dog", "A small house and", "In the end"};
#define N_PROMPTS 4u

static size_t post(char out[REQUEST_BYTES], const char *path, const char *body)
{
    return (size_t)snprintf(out, REQUEST_BYTES, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                            path, strlen(body), body);
}

static size_t wrong(uint64_t *state, char out[REQUEST_BYTES])
{
    static const char *const bodies[] = {"{\"prompt\": 5}",
                                         "{\"prompt\": \"x\", \"temperature\": 9}",
                                         "{",
                                         "",
                                         "{\"prompt\": \"x\", \"model\": \"nobody\"}",
                                         "{\"prompt\": \"x\", \"best_of\": 3}",
                                         "{\"messages\": [{\"role\": 1}]}"};
    const unsigned n = sizeof bodies / sizeof bodies[0], which = draw_below(state, n + 2);
    if (which == n)
        return post(out, "/nowhere", "{}");
    if (which == n + 1)
        return (size_t)snprintf(out, REQUEST_BYTES, "DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return post(out, which == n - 1 ? "/v1/chat/completions" : "/v1/completions", bodies[which]);
}

static size_t mutate(uint64_t *state, char *bytes, size_t n, size_t room)
{
    for (unsigned times = 1 + draw_below(state, 6); times > 0 && n > 0; times--) {
        size_t at = draw_below(state, (unsigned)n), length = 1 + draw_below(state, 12);
        if (at + length > n)
            length = n - at;
        switch (draw_below(state, 4)) {
        case 0: bytes[at] = (char)draw(state); break;
        case 1: bytes[at] = "\r\n:{}[]\",0\\ "[draw_below(state, 12)]; break;
        case 2: /* omitted */
            memmove(bytes + at, bytes + at + length, n - at - length);
            n -= length;
            break;
        case 3: /* repeated */
            if (n + length <= room) {
                memmove(bytes + at + length, bytes + at, n - at);
                n += length;
            }
            break;
        }
    }
    return n;
}

/* A request with a changed body, or one changed anywhere, or random bytes. */
static size_t garbage(uint64_t *state, char out[REQUEST_BYTES], unsigned *variant)
{
    char request[REQUEST_BYTES];
    unsigned unused;
    size_t n = request_make(draw_below(state, 2) ? ASK_PLAIN : ASK_CHAT, state, request, &unused);
    *variant = VARIANT_NO_HTTP;
    switch (draw_below(state, 5)) {
    case 0:
        n = 1 + draw_below(state, 300);
        for (size_t i = 0; i < n; i++)
            out[i] = (char)draw(state);
        return n;
    case 1:
    case 2:
        n = mutate(state, request, n, sizeof request);
        memcpy(out, request, n);
        return n;
    }
    char *body = strstr(request, "\r\n\r\n") + 4;
    size_t n_body = mutate(state, body, n - (size_t)(body - request), 2048);
    int n_head = snprintf(out, REQUEST_BYTES,
                          "POST /v1/%scompletions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n",
                          strstr(request, "/chat/") ? "chat/" : "", n_body);
    memcpy(out + n_head, body, n_body);
    *variant = 0;
    return (size_t)n_head + n_body;
}

size_t request_make(enum ask ask, uint64_t *state, char out[REQUEST_BYTES], unsigned *variant)
{
    char body[REQUEST_BYTES - 256], words[4096];
    const unsigned which = draw_below(state, N_PROMPTS), n = 1 + draw_below(state, 3);
    *variant = which;
    switch (ask) {
    case ASK_PLAIN:
        snprintf(body, sizeof body,
                 "{\"prompt\":\"%s\",\"max_tokens\":3,\"seed\":%u,\"temperature\":0.9,\"logprobs\":2}", prompts[which],
                 which);
        return post(out, "/v1/completions", body);
    case ASK_CHAT:
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":3,\"seed\":%u,"
                 "\"temperature\":0.9,\"logprobs\":true,\"top_logprobs\":2}",
                 prompts[which], which);
        return post(out, "/v1/chat/completions", body);
    case ASK_STREAM:
        snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":3,\"stream\":true}", prompts[which]);
        return post(out, "/v1/completions", body);
    case ASK_LONG:
    case ASK_LONG_STREAM:
        snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":200,\"ignore_eos\":true,\"n\":%u,\"stream\":%s}",
                 prompts[which], n, ask == ASK_LONG ? "false" : "true");
        return post(out, "/v1/completions", body);
    case ASK_LONG_PROMPT:
        words[0] = '\0';
        for (size_t at = 0, i = 0; i < 600; i++) /* unique, so that the prefix cache has no part of it */
            at += (size_t)snprintf(words + at, sizeof words - at, "%c ", 'a' + (char)draw_below(state, 26));
        snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":100,\"ignore_eos\":true,\"n\":%u}", words, n);
        return post(out, "/v1/completions", body);
    case ASK_TOKENIZE:
        snprintf(body, sizeof body, "{\"prompt\":\"%s\"}", prompts[which]);
        return post(out, "/tokenize", body);
    case ASK_PIN:
        snprintf(body, sizeof body,
                 "{\"prompt\":\"%s, %u, there was a small house in a big forest by the sea.\",\"ttl_seconds\":0}",
                 prompts[which], n);
        return post(out, "/v1/cache/pins", body);
    case ASK_HEALTH: return (size_t)snprintf(out, REQUEST_BYTES, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    case ASK_WRONG: return wrong(state, out);
    case ASK_GARBAGE: return garbage(state, out, variant);
    case N_ASKS: break;
    }
    return 0;
}
