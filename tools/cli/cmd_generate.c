/* quire generate: one answer, or a chat, on this terminal. The engine runs in this process behind the same frames as
 * everywhere else. */
#include "base/buffer.h"
#include "base/clock.h"
#include "base/encoding/json.h"
#include "engine/info.h"
#include "engine/plan.h"
#include "server/daemon/daemon.h"
#include "server/link/engine_client.h"
#include "speculation/figures.h"
#include "tools/cli/command.h"
#include "tools/cli/commands.h"
#include "tools/cli/engine_flags.h"
#include "tools/cli/foreign_flags.h"
#include "tools/cli/watch/loading.h"
#include "tools/cli/prompt_line.h"
#include "tools/cli/serving.h"
#include "tools/hub/cache.h"
#include "server/wire/frame.h"
#include "engine/engine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct generate {
    /* from the command line */
    struct engine_options options;
    const char *prompt, *system;
    uint32_t max_tokens, top_k;
    double temperature, top_p;
    bool has_temperature, has_top_p, has_top_k;
    bool raw, json;

    struct event_base *base;
    struct quire_text *text;
    struct daemon *daemon;
    struct engine *engine;
    struct engine_client *client;
    struct completion_source source; /* the client */
    struct serving_identity identity;
    struct event *signals[2];
    json_t *messages; /* the chat so far */
    bool ready, interrupted /* SIGINT: stop this answer */, stopped /* SIGTERM */;

    /* the current answer */
    struct quire_detok *detok;
    struct buffer answer;
    uint64_t source_id; /* of the current request */
    uint32_t n_prompt, n_generated, n_drafted, n_accepted;
    double started, first_token;
    bool running;
    int status;
    struct quire_error err;
};

static void finish(struct generate *g, int status)
{
    g->status = status;
    g->running = false;
    event_base_loopbreak(g->base);
}

/* ---- an answer ---- */

static void emit(struct generate *g, const char *piece, size_t n)
{
    if (n == 0)
        return;
    if (buffer_append(&g->answer, piece, n)) {
        finish(g, quire_fail(&g->err, QUIRE_NO_MEMORY, "out of memory"));
        return;
    }
    if (!g->json) {
        fwrite(piece, 1, n, stdout);
        fflush(stdout);
    }
}

static void on_token(void *context, const struct wire_token *token)
{
    struct generate *g = context;
    const char *piece;
    size_t n;
    if (g->n_generated++ == 0)
        g->first_token = quire_now_s();
    int status = quire_detok_push(g->detok, token->token, &piece, &n, &g->err);
    if (status != QUIRE_OK)
        finish(g, status);
    else
        emit(g, piece, n);
}

static void on_done(void *context, const struct wire_done *done)
{
    struct generate *g = context;
    const char *piece;
    size_t n;
    int status = quire_detok_finish(g->detok, &piece, &n, &g->err);
    if (status == QUIRE_OK)
        emit(g, piece, n);
    g->n_drafted = done->n_drafted;
    g->n_accepted = done->n_accepted;
    if (done->finish == WIRE_FINISH_ERROR)
        status = quire_fail(&g->err, QUIRE_INTERNAL, "%.*s", (int)done->n_message, done->message);
    finish(g, status);
}

static void on_refused(void *context, const struct wire_refuse *refuse)
{
    struct generate *g = context;
    finish(g, quire_fail(&g->err, QUIRE_INVALID, "%.*s", (int)refuse->n_message, refuse->message));
}

static void on_lost(void *context, const char *why)
{
    struct generate *g = context;
    finish(g, quire_fail(&g->err, QUIRE_INTERNAL, "%s", why));
}

static void on_accepted(void *context, uint64_t engine_id)
{
    (void)context;
    (void)engine_id;
}

