/* A half-written output: continued by the same command, left alone by another, removed after a failure. */
#include "tools/quantize/writer/output.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[96], partial[128], journal[160];

static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/quire_output_XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/out", folder);
    snprintf(partial, sizeof partial, "%s.partial", path);
    snprintf(journal, sizeof journal, "%s.journal", partial);
    return 0;
}

static int end(void **state)
{
    char command[192];
    (void)state;
    snprintf(command, sizeof command, "chmod -R u+w %.60s; rm -r %.60s", folder, folder);
    return system(command);
}

static bool exists(const char *name)
{
    return access(name, F_OK) == 0;
}

static struct quantizer_output_plan plan_of(uint8_t identity, const char *data_name)
{
    return (struct quantizer_output_plan){
        .path = path, .data_name = data_name, .identity = {{identity}}, .n_bytes = 12, .n_units = 3};
}

static struct quantizer_output *opened(const struct quantizer_output_plan *plan)
{
    struct quantizer_output *o;
    struct quire_error err;
    if (quantizer_output_open(plan, &o, &err) != QUIRE_OK)
        fail_msg("%s", err.text);
    return o;
}

static void refused(const struct quantizer_output_plan *plan, const char *why)
{
    struct quantizer_output *o;
    struct quire_error err;
    assert_int_not_equal(quantizer_output_open(plan, &o, &err), QUIRE_OK);
    assert_null(o);
    if (!strstr(err.text, why))
        fail_msg("%s", err.text);
}

static void write_unit(struct quantizer_output *o, uint32_t unit, const char *text)
{
    assert_int_equal(quantizer_output_write(o, unit * 4, text, 4, NULL), QUIRE_OK);
    assert_int_equal(quantizer_output_done(o, unit, NULL), QUIRE_OK);
}

static void a_killed_run_is_continued(void **state)
{
    const struct quantizer_output_plan plan = plan_of(1, "data"), other = plan_of(2, "data");
    char bytes[13] = "", name[160];
    (void)state;
    struct quantizer_output *o = opened(&plan);
    write_unit(o, 1, "bbbb");
    assert_int_equal(quantizer_output_write(o, 0, "xx", 2, NULL), QUIRE_OK); /* not done */
    refused(&plan, "another process");
    quantizer_output_close(o, true);
    /* The kill came while a line was written. */
    FILE *f = fopen(journal, "a");
    fputs("2", f);
    fclose(f);
    assert_false(exists(path));
    refused(&other, "another command");
    assert_true(exists(partial) && exists(journal));
    o = opened(&plan);
    assert_true(!quantizer_output_has(o, 0) && quantizer_output_has(o, 1) && !quantizer_output_has(o, 2));
    assert_int_equal(quantizer_output_finish(o, NULL), QUIRE_INTERNAL);
    write_unit(o, 0, "aaaa");
    quantizer_output_close(o, true);
    o = opened(&plan);
    assert_int_equal(quantizer_output_n_done(o), 2);
    assert_int_equal(quantizer_output_read(o, 4, bytes, 4, NULL), QUIRE_OK);
    assert_memory_equal(bytes, "bbbb", 4);
    write_unit(o, 2, "cccc");
    assert_int_equal(quantizer_output_file(o, "small.json", "{}", 2, NULL), QUIRE_OK);
    assert_int_equal(quantizer_output_finish(o, NULL), QUIRE_OK);
    quantizer_output_close(o, false);
    assert_true(exists(path) && !exists(partial) && !exists(journal));
    snprintf(name, sizeof name, "%s/data", path);
    f = fopen(name, "r");
    assert_int_equal(fread(bytes, 1, 13, f), 12);
    fclose(f);
    assert_memory_equal(bytes, "aaaabbbbcccc", 12);
    refused(&plan, "exists");
}

static void a_failure_leaves_nothing(void **state)
{
    const struct quantizer_output_plan plan = plan_of(1, "data"), file = plan_of(1, NULL);
    (void)state;
    struct quantizer_output *o = opened(&plan);
    write_unit(o, 0, "aaaa");
    assert_int_equal(quantizer_output_file(o, "small.json", "{}", 2, NULL), QUIRE_OK);
    quantizer_output_close(o, false);
    assert_true(!exists(path) && !exists(partial) && !exists(journal));
    quantizer_output_close(opened(&file), false);
    assert_true(!exists(path) && !exists(partial) && !exists(journal));
}

static void lost_files_begin_again(void **state)
{
    const struct quantizer_output_plan plan = plan_of(1, NULL);
    (void)state;
    struct quantizer_output *o = opened(&plan);
    write_unit(o, 0, "aaaa");
    quantizer_output_close(o, true);
    unlink(partial);
    o = opened(&plan);
    assert_int_equal(quantizer_output_n_done(o), 0);
    quantizer_output_close(o, true);
    assert_int_equal(truncate(partial, 5), 0);
    refused(&plan, "was changed");
}

static void bad_places_are_one_line(void **state)
{
    struct quantizer_output_plan plan = plan_of(1, "data");
    (void)state;
    plan.n_bytes = (uint64_t)1 << 62;
    refused(&plan, "no space");
    assert_true(!exists(partial) && !exists(journal));
    plan.path = "/nowhere/at/all";
    refused(&plan, "cannot be created");
    if (geteuid() == 0) /* may write anywhere */
        return;
    plan = plan_of(1, "data");
    assert_int_equal(chmod(folder, 0500), 0);
    refused(&plan, "cannot be created");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_killed_run_is_continued, begin, end),
        cmocka_unit_test_setup_teardown(a_failure_leaves_nothing, begin, end),
        cmocka_unit_test_setup_teardown(lost_files_begin_again, begin, end),
        cmocka_unit_test_setup_teardown(bad_places_are_one_line, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
