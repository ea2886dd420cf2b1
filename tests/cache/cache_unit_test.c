/* Keys, cached responses and flights of the response cache, without HTTP. */
#include "tests/cache/cache_unit_test.h"

#include "base/hash.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_test),
        cmocka_unit_test(answer_test),
        cmocka_unit_test(timely_test),
        cmocka_unit_test(memory_layer_test),
        cmocka_unit_test(flight_leave_test),
        cmocka_unit_test(flight_background_test),
        cmocka_unit_test(flight_fail_test),
        cmocka_unit_test(flight_cut_test),
        cmocka_unit_test(flight_long_test),
        cmocka_unit_test(flight_verify_test),
        cmocka_unit_test(flight_store_test),
        cmocka_unit_test(flight_clear_test),
        cmocka_unit_test(flight_ttl_test),
        cmocka_unit_test(flight_resume_test),
        cmocka_unit_test(flight_served_test),
        cmocka_unit_test(flight_draft_test),
        cmocka_unit_test(flight_borrowed_question_test),
        cmocka_unit_test(flight_embedder_test),
        cmocka_unit_test(flight_ghost_test),
        cmocka_unit_test(flight_semantic_test),
        cmocka_unit_test(flight_late_draft_test),
        cmocka_unit_test(redis_stream_test),
    };
    if (quire_hash_init())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