static int submit(struct generate *g, const uint32_t *ids, size_t n_ids)
{
    static const struct completion_events events = {
        .on_accepted = on_accepted,
        .on_refused = on_refused,
        .on_token = on_token,
        .on_prompt_logprob = on_token,
        .on_done = on_done,
        .on_lost = on_lost,
    };
    const struct engine_info *info = engine_info(g->engine);
    uint32_t room = info->plan->max_model_len;
    if (n_ids == 0)
        return quire_fail(&g->err, QUIRE_INVALID, "the prompt is empty");
    if (n_ids >= room)
        return quire_fail(&g->err, QUIRE_INVALID,
                          "the prompt has %zu tokens, but the context has only %u; raise --max-model-len, or start a "
                          "new chat",
                          n_ids, room);
    room -= (uint32_t)n_ids;
    struct request_spec s;
    request_spec_default(&s);
    s.prompt = ids;
    s.n_prompt = (uint32_t)n_ids;
    s.max_tokens = g->max_tokens && g->max_tokens < room ? g->max_tokens : room;
    request_spec_take_defaults(&s, info->sampling);
    if (g->has_temperature)
        s.temperature = (float)g->temperature;
    if (g->has_top_p)
        s.top_p = (float)g->top_p;
    if (s.top_p == 0) { /* greedy, as in requests; the model's default may be 0 too */
        s.temperature = 0;
        s.top_p = 1;
    }
    if (g->has_top_k)
        s.top_k = g->top_k;
    g->n_prompt = s.n_prompt;
    g->n_generated = g->n_drafted = g->n_accepted = 0;
    buffer_clear(&g->answer);
    g->started = quire_now_s();
    g->interrupted = false;
    g->running = true;
    return g->source.submit(g->source.self, &s, NULL, &events, g, &g->source_id, &g->err);
}

static int render(struct generate *g, const char *prompt, char **out, size_t *n)
{
    json_t *message = json_pack("{s:s, s:s}", "role", "user", "content", prompt);
    if (!message)
        return quire_fail(&g->err, QUIRE_INVALID, "the prompt is not UTF-8");
    if (g->system && json_array_size(g->messages) == 0)
        json_array_append_new(g->messages, json_pack("{s:s, s:s}", "role", "system", "content", g->system));
    json_array_append_new(g->messages, message);
    char *json = json_dumps(g->messages, JSON_COMPACT);
    if (!json)
        return quire_fail(&g->err, QUIRE_NO_MEMORY, "out of memory");
    const struct quire_chat chat = {.messages_json = json, .add_generation_prompt = true};
    int status = quire_text_chat(g->text, &chat, out, n, NULL, &g->err);
    free(json);
    return status;
}

static void print_speed(const struct generate *g)
{
    double total = quire_now_s() - g->started, first = g->first_token - g->started;
    fprintf(stderr, "(%u tokens in, first token after %.0f ms, %u tokens out at %.1f tokens/s", g->n_prompt,
            first * 1e3, g->n_generated, g->n_generated / total);
    if (g->n_drafted > 0)
        fprintf(stderr, "; %.2f tokens per step, %.0f%% of %u drafts accepted",
                draft_tokens_a_step(g->n_generated, g->n_accepted), 100 * draft_acceptance(g->n_drafted, g->n_accepted),
                g->n_drafted);
    fputs(")\n", stderr);
}

/* Answers one prompt and adds question and answer to the chat's messages. */
static int answer(struct generate *g, const char *prompt)
{
    bool chat = !g->raw && quire_text_has_chat(g->text);
    char *rendered = NULL;
    size_t n = strlen(prompt), n_ids = 0;
    uint32_t *ids = NULL;
    int status = chat ? render(g, prompt, &rendered, &n) : QUIRE_OK;
    if (status == QUIRE_OK)
        status = quire_text_encode(g->text, rendered ? rendered : prompt, n, !chat, &ids, &n_ids, &g->err);
    if (status == QUIRE_OK)
        status = quire_detok_open(g->text, ids, n_ids, true, &g->detok, &g->err);
    if (status == QUIRE_OK)
        status = submit(g, ids, n_ids);
    if (status == QUIRE_OK) {
        event_base_dispatch(g->base);
        status = g->status;
    }
    quire_detok_close(g->detok);
    g->detok = NULL;
    free(ids);
    free(rendered);
    if (status != QUIRE_OK || g->stopped)
        return status;
    /* The chat keeps the partial text of a stopped answer. A question without any answer is removed. */
    if (chat && g->interrupted && g->answer.n == 0)
        json_array_remove(g->messages, json_array_size(g->messages) - 1);
    else if (chat)
        json_array_append_new(g->messages,
                              json_pack("{s:s, s:s}", "role", "assistant", "content", buffer_text(&g->answer)));
    if (g->json) {
        json_t *o = json_pack("{s:s, s:i, s:i}", "text", buffer_text(&g->answer), "prompt_tokens", (int)g->n_prompt,
                              "completion_tokens", (int)g->n_generated);
        json_dumpf(o, stdout, JSON_COMPACT);
        json_decref(o);
    }
    putchar('\n');
    fflush(stdout);
    print_speed(g);
    return QUIRE_OK;
}

