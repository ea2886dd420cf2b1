/* The store of files and batches: what tenants see, pages, limits, and what a killed process leaves. */
#include "server/bulk/store/store.h"

#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];

static struct bulk_store *open_store(uint64_t max_bytes, uint64_t max_tenant_bytes)
{
    const struct bulk_store_options o = {dir, max_bytes, max_tenant_bytes};
    struct bulk_store *s;
    struct quire_error err;
    if (bulk_store_open(&o, &s, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return s;
}

static void write_file(const char *path)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("x\n", f);
    fclose(f);
}

static struct bulk_file add_file(struct bulk_store *s, const char *tenant, int64_t expires)
{
    struct bulk_file f = {.purpose = BULK_INPUT, .n_bytes = 2, .created = 1, .expires = expires, .filename = "a"};
    struct quire_error err;
    char path[BULK_PATH_BYTES];
    snprintf(f.tenant, sizeof f.tenant, "%s", tenant);
    bulk_new_id(BULK_FILE_ID, f.id);
    bulk_store_part_path(s, f.id, path);
    write_file(path);
    assert_int_equal(bulk_store_add_file(s, &f, &err), QUIRE_OK);
    return f;
}

static struct bulk_batch add_batch(struct bulk_store *s, const char *tenant, const char *input, enum bulk_state state)
{
    struct bulk_batch b = {.url = "/v1/completions", .state = state, .window_s = 60, .at = {5}};
    struct quire_error err;
    b.counts.n_lines = 3;
    b.counts.cost = 77;
    snprintf(b.tenant, sizeof b.tenant, "%s", tenant);
    snprintf(b.input, sizeof b.input, "%s", input);
    bulk_new_id(BULK_BATCH_ID, b.id);
    assert_int_equal(bulk_store_add_batch(s, &b, &err), QUIRE_OK);
    return b;
}

static void files_of_tenants(void **state)
{
    struct bulk_store *s = open_store(0, 0);
    const struct bulk_file f = add_file(s, "a", 0);
    struct bulk_file found;
    struct quire_error err;
    (void)state;
    assert_int_equal(bulk_store_find_file(s, "a", f.id, &found, &err), QUIRE_OK);
    assert_string_equal(found.filename, "a");
    assert_int_equal(bulk_store_find_file(s, "b", f.id, &found, &err), QUIRE_NOT_FOUND);
    assert_int_equal(bulk_store_find_file(s, "a", "../../etc/passwd", &found, &err), QUIRE_NOT_FOUND);
    assert_int_equal(bulk_store_remove_file(s, "b", f.id, &err), QUIRE_NOT_FOUND);
    const struct bulk_batch b = add_batch(s, "a", f.id, BULK_IN_PROGRESS);
    assert_int_equal(bulk_store_remove_file(s, "a", f.id, &err), QUIRE_INVALID);
    struct bulk_batch read;
    assert_int_equal(bulk_store_find_batch(s, "a", b.id, &read, &err), QUIRE_OK);
    assert_int_equal(read.counts.cost, 77);
    assert_int_equal(read.at[0], 5);
    read.state = BULK_COMPLETED;
    assert_int_equal(bulk_store_update_batch(s, &read, &err), QUIRE_OK);
    assert_int_equal(bulk_store_remove_file(s, "a", f.id, &err), QUIRE_OK);
    assert_int_equal(bulk_store_find_file(s, "a", f.id, &found, &err), QUIRE_NOT_FOUND);
    bulk_store_close(s);
}

static void limits_and_expiry(void **state)
{
    struct bulk_store *s = open_store(0, 0);
    struct bulk_store_counts before, after;
    struct quire_error err;
    (void)state;
    assert_int_equal(bulk_store_count(s, &before, &err), QUIRE_OK);
    bulk_store_close(s);
    s = open_store(before.n_bytes + 10, 4);
    assert_int_equal(bulk_store_has_space(s, "t", 4, &err), QUIRE_OK);
    assert_int_equal(bulk_store_has_space(s, "t", 5, &err), QUIRE_EXHAUSTED);
    add_file(s, "t", 2);
    add_file(s, "t", (int64_t)time(NULL) + 1000);
    assert_int_equal(bulk_store_has_space(s, "t", 1, &err), QUIRE_EXHAUSTED);
    assert_int_equal(bulk_store_has_space(s, "u", 4, &err), QUIRE_OK);
    assert_int_equal(bulk_store_expire(s, (int64_t)time(NULL), &err), QUIRE_OK);
    assert_int_equal(bulk_store_count(s, &after, &err), QUIRE_OK);
    assert_int_equal(after.n_files, before.n_files + 1);
    assert_int_equal(bulk_store_has_space(s, "t", 1, &err), QUIRE_OK);
    bulk_store_close(s);
}

static void pages(void **state)
{
    struct bulk_store *s = open_store(0, 0);
    struct bulk_file f[5], *got;
    struct bulk_page page = {.limit = 2, .purpose = -1};
    struct quire_error err;
    size_t n;
    bool more;
    (void)state;
    for (int i = 0; i < 5; i++)
        f[i] = add_file(s, "pages", 0);
    assert_int_equal(bulk_store_list_files(s, "pages", &page, &got, &n, &more, &err), QUIRE_OK);
    assert_true(n == 2 && more && strcmp(got[0].id, f[4].id) == 0 && strcmp(got[1].id, f[3].id) == 0);
    free(got);
    page.after = f[1].id;
    assert_int_equal(bulk_store_list_files(s, "pages", &page, &got, &n, &more, &err), QUIRE_OK);
    assert_true(n == 1 && !more && strcmp(got[0].id, f[0].id) == 0);
    free(got);
    assert_int_equal(bulk_store_list_files(s, "other", &page, &got, &n, &more, &err), QUIRE_NOT_FOUND);
    free(got);
    bulk_store_close(s);
}

static void left_by_a_kill(void **state)
{
    struct bulk_store *s = open_store(0, 0);
    const struct bulk_file f = add_file(s, "k", 0);
    const struct bulk_batch runs = add_batch(s, "k", f.id, BULK_IN_PROGRESS),
                            over = add_batch(s, "k", f.id, BULK_FAILED);
    char part[BULK_PATH_BYTES], stray[BULK_PATH_BYTES], kept[BULK_PATH_BYTES], old[BULK_PATH_BYTES],
        file[BULK_PATH_BYTES];
    struct bulk_batch *unfinished;
    struct quire_error err;
    size_t n;
    (void)state;
    bulk_store_part_path(s, f.id, part);
    bulk_store_file_path(s, "file-0", stray);
    bulk_store_file_path(s, f.id, file);
    bulk_store_results_path(s, runs.id, kept);
    bulk_store_results_path(s, over.id, old);
    write_file(part);
    write_file(stray);
    write_file(kept);
    write_file(old);
    bulk_store_close(s);
    s = open_store(0, 0);
    assert_true(access(part, F_OK) != 0 && access(stray, F_OK) != 0 && access(old, F_OK) != 0);
    assert_true(access(kept, F_OK) == 0 && access(file, F_OK) == 0);
    assert_int_equal(bulk_store_unfinished(s, &unfinished, &n, &err), QUIRE_OK);
    assert_int_equal(n, 1);
    assert_string_equal(unfinished[0].id, runs.id);
    free(unfinished);
    const struct bulk_store_options o = {.dir = dir};
    struct bulk_store *second;
    assert_int_equal(bulk_store_open(&o, &second, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.text, "another process"));
    bulk_store_close(s);
}

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/quire-store-test-XXXXXX");
    return quire_hash_init() != 0 || !mkdtemp(dir);
}

