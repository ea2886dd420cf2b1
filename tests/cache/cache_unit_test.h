/* The parts of cache_unit_test. */
#ifndef QUIRE_TESTS_CACHE_UNIT_TEST_H
#define QUIRE_TESTS_CACHE_UNIT_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>

void key_test(void **state);
void answer_test(void **state);
void memory_layer_test(void **state);
void timely_test(void **state);
void flight_leave_test(void **state);
void flight_background_test(void **state);
void flight_fail_test(void **state);
void flight_cut_test(void **state);
void flight_long_test(void **state);
void flight_verify_test(void **state);
void flight_store_test(void **state);
void flight_clear_test(void **state);
void flight_ttl_test(void **state);
void flight_resume_test(void **state);
void flight_served_test(void **state);
void flight_draft_test(void **state);
void flight_borrowed_question_test(void **state);
void flight_embedder_test(void **state);
void flight_ghost_test(void **state);
void flight_semantic_test(void **state);
void flight_late_draft_test(void **state);
void redis_stream_test(void **state);

#endif
