#include "tests/engine/fixtures/step_options.h"
#include "record_rig.h"

#include "engine/engine.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_PROMPT 100u

struct tiny_model rig_model, rig_other_model;
static char directory[] = "/tmp/quire-record-XXXXXX";
static uint32_t prompts[4][MAX_PROMPT];
static const struct request_bias biases[] = {{9, -2.5f}, {4, 1.5f}};
static const uint32_t stops[] = {17, 3};

int rig_set_up(void **state)
{
    (void)state;
    tiny_model_plain(31, &rig_model);
    tiny_model_plain(32, &rig_other_model);
    for (uint32_t i = 0; i < 4; i++)
        client_random_prompt(prompts[i], MAX_PROMPT, TINY_VOCAB, 70 + i);
    return mkdtemp(directory) ? 0 : -1;
}

int rig_tear_down(void **state)
{
    (void)state;
    tiny_model_remove(&rig_model);
    tiny_model_remove(&rig_other_model);
    rig_new_path(); /* removes the previous one */
    return rmdir(directory);
}

const char *rig_new_path(void)
{
    static char path[128];
    static int number;
    if (number > 0)
        unlink(path);
    snprintf(path, sizeof path, "%s/%d", directory, number++);
    return path;
}

struct engine_options rig_options(void)
{
    struct engine_options o;
    engine_options_default(&o);
    o.steps = client_steps();
    o.n_threads = 1;
    o.num_kv_blocks = 20;
    o.max_model_len = 128;
    o.max_num_seqs = 6;
    o.max_num_batched_tokens = 48;
    o.block_size = 8;
    /* Two keys of an organisation, one with a limit, and a third tenant. */
    static const struct sched_tenant tenants[] = {{.weight = 1, .group = 5, .group_weight = 2, .max_seats = 3},
                                                  {.weight = 3, .group = 5, .group_weight = 2},
                                                  {.weight = 1, .group_weight = 1, .max_kv_blocks = 19}};
    o.steps->policy_options.n_tenants = 3;
    o.steps->policy_options.tenants = tenants;
    return o;
}

void rig_open(struct rig *rig, const char *path, struct engine_options o)
{
    rig_open_model(rig, path, rig_model.dir, o);
}

void rig_open_model(struct rig *rig, const char *path, const char *model, struct engine_options o)
{
    const struct recorder_about about = {.model = "tiny", .config_sha256 = quire_sha256("x", 1)};
    struct quire_error err;
    if (recorder_open(path, &about, &rig->recorder, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    rig->watch = recorder_watch(rig->recorder);
    static struct engine_observers observers;
    observers = (struct engine_observers){.watches = &rig->watch, .n_watches = 1};
    o.observers = &observers;
    rig->client = client_open(model, &o);
}

void rig_close(struct rig *rig)
{
    client_close(rig->client);
    recorder_close(rig->recorder);
}

static const uint32_t allowed[] = {40, 9, 30, 20, 9, 50};
static const uint32_t bad_words[] = {1, 30, 2, 9, 9, 2, 40, 20, 3, 20, 40, 50};

#define N_LONG 3u

static struct request_spec make(uint64_t number, uint32_t i)
{
    uint64_t x = (number * 1000 + i) * 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    struct request_spec r = client_request(prompts[x % 4], 8 + (uint32_t)(x >> 8) % 70, 1 + (uint32_t)(x >> 20) % 30);
    r.n = i % 5 == 1 ? 3 : 1;
    r.priority = (int32_t)(x >> 30) % 5 - 2;
    r.class_index = (uint32_t)(x >> 33) % 3;
    r.tenant = i % 3;
    r.cache_domain.bytes[0] = (uint8_t)(i % 3);
    r.background = i % 7 == 3;
    r.pin_us = i % 6 == 2 ? 200000 : 0;
    r.temperature = i % 4 ? 1.5f : 0;
    r.top_p = i % 3 ? 0.9f : 1;
    r.n_logprobs = (int32_t)(i % 4) - 1;
    r.n_prompt_logprobs = i % 8 == 5 ? 2 : -1;
    r.repetition_penalty = i % 9 == 4 ? 1.3f : 1;
    r.ignore_eos = i % 2;
    r.min_tokens = i % 10 == 6 ? 1 : 0;
    if (i % 4 == 2) {
        r.biases = biases;
        r.n_biases = 2;
        r.stop_token_ids = stops;
        r.n_stop_token_ids = 2;
    }
    if (i % 4 == 3) {
        r.allowed_token_ids = allowed;
        r.n_allowed_token_ids = 6;
        r.bad_words = bad_words;
        r.n_bad_words = sizeof bad_words / sizeof *bad_words;
    }
    if (i < N_LONG) {
        r.n = 1;
        r.n_prompt = 30;
        r.max_tokens = 60;
        r.ignore_eos = true;
        r.n_stop_token_ids = 0;
    }
    return r;
}

void rig_submit(struct rig *rig, uint64_t number, struct rig_traffic *out)
{
    client_pause(rig->client);
    for (uint32_t i = 0; i < RIG_N_REQUESTS; i++) {
        struct request_spec r = make(number, i);
        if (i == N_LONG)
            client_resume(rig->client);
        out->answers[i] = client_submit(rig->client, &r);
        if (i % 6 == 5)
            engine_cancel(client_engine(rig->client), out->answers[i - 2]->id);
        if (i % 5 == 2)
            engine_cancel_choice(client_engine(rig->client), out->answers[i - 1]->id, 1);
        if (i == 17)
            engine_unpin(client_engine(rig->client), 2);
        usleep(300);
    }
}

void rig_wait(struct rig *rig, const struct rig_traffic *traffic)
{
    for (uint32_t i = 0; i < RIG_N_REQUESTS; i++)
        client_wait(rig->client, traffic->answers[i]);
}

unsigned char *rig_read(const char *path, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    unsigned char *bytes = malloc((size_t)st.st_size + 1);
    assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
    close(fd);
    *n = (size_t)st.st_size;
    return bytes;
}

void rig_write(const char *path, const unsigned char *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}
