#include "app/map_reduce/work.h"

#include "app/map_reduce/chunks.h"
#include "app/map_reduce/stage.h"
#include "app/map_reduce/texts.h"
#include "base/clock.h"
#include "base/encoding/json.h"
#include "base/encoding/utf8.h"
#include "base/file.h"
#include "base/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILE_BYTES ((size_t)1 << 30)
#define MAX_DEPTH 64
#define PIECE_BYTES ((size_t)1 << 20) /* of a text whose tokens are counted in one call */

struct work {
    const struct work_options *options;
    struct work_options with_model; /* options with the model's name */
    struct work_report *report;
    struct buffer reply;
    char *model;
    uint32_t context; /* tokens of a prompt with its answer */
    uint32_t chunk_tokens;
    struct texts chunks; /* the prompts of the first stage */
    struct texts names; /* where each is: "file.txt, chunk 3" */
};

/* ---- the server ----------------------------------------------------------------------------- */

static int call(struct work *w, const char *method, const char *path, json_t *body, json_t **reply,
                struct quire_error *err)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (body && !text)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    int status = place_call(w->options->place, method, path, text, text ? strlen(text) : 0, &w->reply, err);
    free(text);
    return status == QUIRE_OK ? quire_json_parse(w->reply.data, w->reply.n, MAX_DEPTH, path, reply, err) : status;
}

static int ask_model(struct work *w, struct quire_error *err)
{
    json_t *models;
    w->with_model = *w->options;
    if (w->options->model)
        return QUIRE_OK;
    int status = call(w, "GET", "/v1/models", NULL, &models, err);
    if (status != QUIRE_OK)
        return status;
    const char *id = json_string_value(json_object_get(json_array_get(json_object_get(models, "data"), 0), "id"));
    w->model = id ? strdup(id) : NULL;
    json_decref(models);
    w->with_model.model = w->model;
    return w->model ? QUIRE_OK : quire_fail(err, QUIRE_IO, "/v1/models: names no model; use --model");
}

/* body: {"prompt"} or {"messages"}; taken. */
static int count_tokens(struct work *w, json_t *body, uint32_t *n, struct quire_error *err)
{
    json_t *reply;
    if (!body)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory, or a text is not UTF-8");
    json_object_set_new(body, "model", json_string(w->with_model.model));
    int status = call(w, "POST", "/tokenize", body, &reply, err);
    if (status != QUIRE_OK)
        return status;
    uint32_t context = 0;
    status = quire_json_u32(reply, "/tokenize", "count", 0, UINT32_MAX, n, err);
    if (status == QUIRE_OK)
        status = quire_json_u32(reply, "/tokenize", "max_model_len", 1, UINT32_MAX, &context, err);
    if (status == QUIRE_OK && context == 0)
        status = quire_fail(err, QUIRE_IO, "/tokenize: has no max_model_len");
    w->context = context;
    json_decref(reply);
    return status;
}

/* For chunks_cut(). A long text is counted in pieces: a few tokens more than as a whole. */
static int count_text(void *context, const char *text, size_t n, uint32_t *n_tokens, struct quire_error *err)
{
    *n_tokens = 0;
    while (n > 0) {
        size_t piece = n < PIECE_BYTES ? n : PIECE_BYTES;
        while (piece < n && ((unsigned char)text[piece] & 0xc0) == 0x80)
            piece--;
        uint32_t here;
        const int status = count_tokens(
            context, json_pack("{s:s%, s:b}", "prompt", text, piece, "add_special_tokens", 0), &here, err);
        if (status != QUIRE_OK)
            return status;
        *n_tokens += here;
        text += piece;
        n -= piece;
    }
    return QUIRE_OK;
}

/* The tokens of a request with a prompt and no text. */
static int count_prompt(struct work *w, const char *prompt, uint32_t *n, struct quire_error *err)
{
    struct buffer text = {0};
    texts_fill(&text, prompt, "", 0);
    const int status = count_tokens(w,
                                    json_pack("{s:[{s:s, s:s%}], s:b}", "messages", "role", "user", "content",
                                              text.data ? text.data : "", text.n, "add_generation_prompt", 1),
                                    n, err);
    buffer_free(&text);
    return status;
}

/* ---- chunks --------------------------------------------------------------------------------- */

static int check_utf8(const char *path, const struct buffer *text, struct quire_error *err)
{
    const char *nul = text->n ? memchr(text->data, '\0', text->n) : NULL;
    if (nul)
        return quire_fail(err, QUIRE_INVALID, "%s: is not a text: it has a NUL at byte %zu", path,
                          (size_t)(nul - text->data));
    for (size_t i = 0, n; i < text->n; i += n) {
        n = utf8_character((const uint8_t *)text->data + i, text->n - i);
        if (n == 0)
            return quire_fail(err, QUIRE_INVALID, "%s: is not UTF-8 at byte %zu", path, i);
    }
    return QUIRE_OK;
}

