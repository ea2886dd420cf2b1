/* One program for the front's pure parts; each part's tests are in a file of its own. */
#include "tests/front/front_unit_test.h"

int main(void)
{
    int failed = run_json_out_tests();
    failed += run_stop_strings_tests();
    failed += run_http_parser_tests();
    failed += run_params_tests();
    return failed;
}
