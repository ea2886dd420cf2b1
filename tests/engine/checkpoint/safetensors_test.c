/* safetensors: what is accepted, and that every kind of damage is refused with a line that names
 * the file and the field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/slice.h"
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define T(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static int open_image(const char *header, size_t n_data, struct checkpoint **st, struct quire_error *err)
{
    static unsigned char *kept; /* borrowed by the last one opened */
    size_t n;
    free(kept);
    kept = scratch_image(header, n_data, &n);
    return checkpoint_open_memory(kept, n, st, err);
}

static void views_are_in_place(void **state)
{
    (void)state;
    struct checkpoint *st;
    struct checkpoint_tensor t;
    struct quire_error err;
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"}," T("b", "F16", "[2,3]", 8, 20) "," T(
        "a", "F32", "[2]", 0, 8) "," T("scalar", "BF16", "[]", 20, 22) "," T("none", "F32", "[0,7]", 22, 22) "}";
    assert_int_equal(open_image(header, 22, &st, &err), QUIRE_OK);
    assert_int_equal(checkpoint_n_files(st), 1);
    assert_int_equal(checkpoint_total_bytes(st), 22);

    assert_int_equal(checkpoint_find(st, "a", &t, &err), QUIRE_OK);
    assert_string_equal(t.name, "a");
    assert_int_equal(t.format.kind, K_F32);
    assert_int_equal(t.n_dims, 1);
    assert_int_equal(t.shape[0], 2);
    assert_int_equal(t.n_bytes, 8);
    assert_int_equal(((const unsigned char *)t.data)[7], 7);

    assert_int_equal(checkpoint_find(st, "b", &t, &err), QUIRE_OK);
    assert_int_equal(t.format.kind, K_F16);
    assert_int_equal(t.shape[0], 2);
    assert_int_equal(t.shape[1], 3);
    assert_int_equal(((const unsigned char *)t.data)[0], 8);

    assert_int_equal(checkpoint_find(st, "scalar", &t, &err), QUIRE_OK);
    assert_int_equal(t.format.kind, K_BF16);
    assert_int_equal(t.n_dims, 0);
    assert_int_equal(t.n_bytes, 2);
    assert_int_equal(checkpoint_find(st, "none", &t, &err), QUIRE_OK);
    assert_int_equal(t.n_bytes, 0);

    assert_int_equal(checkpoint_find(st, "c", &t, &err), QUIRE_NOT_FOUND);
    assert_string_equal(err.text, "model.safetensors: tensor 'c' is missing");
    checkpoint_close(st);
}

/* The part of one expert, its rows, and a type that takes less than a byte. */
static void parts_of_a_tensor(void **state)
{
    (void)state;
    struct checkpoint *st;
    struct checkpoint_tensor t;
    struct quire_error err;
    static const char header[] = "{" T("experts", "F16", "[3,4,5]", 0, 120) "," T(
        "biases", "BF16", "[3,4]", 120, 144) "," T("blocks", "U8", "[2,3,1,16]", 144, 240) "}";
    assert_int_equal(open_image(header, 240, &st, &err), QUIRE_OK);
    assert_int_equal(checkpoint_find(st, "experts", &t, &err), QUIRE_OK);
    const unsigned char *data = t.data;
    checkpoint_take(&t, 2);
    assert_int_equal(t.n_dims, 2);
    assert_int_equal(t.shape[0], 4);
    assert_int_equal(t.shape[1], 5);
    assert_int_equal(t.n_bytes, 40);
    assert_ptr_equal(t.data, data + 80);
    checkpoint_take_rows(&t, 1, 3);
    assert_int_equal(t.shape[0], 3);
    assert_int_equal(t.n_bytes, 30);
    assert_ptr_equal(t.data, data + 90);

    assert_int_equal(checkpoint_find(st, "biases", &t, &err), QUIRE_OK);
    t.data = NULL; /* only counted */
    checkpoint_take(&t, 1);
    assert_int_equal(t.n_dims, 1);
    assert_int_equal(t.shape[0], 4);
    assert_int_equal(t.n_bytes, 8);
    assert_null(t.data);

    assert_int_equal(checkpoint_find_any(st, "blocks", &t, &err), QUIRE_OK);
    checkpoint_take(&t, 1);
    assert_int_equal(t.n_dims, 3);
    assert_int_equal(t.shape[2], 16);
    assert_int_equal(t.n_bytes, 48);
    assert_ptr_equal(t.data, data + 192);
    checkpoint_close(st);
}