static int add_chunk(struct work *w, const char *path, size_t number, const char *text, size_t n,
                     struct quire_error *err)
{
    struct buffer *prompt = texts_add(&w->chunks), *name = texts_add(&w->names);
    char number_text[32];
    if (!prompt || !name)
        return quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    texts_fill(prompt, w->options->map, text, n);
    snprintf(number_text, sizeof number_text, ", chunk %zu", number);
    buffer_append(name, path, strlen(path));
    buffer_append(name, number_text, strlen(number_text) + 1);
    return prompt->failed || name->failed ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory") : QUIRE_OK;
}

static int cut_file(struct work *w, const char *path, struct quire_error *err)
{
    const struct chunker chunker = {w->chunk_tokens, w->options->overlap, count_text, w};
    struct buffer text = {0};
    struct chunk *chunks = NULL;
    size_t n = 0;
    FILE *file = fopen(path, "rb");
    if (!file)
        return quire_fail(err, QUIRE_IO, "%s: cannot be read: %s", path, strerror(errno));
    int status = buffer_read(&text, file, MAX_FILE_BYTES, path, err);
    fclose(file);
    if (status == QUIRE_OK)
        status = check_utf8(path, &text, err);
    if (status == QUIRE_OK && text.n) {
        status = chunks_cut(&chunker, text.data, text.n, &chunks, &n, err);
        if (status != QUIRE_OK)
            quire_error_prefix(err, "%s", path);
    }
    for (size_t i = 0; i < n && status == QUIRE_OK; i++)
        status = add_chunk(w, path, i + 1, text.data + chunks[i].at, chunks[i].n_bytes, err);
    free(chunks);
    buffer_free(&text);
    return status;
}

static int set_chunk_tokens(struct work *w, struct quire_error *err)
{
    const struct work_options *o = w->options;
    uint32_t n_map;
    const int status = count_prompt(w, o->map, &n_map, err);
    if (status != QUIRE_OK)
        return status;
    const uint64_t others = (uint64_t)n_map + o->max_tokens;
    const uint64_t space = others < w->context ? w->context - others : 0;
    w->chunk_tokens = o->chunk_tokens             ? o->chunk_tokens
                      : space < WORK_CHUNK_TOKENS ? (uint32_t)space
                                                  : WORK_CHUNK_TOKENS;
    if (w->chunk_tokens <= space && w->chunk_tokens > 2 * (uint64_t)o->overlap)
        return QUIRE_OK;
    return quire_fail(
        err, QUIRE_INVALID,
        "the context of %u tokens is too small for a chunk of %u (--chunk-tokens) that is more than twice "
        "--overlap %u, with %u of --map and %u of --max-tokens",
        w->context, w->chunk_tokens, o->overlap, n_map, o->max_tokens);
}

static int cut_files(struct work *w, struct quire_error *err)
{
    const struct work_options *o = w->options;
    int status = set_chunk_tokens(w, err);
    for (size_t i = 0; i < o->n_files && status == QUIRE_OK; i++)
        status = cut_file(w, o->files[i], err);
    if (status == QUIRE_OK && w->chunks.n == 0)
        status = quire_fail(err, QUIRE_INVALID, "the files are empty");
    w->report->n_chunks = (uint32_t)w->chunks.n;
    return status;
}

/* ---- the folder ----------------------------------------------------------------------------- */

/* The same work has the same folder: its name is a digest of all that its requests depend on. */
static int open_folder(struct work *w, struct quire_error *err)
{
    const struct work_options *o = w->options;
    const uint64_t numbers[] = {o->max_tokens, place_identity(o->place)};
    struct quire_sha256_state s;
    char hex[65];
    quire_sha256_begin(&s);
    quire_sha256_add(&s, numbers, sizeof numbers);
    quire_sha256_add(&s, o->reduce, strlen(o->reduce) + 1);
    for (size_t i = 0; i < w->chunks.n; i++) {
        quire_sha256_add(&s, &w->chunks.items[i].n, sizeof w->chunks.items[i].n);
        quire_sha256_add(&s, w->chunks.items[i].data, w->chunks.items[i].n);
    }
    const struct key256 digest = quire_sha256_now(&s);
    quire_key256_hex(&digest, hex);
    snprintf(w->report->folder, sizeof w->report->folder, "map-reduce-%.16s.state", hex);
    if (mkdir(w->report->folder, 0700) != 0 && errno != EEXIST)
        return quire_fail(err, QUIRE_IO, "%s: cannot be made: %s", w->report->folder, strerror(errno));
    return QUIRE_OK;
}