/* One message after the other. Ctrl-C discards the line, and a second one ends the chat. */
static int chat_on_terminal(struct generate *g)
{
    struct prompt_line *prompt;
    const char *line;
    bool tty = isatty(STDIN_FILENO), asked = false;
    int status = prompt_line_open("> ", &prompt, &g->err);
    if (tty)
        fprintf(stderr, "Type a message. Ctrl-C stops an answer; Ctrl-D, or Ctrl-C twice, ends the chat.\n");
    while (status == QUIRE_OK && !g->stopped) {
        if (tty)
            fputc('\n', stderr);
        enum prompt_line_end end = prompt_line_next(prompt, &line);
        if (end == PROMPT_END || (end == PROMPT_INTERRUPTED && (asked || !tty)))
            break;
        asked = end == PROMPT_INTERRUPTED;
        if (asked)
            fprintf(stderr, "\n(Ctrl-C again ends the chat)");
        else if (line[strspn(line, " \t")])
            status = answer(g, line);
    }
    if (tty)
        fputc('\n', stderr);
    prompt_line_close(prompt);
    return status;
}

/* ---- the engine in this process ---- */

static void on_ready(void *context, const struct wire_hello *hello)
{
    struct generate *g = context;
    (void)hello;
    g->ready = true;
    event_base_loopbreak(g->base);
}

static void on_closed(void *context, const char *why)
{
    struct generate *g = context;
    finish(g, quire_fail(&g->err, QUIRE_INTERNAL, "the engine closed the connection: %s", why));
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

static void on_signal(evutil_socket_t number, short what, void *context)
{
    struct generate *g = context;
    (void)what;
    g->interrupted = true;
    g->stopped = number == SIGTERM;
    if (g->running)
        g->source.cancel(g->source.self, g->source_id, -1);
    finish(g, QUIRE_OK);
}

static int watch_signals(struct generate *g)
{
    static const int numbers[2] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        g->signals[i] = evsignal_new(g->base, numbers[i], on_signal, g);
        if (!g->signals[i] || evsignal_add(g->signals[i], NULL) != 0)
            return quire_fail(&g->err, QUIRE_INTERNAL, "signals cannot be watched");
    }
    return QUIRE_OK;
}

static int connect_engine(struct generate *g)
{
    static const struct engine_client_events events = {.on_ready = on_ready,
                                                       .on_stats = on_stats,
                                                       .on_control = on_control,
                                                       .on_drain = on_drain,
                                                       .on_closed = on_closed};
    struct wire_stream *pair[2];
    int status = wire_stream_pair(g->base, pair, &g->err);
    if (status != QUIRE_OK)
        return status;
    status = daemon_add_connection(g->daemon, pair[0], &g->err);
    if (status != QUIRE_OK) {
        wire_stream_close(pair[1]);
        return status;
    }
    const struct wire_hello ours = {.version = WIRE_VERSION,
                                    .identity_text = g->identity.text,
                                    .identity_config = g->identity.config,
                                    .identity_generation = g->identity.generation,
                                    .arithmetic = g->identity.law,
                                    .n_arithmetic = strlen(g->identity.law)};
    status = engine_client_open(g->base, pair[1], &ours, NULL, &events, g, &g->client, &g->err);
    g->source = engine_client_source(g->client);
    if (status != QUIRE_OK)
        return status;
    event_base_dispatch(g->base);
    return g->ready ? QUIRE_OK : g->status;
}

static int open_all(struct generate *g)
{
    struct serving_text_load *load;
    int status = serving_identity_read(g->options.model_dir, &g->identity, &g->err);
    if (status == QUIRE_OK)
        status = serving_text_begin(g->options.model_dir, &load, &g->err);
    if (status != QUIRE_OK)
        return status;
    struct quire_error engine_err;
    const struct daemon_options daemon_options = {.identity_text = g->identity.text,
                                                  .identity_config = g->identity.config,
                                                  .identity_generation = g->identity.generation,
                                                  .model = "model"};
    g->base = event_base_new();
    g->messages = json_array();
    status = g->base && g->messages ? daemon_create(g->base, &daemon_options, &g->daemon, &engine_err)
                                    : quire_fail(&engine_err, QUIRE_NO_MEMORY, "out of memory");
    if (status == QUIRE_OK)
        status = loading_engine_open(&g->options, daemon_sink, g->daemon, &g->engine, &engine_err);
    int text_status = serving_text_join(load, &g->text, &g->err);
    if (status != QUIRE_OK) {
        g->err = engine_err;
        return status;
    }
    if (text_status != QUIRE_OK)
        return text_status;
    uint32_t vocab = engine_info(g->engine)->desc->vocab_size;
    if (quire_text_n_ids(g->text) > vocab)
        return quire_fail(&g->err, QUIRE_INVALID, "tokenizer.json: has token id %u, but config.json: vocab_size is %u",
                          quire_text_n_ids(g->text) - 1, vocab);
    daemon_set_engine(g->daemon, g->engine);
    status = connect_engine(g);
    return status == QUIRE_OK ? watch_signals(g) : status;
}

