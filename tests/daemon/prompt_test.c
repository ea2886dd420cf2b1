/* Prompts larger than a socket accepts at once: the part sent from the caller's memory and the part that had to wait
 * make one frame, and a second request follows it. */
#include "server/link/engine_client.h"
#include "tests/daemon/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#define N_PROMPT 150000u /* 600 KB: about three times a socket's buffer */
#define N_VOCAB 1000u

struct echo {
    const uint32_t *prompt;
    uint32_t n_tokens, n_wrong;
    bool over;
};

static void on_ready(void *context, const struct wire_hello *hello)
{
    (void)hello;
    *(bool *)context = true;
}
static void on_stats(void *context, const struct wire_stats *stats)
{
    (void)context;
    (void)stats;
}
static void on_control(void *context, const struct wire_refuse *refuse)
{
    (void)context;
    (void)refuse;
}
static void on_drain(void *context)
{
    (void)context;
}
static void on_closed(void *context, const char *why)
{
    (void)context;
    fail_msg("closed: %s", why);
}
static const struct engine_client_events client_events = {
    .on_ready = on_ready, .on_stats = on_stats, .on_control = on_control, .on_drain = on_drain, .on_closed = on_closed};

static void on_accepted(void *context, uint64_t id)
{
    (void)context;
    assert_true(id != 0);
}
static void on_refused(void *context, const struct wire_refuse *refuse)
{
    (void)context;
    fail_msg("refused: %.*s", (int)refuse->n_message, refuse->message);
}
static void on_token(void *context, const struct wire_token *token)
{
    struct echo *e = context;
    e->n_wrong += e->n_tokens < N_PROMPT && token->token != e->prompt[e->n_tokens];
    e->n_tokens++;
}
static void on_done(void *context, const struct wire_done *done)
{
    ((struct echo *)context)->over = done->last;
}
static void on_lost(void *context, const char *why)
{
    (void)context;
    fail_msg("lost: %s", why);
}
static const struct completion_events events = {.on_accepted = on_accepted,
                                                .on_refused = on_refused,
                                                .on_token = on_token,
                                                .on_prompt_logprob = on_token,
                                                .on_done = on_done,
                                                .on_lost = on_lost};

static bool is_true(void *context)
{
    return *(bool *)context;
}
static bool is_over(void *context)
{
    const struct echo *e = context;
    return e[0].over && e[1].over;
}

static void large_prompts_arrive_whole(void **state)
{
    (void)state;
    struct rig rig;
    struct fake_engine_options fake;
    struct daemon_options options;
    rig_default_options(&options, &fake);
    fake.max_model_len = 3 * N_PROMPT;
    fake.tokens_per_step = 10000;
    rig_open(&rig, &options, &fake);
    struct wire_hello hello = {.model = "fake", .n_model = 4, .initial_credit = 64u << 20};
    memset(hello.identity_text.bytes, 0x11, 32);
    memset(hello.identity_config.bytes, 0x22, 32);
    int fds[2];
    bool ready = false;
    struct quire_error err;
    struct engine_client *client;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(daemon_add_connection(rig.d, wire_stream_of_socket(rig.base, fds[0]), &err), QUIRE_OK);
    assert_int_equal(engine_client_open(rig.base, wire_stream_of_socket(rig.base, fds[1]), &hello, NULL, &client_events,
                                        &ready, &client, &err),
                     QUIRE_OK);
    assert_true(rig_run_until(&rig, is_true, &ready));

    uint32_t *prompt = malloc(N_PROMPT * sizeof *prompt);
    for (uint32_t i = 0; i < N_PROMPT; i++)
        prompt[i] = 3 + i * 7919u % (N_VOCAB - 3);
    struct echo echoes[2] = {{.prompt = prompt}, {.prompt = prompt}};
    const struct completion_source source = engine_client_source(client);
    struct request_spec spec;
    request_spec_default(&spec);
    spec.prompt = prompt;
    spec.n_prompt = N_PROMPT;
    spec.max_tokens = N_PROMPT + 1;
    for (int i = 0; i < 2; i++) {
        uint64_t id;
        assert_int_equal(source.submit(source.self, &spec, NULL, &events, &echoes[i], &id, &err), QUIRE_OK);
    }
    assert_true(rig_run_until(&rig, is_over, echoes));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(echoes[i].n_tokens, N_PROMPT + 1);
        assert_int_equal(echoes[i].n_wrong, 0);
    }
    free(prompt);
    engine_client_close(client);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_prompts_arrive_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