static void unusable_tensors_fail_when_asked_for(void **state)
{
    (void)state;
    struct checkpoint *st;
    struct checkpoint_tensor t;
    struct quire_error err;
    static const char header[] = "{" T("f8", "F8_E4M3", "[4]", 0, 4) "," T("ids", "I64", "[1]", 4, 12) "," T(
        "nine", "F32", "[1,1,1,1,1,1,1,1,1]", 12, 16) "," T("f4", "F4", "[2]", 16, 17) "}";
    assert_int_equal(open_image(header, 17, &st, &err), QUIRE_OK);
    assert_int_equal(checkpoint_find(st, "f8", &t, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "model.safetensors: tensor 'f8': dtype: F8_E4M3"));
    assert_int_equal(checkpoint_find(st, "ids", &t, &err), QUIRE_UNSUPPORTED);
    assert_null(t.data);
    assert_int_equal(checkpoint_find(st, "nine", &t, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'nine': shape: 9 dimensions"));
    checkpoint_close(st);
}

/* U8 of 3 bytes leaves the others at odd ones, as every tensor is behind a header of odd length. */
static void misaligned_tensors_are_copied(void **state)
{
    (void)state;
    struct checkpoint *st;
    struct checkpoint_tensor before, after;
    struct quire_error err;
    static const char header[] = "{" T("a", "U8", "[3]", 0, 3) "," T("b", "F32", "[2]", 3, 11) "," T(
        "c", "BF16", "[33]", 11, 77) "," T("d", "U8", "[3]", 77, 80) "," T("e", "F32", "[1]", 80, 84) "}";
    assert_int_equal(open_image(header, 84, &st, &err), QUIRE_OK);
    assert_int_equal(checkpoint_misaligned_bytes(st), 64 + 128);
    assert_int_equal(checkpoint_find(st, "c", &before, &err), QUIRE_OK);
    const struct key256 digest = checkpoint_digest(st, true);
    assert_int_equal(checkpoint_align(st, &err), QUIRE_OK);
    assert_int_equal(checkpoint_align(st, &err), QUIRE_OK);
    static const char *const names[] = {"b", "c"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(checkpoint_find(st, names[i], &after, &err), QUIRE_OK);
        assert_int_equal((uintptr_t)after.data % 64, 0);
        assert_int_equal(((const unsigned char *)after.data)[0], i == 0 ? 3 : 11);
    }
    assert_memory_equal(before.data, after.data, 66);
    const struct key256 same = checkpoint_digest(st, false);
    assert_memory_equal(&digest, &same, sizeof same);
    checkpoint_close(st);
}

struct damage {
    const char *header;
    size_t n_data;
    const char *says; /* all of the message after "model.safetensors: ", or how it begins */
};

static const struct damage damages[] = {
    {"[]", 0, "header: must be a JSON object"},
    {"7", 0, "header: must be a JSON object"},
    {" {}", 0, "header: must be a JSON object"},
    {"{", 0, "header: not valid JSON"},
    {"{}}", 0, "header: not valid JSON"},
    {"{\"\xff\":1}", 0, "header: not valid JSON"},
    {"{\"a\\u0000\":1}", 0, "header: not valid JSON"},
    {"{\"a\\u001b[31m\":1}", 0, "header: a tensor's name has control characters"},
    {"{\"a\":{\"b\":[[1]]}}", 0, "header: nested more than 3 levels deep"},
    {"{}", 0, "header: lists no tensors"},
    {"{\"__metadata__\":{}}", 0, "header: lists no tensors"},
    {"{\"__metadata__\":7," T("a", "F32", "[1]", 0, 4) "}", 4, "__metadata__: must be an object"},
    {"{\"__metadata__\":{\"x\":1}," T("a", "F32", "[1]", 0, 4) "}", 4, "__metadata__: every value must be a string"},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 0, 4) "}", 4,
     "header: not valid JSON: duplicate object key 'a'"},
    {"{" T("model.layers.0.q\\\"_proj.weight", "F32", "[1]", 0, 4) "," T("model.layers.0.q\\\"_proj.weight", "F32",
                                                                         "[1]", 0, 4) "}",
     4, "header: not valid JSON: duplicate object key 'model.layers.0.q\\\"_proj.weight'"},
    {"{\"a\":1}", 0, "tensor 'a': must be an object"},
    {"{\"a\":{}}", 0, "tensor 'a': dtype: must be a string"},
    {"{" T("a", "F33", "[1]", 0, 4) "}", 4, "tensor 'a': dtype: 'F33' is not a safetensors dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor 'a': shape: must be an array"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor 'a': data_offsets: must be an array"},
    {"{" T("a", "F32", "[-1]", 0, 4) "}", 4, "tensor 'a': shape: must hold non-negative integers"},
    {"{" T("a", "F32", "[1.0]", 0, 4) "}", 4, "tensor 'a': shape: must hold non-negative integers"},
    {"{" T("a", "F32", "[9223372036854775807,9223372036854775807]", 0, 4) "}", 4,
     "tensor 'a': shape: the product overflows"},
    /* 2^62 elements of 4 bytes: 2^64 bytes, which is 0 where it wraps. */
    {"{" T("a", "F32", "[4611686018427387904]", 0, 0) "}", 0, "tensor 'a': shape: the product overflows"},
    {"{" T("a", "F32", "[99999999999999999999]", 0, 4) "}", 4, "header: not valid JSON: too big"},
    {"{" T("a", "F4", "[3]", 0, 1) "}", 1, "tensor 'a': shape: not a whole number of bytes of F4"},
    {"{" T("a", "F32", "[2]", 0, 4) "}", 4, "tensor 'a': data_offsets: 4 bytes, but shape and dtype F32 need 8"},
    {"{" T("a", "F32", "[1]", 4, 0) "}", 4, "tensor 'a': data_offsets: begin lies after end"},
    {"{" T("a", "F32", "[1]", -4, 0) "}", 4, "tensor 'a': data_offsets: must be two non-negative"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
     "tensor 'a': data_offsets: must be two non-negative"},
    {"{" T("a", "F32", "[2]", 0, 8) "}", 4,
     "tensor 'a': data_offsets: end at byte 8, but the file has 4 bytes of data (truncated?)"},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 0, 4) "}", 4, "tensor '"},
    {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 4, 12) "}", 12,
     "tensor 'b': data_offsets: overlaps tensor 'a'"},
    {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 8, 12) "}", 12,
     "tensor 'b': data_offsets: bytes 4 to 8 before it belong to no tensor"},
    {"{" T("a", "F32", "[1]", 4, 8) "}", 8, "tensor 'a': data_offsets: bytes 0 to 4 before it belong to no tensor"},
    {"{" T("a", "F32", "[1]", 0, 4) "}", 5,
     "data_offsets: the tensors end at byte 4, but the file has 5 bytes of data"},
};

