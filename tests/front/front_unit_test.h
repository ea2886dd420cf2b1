#ifndef QUIRE_TESTS_FRONT_UNIT_TEST_H
#define QUIRE_TESTS_FRONT_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Each returns the number of failed tests. */
int run_json_out_tests(void);
int run_stop_strings_tests(void);
int run_http_parser_tests(void);
int run_params_tests(void);
int run_address_tests(void);
int run_bucket_tests(void);
int run_tenants_tests(void);
int run_trace_context_tests(void);
int run_tool_parser_tests(void);
int run_answer_texts_tests(void);
int run_prompt_batch_tests(void);
int run_turns_tests(void);
int run_grammar_fields_tests(void);
int run_messages_tests(void);

#endif
