/* One program for the pure parts of the front end; the tests of each part are in their own file. */
#include "base/hash.h"
#include "tests/front/front_unit_test.h"

int main(void)
{
    if (quire_hash_init())
        return 1;
    int failed = run_json_out_tests();
    failed += run_stop_strings_tests();
    failed += run_http_parser_tests();
    failed += run_params_tests();
    failed += run_address_tests();
    failed += run_bucket_tests();
    failed += run_tenants_tests();
    failed += run_trace_context_tests();
    failed += run_tool_parser_tests();
    failed += run_answer_texts_tests();
    failed += run_grammar_fields_tests();
    failed += run_messages_tests();
    failed += run_prompt_batch_tests();
    failed += run_turns_tests();
    return failed;
}