static void damage_is_refused_and_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        struct checkpoint *st;
        struct quire_error err = {.text = ""};
        int status = open_image(damages[i].header, damages[i].n_data, &st, &err);
        if (status != QUIRE_INVALID || strncmp(err.text, "model.safetensors: ", 19) != 0 ||
            strncmp(err.text + 19, damages[i].says, strlen(damages[i].says)) != 0)
            fail_msg("%s gave status %d, \"%s\" instead of \"%s\"", damages[i].header, status, err.text,
                     damages[i].says);
        assert_null(st);
    }
}

static void lengths_that_lie_are_refused(void **state)
{
    (void)state;
    struct checkpoint *st;
    struct quire_error err;
    size_t n;
    unsigned char *image = scratch_image("{" T("a", "F32", "[2]", 0, 8) "}", 8, &n);

    /* Every truncation of a good file. */
    for (size_t cut = 0; cut < n; cut++) {
        unsigned char *part = malloc(cut + 1);
        assert_non_null(part);
        memcpy(part, image, cut);
        int status = checkpoint_open_memory(part, cut, &st, &err);
        const char *says = cut < 8       ? "header: the file ends before its 8-byte length"
                           : cut < n - 8 ? "header: length"
                                         : "tensor 'a': data_offsets: end at byte 8, but the file";
        if (status != QUIRE_INVALID || !strstr(err.text, says))
            fail_msg("cut at %zu: status %d, \"%s\"", cut, status, err.text);
        free(part);
    }

    static const struct {
        uint64_t length;
        const char *says;
    } lies[] = {
        {0, "header: must be a JSON object"},
        {1u << 20, "header: length 1048576, but only"},
        {100000001, "header: length 100000001 is over the 100000000 bytes"},
        {UINT64_MAX, "header: length 18446744073709551615 is over"},
        {UINT64_MAX - 7, "header: length 18446744073709551608 is over"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        for (unsigned b = 0; b < 8; b++)
            image[b] = (unsigned char)(lies[i].length >> 8 * b);
        assert_int_equal(checkpoint_open_memory(image, n, &st, &err), QUIRE_INVALID);
        assert_non_null(strstr(err.text, lies[i].says));
    }
    free(image);
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    struct checkpoint *st;
    struct quire_error err;
    size_t n = 1000000;
    char *header = malloc(n + 1);
    assert_non_null(header);
    memset(header, '[', n);
    memcpy(header, "{\"a\":", 5);
    header[n] = '\0';
    assert_int_equal(open_image(header, 0, &st, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "model.safetensors: header: "));
    free(header);
}

static void long_names_do_not_hide_the_reason(void **state)
{
    (void)state;
    struct checkpoint *st;
    struct quire_error err;
    char header[2000] = "{\"";
    memset(header + 2, 'n', 1200);
    strcpy(header + 1202, "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}");
    assert_int_equal(open_image(header, 4, &st, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "data_offsets: begin lies after end"));
}

/* ---- the digest ------------------------------------------------------------------------------ */

#define TWO "{" T("a", "F32", "[2]", 0, 8) "," T("b", "BF16", "[20000]", 8, 40008) "}"

/* at: index of a changed byte of b; -1: no change. */
static void digest_hex(const char *header, size_t n_a, int at, char out[65])
{
    struct checkpoint *st;
    struct quire_error err;
    size_t n;
    unsigned char *image = scratch_image(header, n_a + 40000, &n), *b = image + n - 40000;
    for (int i = 0; i < 40000; i++)
        b[i] = (unsigned char)((i * 7 + 3) % 251);
    if (at >= 0)
        b[at] ^= 1;
    assert_int_equal(checkpoint_open_memory(image, n, &st, &err), QUIRE_OK);
    const struct key256 digest = checkpoint_digest(st, true);
    quire_key256_hex(&digest, out);
    checkpoint_close(st);
    free(image);
}

/* Of 16 MiB and a bit: a is as long as all that may be hashed. */
#define N_LARGE 16777216
#define LARGE "{" T("a", "F32", "[4194304]", 0, 16777216) "," T("b", "BF16", "[20000]", 16777216, 16817216) "}"

/* The value is a few lines of Python's, written from protocol.md. b's pieces begin every 4,488 bytes from 2,244 on. */
static void digest_is_as_specified(void **state)
{
    (void)state;
    char whole[65], other[65];
    digest_hex(LARGE, N_LARGE, -1, whole);
    assert_string_equal(whole, "096129fba72f809ed50c3f4996a98e9cec291b4b1190cd14d2e0f56e8a7c99ff");
    digest_hex("{" T("b", "BF16", "[20000]", 16777216, 16817216) "," T("a", "F32", "[4194304]", 0, 16777216) "}",
               N_LARGE, -1, other);
    assert_string_equal(whole, other);
    for (int i = 0; i < 8; i++) {
        const int begin = 2244 + 4488 * i;
        for (int byte = begin; byte < begin + 4096; byte += 4095) {
            digest_hex(LARGE, N_LARGE, byte, other);
            assert_string_not_equal(whole, other);
        }
        digest_hex(LARGE, N_LARGE, begin + 4096, other);
        assert_string_equal(whole, other);
    }
}

/* The value is the same program's. */
static void digest_of_a_small_checkpoint_covers_every_byte(void **state)
{
    (void)state;
    char whole[65], other[65];
    digest_hex(TWO, 8, -1, whole);
    assert_string_equal(whole, "a78a4488662991c9fbe74ccc94bc0d54595ec16932908783d3e7502382e29e4f");
    for (int byte = 0; byte < 40000; byte += byte < 39900 ? 97 : 1) {
        digest_hex(TWO, 8, byte, other);
        assert_string_not_equal(whole, other);
    }
}

static void digest_tells_shapes_apart(void **state)
{
    (void)state;
    static const char *const headers[] = {
        TWO,
        "{" T("a", "F32", "[2]", 0, 8) "," T("b", "F16", "[20000]", 8, 40008) "}",
        "{" T("a", "F32", "[2]", 0, 8) "," T("b", "BF16", "[200,100]", 8, 40008) "}",
        "{" T("a", "F32", "[2]", 0, 8) "," T("c", "BF16", "[20000]", 8, 40008) "}",
        "{" T("a", "F32", "[1,2]", 0, 8) "," T("b", "BF16", "[20000]", 8, 40008) "}",
    };
    enum { N = sizeof headers / sizeof headers[0] };
    char digests[N][65];
    for (int i = 0; i < N; i++) {
        digest_hex(headers[i], 8, -1, digests[i]);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(digests[i], digests[j]);
    }
}

/* ---- directories ---------------------------------------------------------------------------- */

static void write_image(const struct scratch *s, const char *name, const char *header, size_t n_data)
{
    size_t n;
    unsigned char *image = scratch_image(header, n_data, &n);
    scratch_write(s, name, image, n);
    free(image);
}

static void write_text(const struct scratch *s, const char *name, const char *text)
{
    scratch_write(s, name, text, strlen(text));
}

#define INDEX "model.safetensors.index.json"
#define SHARD1 "model-00001-of-00002.safetensors"
#define SHARD2 "model-00002-of-00002.safetensors"
#define MAP(entries) "{\"metadata\":{\"total_size\":12},\"weight_map\":{" entries "}}"
static const char good_index[] = MAP("\"a\":\"" SHARD1 "\",\"b\":\"" SHARD2 "\"");
/* As Python may have written it: the last of two keys counts. */
static const char python_index[] =
    "{\"metadata\":{\"total_size\":123456789012345678901234567890,\"x\":NaN},\"weight_map\":{\"a\":\"" SHARD2
    "\",\"a\":\"" SHARD1 "\",\"b\":\"" SHARD2 "\"}}";

static void write_shards(const struct scratch *s)
{
    write_text(s, INDEX, good_index);
    write_image(s, SHARD1, "{" T("a", "F32", "[1]", 0, 4) "}", 4);
    write_image(s, SHARD2, "{" T("b", "F32", "[2]", 0, 8) "}", 8);
}

static void single_file_and_shards_open(void **state)
{
    (void)state;
    struct scratch s;
    struct checkpoint *st;
    struct checkpoint_tensor t;
    struct quire_error err;
    scratch_open(&s);
    write_shards(&s);
    assert_int_equal(checkpoint_open(s.dir, &st, &err), QUIRE_OK);
    assert_int_equal(checkpoint_n_files(st), 2);
    assert_int_equal(checkpoint_total_bytes(st), 12);
    assert_int_equal(checkpoint_find(st, "b", &t, &err), QUIRE_OK);
    assert_int_equal(t.n_bytes, 8);
    assert_int_equal(((const unsigned char *)t.data)[7], 7);
    assert_int_equal(checkpoint_find(st, "c", &t, &err), QUIRE_NOT_FOUND);
    assert_string_equal(err.text, INDEX ": tensor 'c' is missing");
    checkpoint_close(st);
    write_text(&s, INDEX, python_index);
    assert_int_equal(checkpoint_open(s.dir, &st, &err), QUIRE_OK);
    assert_int_equal(checkpoint_n_files(st), 2);
    checkpoint_close(st);

    /* Both forms beside each other: the single file is the checkpoint. */
    write_image(&s, "model.safetensors", "{" T("c", "F32", "[1]", 0, 4) "}", 4);
    assert_int_equal(checkpoint_open(s.dir, &st, &err), QUIRE_OK);
    assert_int_equal(checkpoint_n_files(st), 1);
    assert_int_equal(checkpoint_find(st, "c", &t, &err), QUIRE_OK);
    checkpoint_close(st);
    scratch_close(&s);
}

static void expect(const struct scratch *s, int status, const char *says)
{
    struct checkpoint *st;
    struct quire_error err = {.text = ""};
    int got = checkpoint_open(s->dir, &st, &err);
    if (got != status || !strstr(err.text, says))
        fail_msg("status %d, \"%s\" instead of %d, \"%s\"", got, err.text, status, says);
    assert_null(st);
}

static void broken_indexes_are_refused_and_named(void **state)
{
    (void)state;
    static const struct {
        const char *index;
        const char *says;
    } cases[] = {
        {"", INDEX ": not valid JSON"},
        {"[]", INDEX ": must be a JSON object"},
        {"{}", INDEX ": weight_map: is missing or empty"},
        {"{\"weight_map\":[]}", INDEX ": weight_map: must be an object"},
        {"{\"weight_map\":{}}", INDEX ": weight_map: is missing or empty"},
        {MAP("\"a\":1"), INDEX ": weight_map: every value must be a file name"},
        {MAP("\"a\":\"\""), INDEX ": weight_map: '' is not the plain name of a file"},
        {MAP("\"a\":\"..\""), INDEX ": weight_map: '..' is not the plain name of a file"},
        {MAP("\"a\":\"../x\""), INDEX ": weight_map: '../x' is not the plain name of a file"},
        {MAP("\"a\":\"/etc/passwd\""), INDEX ": weight_map: '/etc/passwd' is not the plain name"},
        {MAP("\"a\":\"\\u001b\""), INDEX ": weight_map: a file name has control characters"},
        {MAP("\"\\u001b\":\"x\""), INDEX ": weight_map: a tensor's name has control characters"},
        {MAP("\"a\":\"" SHARD1 "\",\"z\":\"" SHARD2 "\""), INDEX ": weight_map: tensor 'z' is not in " SHARD2},
        {MAP("\"a\":\"" SHARD2 "\",\"b\":\"" SHARD1 "\""), INDEX ": weight_map: tensor '"},
    };
    struct scratch s;
    scratch_open(&s);
    write_shards(&s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text(&s, INDEX, cases[i].index);
        expect(&s, QUIRE_INVALID, cases[i].says);
    }
    scratch_close(&s);
}

static void broken_shards_are_refused_and_named(void **state)
{
    (void)state;
    struct scratch s;
    scratch_open(&s);
    expect(&s, QUIRE_NOT_FOUND, "has neither model.safetensors nor " INDEX);

    write_shards(&s);
    scratch_remove(&s, SHARD2);
    expect(&s, QUIRE_NOT_FOUND, SHARD2 ": cannot be opened, though listed in " INDEX);

    write_text(&s, SHARD2, "short");
    expect(&s, QUIRE_INVALID, SHARD2 ": header: the file ends before its 8-byte length (5 bytes)");
    scratch_write(&s, SHARD2, "", 0);
    expect(&s, QUIRE_INVALID, SHARD2 ": header: the file ends before its 8-byte length (0 bytes)");

    write_image(&s, SHARD2, "{" T("b", "F32", "[2]", 0, 8) "}", 6);
    expect(&s, QUIRE_INVALID, SHARD2 ": tensor 'b': data_offsets: end at byte 8");

    write_image(&s, SHARD2, "{" T("b", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", 8);
    struct checkpoint *st;
    struct checkpoint_tensor t;
    struct quire_error err;
    assert_int_equal(checkpoint_open(s.dir, &st, &err), QUIRE_OK); /* the index assigns 'a' to the other file */
    assert_int_equal(checkpoint_find(st, "a", &t, &err), QUIRE_OK);
    assert_string_equal(t.file, SHARD1);
    assert_false(checkpoint_at(st, 2, &t));
    checkpoint_close(st);

    /* A FIFO in a file's place must not hold the start. */
    char path[128];
    scratch_remove(&s, SHARD2);
    snprintf(path, sizeof path, "%s/" SHARD2, s.dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect(&s, QUIRE_INVALID, SHARD2 ": not a regular file");
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_are_in_place),
        cmocka_unit_test(misaligned_tensors_are_copied),
        cmocka_unit_test(parts_of_a_tensor),
        cmocka_unit_test(unusable_tensors_fail_when_asked_for),
        cmocka_unit_test(damage_is_refused_and_named),
        cmocka_unit_test(lengths_that_lie_are_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(long_names_do_not_hide_the_reason),
        cmocka_unit_test(digest_is_as_specified),
        cmocka_unit_test(digest_of_a_small_checkpoint_covers_every_byte),
        cmocka_unit_test(digest_tells_shapes_apart),
        cmocka_unit_test(single_file_and_shards_open),
        cmocka_unit_test(broken_indexes_are_refused_and_named),
        cmocka_unit_test(broken_shards_are_refused_and_named),
    };
    return cmocka_run_group_tests_name("engine_safetensors", tests, NULL, NULL);
}