/* ---- reducing ------------------------------------------------------------------------------- */

/* Joins results, as many as fit into each prompt: one prompt at the top of the tree. */
static int join(struct work *w, const struct texts *results, uint32_t n_prompt, struct texts *prompts,
                struct quire_error *err)
{
    const uint64_t budget = (uint64_t)w->context - w->options->max_tokens - n_prompt;
    struct buffer joined = {0};
    uint64_t n_tokens = 0;
    int status = QUIRE_OK;
    for (size_t i = 0; i < results->n && status == QUIRE_OK; i++) {
        struct buffer item = {0};
        uint32_t n_item = 0;
        texts_join(&item, i + 1, &results->items[i]);
        status = item.failed ? quire_fail(err, QUIRE_NO_MEMORY, "out of memory")
                             : count_text(w, item.data, item.n, &n_item, err);
        buffer_free(&item);
        n_item += 2; /* the blank line before it */
        if (status == QUIRE_OK && n_tokens + n_item > budget && joined.n) {
            struct buffer *prompt = texts_add(prompts);
            if (prompt)
                texts_fill(prompt, w->options->reduce, joined.data, joined.n);
            buffer_clear(&joined);
            n_tokens = 0;
        }
        n_tokens += n_item;
        texts_join(&joined, i + 1, &results->items[i]);
    }
    struct buffer *prompt = status == QUIRE_OK ? texts_add(prompts) : NULL;
    if (prompt)
        texts_fill(prompt, w->options->reduce, joined.data, joined.n);
    if (status == QUIRE_OK && (!prompt || prompt->failed || joined.failed))
        status = quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    buffer_free(&joined);
    return status;
}

static int reduce(struct work *w, struct texts *results, struct quire_error *err)
{
    uint32_t n_prompt;
    size_t failed;
    int status = count_prompt(w, w->options->reduce, &n_prompt, err);
    if (status == QUIRE_OK && (uint64_t)n_prompt + 3 * (uint64_t)w->options->max_tokens + 32 > w->context)
        status = quire_fail(
            err, QUIRE_INVALID,
            "--max-tokens %u: two results with --reduce and an answer do not fit into the context of %u "
            "tokens",
            w->options->max_tokens, w->context);
    bool is_last = false;
    for (unsigned stage = 1; status == QUIRE_OK && !is_last; stage++) {
        struct texts prompts = {0}, answers = {0};
        status = join(w, results, n_prompt, &prompts, err);
        is_last = prompts.n == 1;
        if (status == QUIRE_OK && !is_last && prompts.n >= results->n)
            status = quire_fail(err, QUIRE_INVALID, "no two results fit into one prompt; lower --max-tokens");
        if (status == QUIRE_OK)
            status = stage_run(&w->with_model, stage, &prompts, &answers, &failed, w->report, err);
        if (status == QUIRE_INVALID)
            quire_error_prefix(err, "reduce stage %u", stage);
        texts_free(&prompts);
        texts_free(results);
        *results = answers;
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int run_stages(struct work *w, struct texts *results, struct quire_error *err)
{
    size_t failed;
    int status = stage_run(&w->with_model, 0, &w->chunks, results, &failed, w->report, err);
    if (status == QUIRE_INVALID && failed < w->names.n)
        quire_error_prefix(err, "%s", w->names.items[failed].data);
    return status == QUIRE_OK ? reduce(w, results, err) : status;
}

int work_run(const struct work_options *options, char **answer, struct work_report *report, struct quire_error *err)
{
    struct work w = {.options = options, .report = report};
    struct texts results = {0};
    const double began = quire_now_s();
    *report = (struct work_report){0};
    *answer = NULL;
    int status = ask_model(&w, err);
    if (status == QUIRE_OK)
        status = cut_files(&w, err);
    if (status == QUIRE_OK)
        status = open_folder(&w, err);
    if (status == QUIRE_OK)
        status = run_stages(&w, &results, err);
    if (status == QUIRE_OK) {
        *answer = calloc(results.items[0].n + 1, 1);
        if (*answer && results.items[0].n)
            memcpy(*answer, results.items[0].data, results.items[0].n);
        status = *answer ? QUIRE_OK : quire_fail(err, QUIRE_NO_MEMORY, "out of memory");
    }
    if (status == QUIRE_OK)
        stages_remove(report->folder, report->n_stages);
    report->elapsed_s = quire_now_s() - began;
    texts_free(&results);
    texts_free(&w.chunks);
    texts_free(&w.names);
    buffer_free(&w.reply);
    free(w.model);
    return status;
}
