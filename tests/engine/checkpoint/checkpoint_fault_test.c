/* Every allocation while a checkpoint opens fails once, those of the JSON library included: opening reports it and leaks
 * nothing, and the next attempt opens the same checkpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/checkpoint/checkpoint.h"
#include "scratch.h"
#include "tests/fault.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define T(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static const char one[] = "{" T("a", "F32", "[2]", 0, 8) "," T("b", "F16", "[2,3]", 8, 20) "}";
static const char two[] = "{" T("c", "F32", "[2]", 0, 8) "}";

static void write_image(const struct scratch *s, const char *name, const char *header, size_t n_data)
{
    size_t n;
    unsigned char *image = scratch_image(header, n_data, &n);
    scratch_write(s, name, image, n);
    free(image);
}

/* jansson reports a string that it cannot allocate as invalid JSON. */
static void assert_no_memory(int status, const struct quire_error *err)
{
    if (status == QUIRE_INVALID && strstr(err->text, "not valid JSON"))
        return;
    if (status != QUIRE_NO_MEMORY || !strstr(err->text, "memory"))
        fail_msg("%s: %s", quire_status_name(status), err->text);
}

static void assert_open(struct checkpoint *st, uint32_t n_files, const char *last)
{
    struct checkpoint_tensor t;
    assert_int_equal(checkpoint_n_files(st), n_files);
    assert_int_equal(checkpoint_find(st, "a", &t, NULL), QUIRE_OK);
    assert_int_equal(checkpoint_find(st, last, &t, NULL), QUIRE_OK);
    checkpoint_close(st);
}

static void open_with_faults(const struct scratch *s, uint32_t n_files, const char *last)
{
    struct checkpoint *st;
    long n = 0;
    for (;; n++) {
        struct quire_error err = {.text = ""};
        fault_at(n);
        int status = checkpoint_open(s->dir, &st, &err);
        if (!fault_end()) {
            assert_int_equal(status, QUIRE_OK);
            break;
        }
        if (status == QUIRE_OK) { /* a spare copy failed, and the checkpoint is whole */
            assert_open(st, n_files, last);
            continue;
        }
        assert_no_memory(status, &err);
    }
    assert_true(n > 20);
    assert_open(st, n_files, last);
}

static void a_single_file(void **state)
{
    struct scratch s;
    (void)state;
    scratch_open(&s);
    write_image(&s, "model.safetensors", one, 20);
    open_with_faults(&s, 1, "b");
    scratch_close(&s);
}

static void shards(void **state)
{
    static const char index[] =
        "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}";
    struct scratch s;
    (void)state;
    scratch_open(&s);
    write_image(&s, "1.safetensors", one, 20);
    write_image(&s, "2.safetensors", two, 8);
    scratch_write(&s, "model.safetensors.index.json", index, sizeof index - 1);
    open_with_faults(&s, 2, "c");
    scratch_close(&s);
}

static void an_image_in_memory(void **state)
{
    size_t size;
    unsigned char *image = scratch_image(one, 20, &size);
    struct checkpoint *st;
    long n = 0;
    (void)state;
    for (;; n++) {
        struct quire_error err = {.text = ""};
        fault_at(n);
        int status = checkpoint_open_memory(image, size, &st, &err);
        if (!fault_end()) {
            assert_int_equal(status, QUIRE_OK);
            break;
        }
        assert_no_memory(status, &err);
    }
    assert_true(n > 10);
    assert_open(st, 1, "b");
    free(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_file),
        cmocka_unit_test(shards),
        cmocka_unit_test(an_image_in_memory),
    };
    json_set_alloc_funcs(malloc, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
