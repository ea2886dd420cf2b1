/* Batches and files as JSON. */
#include "server/bulk/replies.h"

#include "base/buffer.h"
#include "server/bulk/store/records.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_says(const struct bulk_batch *b, const char *says)
{
    struct buffer o = {0};
    bulk_put_batch(&o, b);
    if (!strstr(buffer_text(&o), says))
        fail_msg("%s: lacks %s", buffer_text(&o), says);
    buffer_free(&o);
}

/* The end of a cancelled batch takes moments or seconds; its status must not depend on when the client looks. */
static void test_cancelled_batches_are_cancelling_until_they_end(void **state)
{
    struct bulk_batch b = {.id = "batch_1", .state = BULK_CANCELLING, .at = {5}};
    (void)state;
    assert_says(&b, "\"status\":\"cancelling\"");
    b.state = BULK_FINALIZING;
    b.end = BULK_STOPPED;
    assert_says(&b, "\"status\":\"cancelling\"");
    b.state = BULK_STOPPED;
    assert_says(&b, "\"status\":\"cancelled\"");
    b.state = BULK_FINALIZING;
    b.end = BULK_COMPLETED;
    assert_says(&b, "\"status\":\"finalizing\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancelled_batches_are_cancelling_until_they_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