static void close_all(struct generate *g)
{
    for (int i = 0; i < 2; i++)
        if (g->signals[i])
            event_free(g->signals[i]);
    engine_client_close(g->client);
    engine_close(g->engine);
    daemon_close(g->daemon);
    quire_text_close(g->text);
    json_decref(g->messages);
    if (g->base)
        event_base_free(g->base);
    buffer_free(&g->answer);
}

static size_t own_flags(struct generate *g, struct cli_option *out)
{
    /* clang-format off */
    const struct cli_option rows[] = {
        {.names = "Request:", .kind = CLI_GROUP},
        {.names = "system", .kind = CLI_STRING, .target = &g->system, .value = "TEXT",
         .common = true, .help = "Put this system message before the first question."},
        {.names = "raw", .kind = CLI_FLAG, .target = &g->raw,
         .common = true, .help = "Continue the prompt without the model's chat template."},
        {.names = "max-tokens", .kind = CLI_U32, .target = &g->max_tokens, .min = 1, .max = 4294967295.0, .value = "N",
         .common = true, .help = "Maximum length of an answer. Default: until the model stops or the context is full."},
        {.names = "temperature", .kind = CLI_F64, .target = &g->temperature, .given = &g->has_temperature,
         .max = 100, .value = "X",
         .common = true, .help = "Sampling temperature; 0 is greedy. Default: the value in generation_config.json, else 1."},
        {.names = "top-p", .kind = CLI_F64, .target = &g->top_p, .given = &g->has_top_p, .max = 1, .value = "X",
         .common = true, .help = "Nucleus sampling: cumulative probability of the candidates. Default: the value in "
                 "generation_config.json, else 1."},
        {.names = "top-k", .kind = CLI_U32, .target = &g->top_k, .given = &g->has_top_k, .value = "N",
         .common = true, .help = "Number of candidates; 0 disables the limit. Default: the value in generation_config.json, else 0."},
        {.names = "json", .kind = CLI_FLAG, .target = &g->json,
         .common = true, .help = "Print one JSON object when the answer is complete."},
    };
    /* clang-format on */
    memcpy(out, rows, sizeof rows);
    return sizeof rows / sizeof rows[0];
}

int command_generate(int argc, char **argv)
{
    struct generate g = {.status = QUIRE_INTERNAL};
    struct hub_model model;
    struct cli_option rows[ENGINE_FLAGS_MAX + 10];

    engine_options_default(&g.options);
    g.options.max_num_seqs = 1;
    size_t n = own_flags(&g, rows);
    n += engine_flags(&g.options, rows + n);
    rows[n] = (struct cli_option){0};
    const struct cli_command command = {
        .name = "generate",
        .usage = "quire generate MODEL [PROMPT] [options]",
        .about =
            "Answers PROMPT with MODEL and streams the answer. MODEL is a Hugging Face checkpoint directory or the name\n"
            "of a downloaded model (quire pull). Without PROMPT, it starts a chat with one message per line; Ctrl-C\n"
            "stops an answer, Ctrl-D ends the chat.",
        .examples = "examples:\n"
                    "  quire generate ./model \"What is 12 plus 30?\" --temperature 0\n"
                    "  quire generate ./model                      chat\n"
                    "  quire generate ./model \"Once upon\" --raw --max-tokens 50",
        .options = rows,
        .positionals = {&g.options.model_dir, &g.prompt},
        .first_names = FOREIGN_MODEL_NAMES,
        .foreign = foreign_flags,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (!g.options.model_dir)
        return command_fail(2, "MODEL is missing; usage: quire generate MODEL [PROMPT]");
    if (strcmp(g.options.batching, "static") == 0)
        return command_fail(
            2, "--batching static waits for a full batch, but generate runs one request at a time: leave it out");

    if (hub_model_find(g.options.model_dir, false, &model, &g.err) != QUIRE_OK)
        return command_fail(1, g.err.text);
    g.options.model_dir = model.dir;

    int status = open_all(&g);
    if (status == QUIRE_OK)
        status = g.prompt ? answer(&g, g.prompt) : chat_on_terminal(&g);
    close_all(&g);
    if (status != QUIRE_OK)
        return command_fail(1, g.err.text);
    return g.prompt && g.interrupted ? 130 : 0; /* the shell's status of a program ended by SIGINT */
}
