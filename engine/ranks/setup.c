#include "engine/ranks/setup.h"

#include "base/encoding/little_endian.h"

#include <string.h>

#define MAGIC 0x31535251u /* "QRS1" */
#define NO_TEXT UINT32_MAX

struct field {
    const char *name;
    size_t at, bytes;
    bool is_hosts; /* one host's own matter */
};
#define FIELD_(name, is_hosts) \
    {#name, offsetof(struct engine_options, name), sizeof(((struct engine_options *)0)->name), is_hosts}
#define FIELD(name) FIELD_(name, false)
#define HOSTS_FIELD(name) FIELD_(name, true)

static const struct field texts_of[] = {
    HOSTS_FIELD(model_dir),    FIELD(device),           FIELD(task),           FIELD(dtype),
    FIELD(kv_cache_dtype),     FIELD(gemm_form),        FIELD(invariance),     FIELD(quantization),
    HOSTS_FIELD(repack_cache), FIELD(activation_dtype), HOSTS_FIELD(cpu_bind),
};
static const struct field numbers_of[] = {
    FIELD(max_model_len),
    FIELD(attention_window),
    FIELD(attention_sinks),
    FIELD(max_num_seqs),
    FIELD(max_num_batched_tokens),
    FIELD(block_size),
    FIELD(swap_space),
    FIELD(num_kv_blocks),
    HOSTS_FIELD(n_threads),
    FIELD(enforce_eager),
    FIELD(ignore_unused_tensors),
    FIELD(tensor_parallel_size),
    FIELD(enable_expert_parallel),
    FIELD(pipeline_parallel_size),
    HOSTS_FIELD(gpu_memory_utilization),
};
/* A host's own settings that are not sent: rank 0's would mean nothing here. */
static const struct field unsent_of[] = {HOSTS_FIELD(local_ranks), HOSTS_FIELD(message_bytes)};
#define N_TEXTS (sizeof texts_of / sizeof texts_of[0])
#define N_NUMBERS (sizeof numbers_of / sizeof numbers_of[0])
#define N_UNSENT (sizeof unsent_of / sizeof unsent_of[0])

static const char *text_at(const struct engine_options *o, const struct field *f)
{
    return *(const char *const *)((const char *)o + f->at);
}

static uint64_t number_at(const struct engine_options *o, const struct field *f)
{
    const char *at = (const char *)o + f->at;
    uint64_t bits;
    switch (f->bytes) {
    case sizeof(bool): return *(const bool *)at;
    case sizeof(uint32_t): return *(const uint32_t *)(const void *)at;
    default: memcpy(&bits, at, sizeof bits); return bits; /* of 64, of a double too */
    }
}

/* False: it does not fit the field. */
static bool set_number(struct engine_options *o, const struct field *f, uint64_t value)
{
    char *at = (char *)o + f->at;
    switch (f->bytes) {
    case sizeof(bool): *(bool *)at = value != 0; return value <= 1;
    case sizeof(uint32_t): *(uint32_t *)(void *)at = (uint32_t)value; return value <= UINT32_MAX;
    default: memcpy(at, &value, sizeof value); return true;
    }
}

int setup_write(const struct engine_options *o, void *to, size_t *n_bytes, struct quire_error *err)
{
    char *begin = to, *at = begin + sizeof(uint32_t), *end = begin + SETUP_MAX_BYTES - N_NUMBERS * sizeof(uint64_t);
    le_store_u32(begin, MAGIC);
    for (size_t i = 0; i < N_TEXTS; i++) {
        const char *text = text_at(o, &texts_of[i]);
        const size_t n = text ? strlen(text) : 0;
        if (n > (size_t)(end - at) || (size_t)(end - at) - n < sizeof(uint32_t))
            return quire_fail(err, QUIRE_INVALID, "%s: too long to send to the ranks", texts_of[i].name);
        le_store_u32(at, text ? (uint32_t)n : NO_TEXT);
        at += sizeof(uint32_t);
        if (n > 0)
            memcpy(at, text, n);
        at += n;
    }
    for (size_t i = 0; i < N_NUMBERS; i++, at += sizeof(uint64_t))
        le_store_u64(at, number_at(o, &numbers_of[i]));
    *n_bytes = (size_t)(at - begin);
    return QUIRE_OK;
}

/* The option's name, as it is typed. */
static void name_option(const struct field *f, char *to, size_t n)
{
    size_t i = 0;
    for (; f->name[i] && i + 1 < n; i++)
        to[i] = f->name[i] == '_' ? '-' : f->name[i];
    to[i] = 0;
}

int setup_compare(const struct engine_options *first, const struct engine_options *own, uint32_t rank,
                  struct quire_error *err)
{
    char name[64];
    for (size_t i = 0; i < N_TEXTS; i++) {
        const char *a = text_at(first, &texts_of[i]), *b = text_at(own, &texts_of[i]);
        name_option(&texts_of[i], name, sizeof name);
        if (!texts_of[i].is_hosts && (a && b ? strcmp(a, b) != 0 : a != b))
            return quire_fail(err, QUIRE_INVALID, "--%s: rank 0 was given %.60s, and rank %u %.60s", name,
                              a ? a : "nothing", rank, b ? b : "nothing");
    }
    for (size_t i = 0; i < N_NUMBERS; i++) {
        const uint64_t a = number_at(first, &numbers_of[i]), b = number_at(own, &numbers_of[i]);
        name_option(&numbers_of[i], name, sizeof name);
        if (!numbers_of[i].is_hosts && a != b)
            return quire_fail(err, QUIRE_INVALID, "--%s: rank 0 was given %llu, and rank %u %llu", name,
                              (unsigned long long)a, rank, (unsigned long long)b);
    }
    return QUIRE_OK;
}

static void keep_own(struct engine_options *options, const struct engine_options *own, const struct field *fields,
                     size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fields[i].is_hosts)
            memcpy((char *)options + fields[i].at, (const char *)own + fields[i].at, fields[i].bytes);
}