static int remove_dir(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* What is not a file yet counts, by tenant, until it is one or gone. */
static void held_bytes_count(void **state)
{
    struct bulk_store *s = open_store(100, 60);
    struct quire_error err;
    char id[BULK_ID_BYTES];
    (void)state;
    bulk_new_id(BULK_BATCH_ID, id);
    assert_int_equal(bulk_store_hold(s, "a", id, 50, &err), QUIRE_OK);
    assert_int_equal(bulk_store_has_space(s, "a", 10, &err), QUIRE_OK);
    assert_int_equal(bulk_store_has_space(s, "a", 11, &err), QUIRE_EXHAUSTED);
    assert_int_equal(bulk_store_has_space(s, "b", 50, &err), QUIRE_OK);
    assert_int_equal(bulk_store_has_space(s, "b", 51, &err), QUIRE_EXHAUSTED);
    assert_int_equal(bulk_store_hold(s, "a", id, 20, &err), QUIRE_OK);
    assert_int_equal(bulk_store_has_space(s, "a", 40, &err), QUIRE_OK);
    for (int i = 0; i < 40; i++) {
        char other[BULK_ID_BYTES];
        bulk_new_id(BULK_FILE_ID, other);
        assert_int_equal(bulk_store_hold(s, "b", other, 1, &err), QUIRE_OK);
    }
    assert_int_equal(bulk_store_has_space(s, "b", 20, &err), QUIRE_OK);
    assert_int_equal(bulk_store_has_space(s, "b", 21, &err), QUIRE_EXHAUSTED);
    assert_int_equal(bulk_store_hold(s, "a", id, 0, &err), QUIRE_OK);
    assert_int_equal(bulk_store_has_space(s, "a", 60, &err), QUIRE_OK);
    bulk_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(held_bytes_count), cmocka_unit_test(files_of_tenants),
                                       cmocka_unit_test(limits_and_expiry), cmocka_unit_test(pages),
                                       cmocka_unit_test(left_by_a_kill)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