void setup_keep_own(struct engine_options *options, const struct engine_options *own)
{
    keep_own(options, own, texts_of, N_TEXTS);
    keep_own(options, own, numbers_of, N_NUMBERS);
    keep_own(options, own, unsent_of, N_UNSENT);
}

static int read_text(const char **at, const char *end, const struct field *f, char **texts, struct engine_options *out,
                     struct quire_error *err)
{
    const char *text = NULL;
    if (end - *at < (ptrdiff_t)sizeof(uint32_t))
        return quire_fail(err, QUIRE_INVALID, "setup frame: it ends before %s", f->name);
    const uint32_t n = le_load_u32(*at);
    *at += sizeof(uint32_t);
    if (n != NO_TEXT) {
        if (n > (size_t)(end - *at) || memchr(*at, 0, n))
            return quire_fail(err, QUIRE_INVALID, "setup frame: %s has %u bytes, but %zu follow", f->name, n,
                              (size_t)(end - *at));
        text = *texts;
        memcpy(*texts, *at, n);
        (*texts)[n] = 0;
        *texts += n + 1; /* the length took four bytes, so the texts with their ends are shorter than the frame */
        *at += n;
    }
    *(const char **)(void *)((char *)out + f->at) = text;
    return QUIRE_OK;
}

int setup_read(const void *from, size_t n_bytes, char *texts, struct engine_options *out, struct quire_error *err)
{
    const char *at = from, *end = at + n_bytes;
    if (n_bytes < sizeof(uint32_t) || n_bytes > SETUP_MAX_BYTES || le_load_u32(at) != MAGIC)
        return quire_fail(err, QUIRE_INVALID, "setup frame: %zu bytes are not a setup frame", n_bytes);
    at += sizeof(uint32_t);
    for (size_t i = 0; i < N_TEXTS; i++) {
        int status = read_text(&at, end, &texts_of[i], &texts, out, err);
        if (status != QUIRE_OK)
            return status;
    }
    if ((size_t)(end - at) != N_NUMBERS * sizeof(uint64_t))
        return quire_fail(err, QUIRE_INVALID, "setup frame: %zu bytes of numbers instead of %zu", (size_t)(end - at),
                          N_NUMBERS * sizeof(uint64_t));
    for (size_t i = 0; i < N_NUMBERS; i++, at += sizeof(uint64_t))
        if (!set_number(out, &numbers_of[i], le_load_u64(at)))
            return quire_fail(err, QUIRE_INVALID, "setup frame: %s is out of range: %llu", numbers_of[i].name,
                              (unsigned long long)le_load_u64(at));
    if (!out->model_dir)
        return quire_fail(err, QUIRE_INVALID, "setup frame: the model is missing");
    return QUIRE_OK;
}
