/* Messages → chat completions, and whole replies back. The expected texts are written by hand. */
#include "base/hash.h"
#include "server/gateway/messages/translate.h"
#include "tests/gateway/translate_test.h"

#include <string.h>

struct row {
    const char *in, *expected; /* the translation, or the parameter or words of the error */
};

/* ---- requests ------------------------------------------------------------------------------- */

static bool translate(const char *text, struct buffer *o, struct translate_facts *facts, struct api_error *e)
{
    struct quire_doc *body;
    assert_int_equal(quire_doc_open(text, strlen(text), 64, text, &body, NULL), QUIRE_OK);
    const bool ok = translate_request(o, body, "up", facts, e);
    quire_doc_close(body);
    return ok;
}

static void check_requests(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct buffer o = {0};
        struct api_error e = {0};
        struct translate_facts facts;
        const bool ok = translate(rows[i].in, &o, &facts, &e);
        if (!ok)
            print_message("%s\n", e.why.text);
        assert_string_equal(ok ? buffer_text(&o) : e.param, rows[i].expected);
        assert_true(ok || e.status == 400);
        buffer_free(&o);
    }
}
#define CHECK_REQUESTS(rows) check_requests(rows, sizeof(rows) / sizeof *(rows))

#define BODY(rest) "{\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]" rest "}"
#define TURNS(turns) "{\"max_tokens\":5,\"messages\":[" turns "]}"
#define OUT(fields, turns) "{\"model\":\"up\",\"max_tokens\":5" fields ",\"messages\":[" turns "]}"
#define X "{\"role\":\"user\",\"content\":\"x\"}"
#define U "{\"role\":\"user\",\"content\":"
#define A "{\"role\":\"assistant\",\"content\":"
#define TEXT(t) "{\"type\":\"text\",\"text\":\"" t "\"}"
#define USE(id) "{\"type\":\"tool_use\",\"id\":\"" id "\",\"name\":\"f\",\"input\":{\"a\":\"b\"}}"
#define RESULT(id, rest) "{\"type\":\"tool_result\",\"tool_use_id\":\"" id "\"" rest "}"
#define CALL(id) \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":\\\"b\\\"}\"}}"
#define IMAGE "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"QUJD\"}}"
#define IMAGE_OUT "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,QUJD\"}}"
#define TOOL "{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}}"
#define TOOL_OUT \
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":\"object\"}}}"

static void parameters_are_translated(void **state)
{
    static const struct row rows[] = {
        {BODY(""), OUT("", X)},
        {BODY(
             ",\"model\":\"mine\",\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"auto\",\"context_management\":{}"),
         OUT("", X)},
        {BODY(",\"temperature\":0.25,\"top_p\":1,\"top_k\":40"),
         OUT(",\"temperature\":0.25,\"top_p\":1,\"top_k\":40", X)},
        {BODY(",\"stop_sequences\":[\"a\",\"\\n\"]"), OUT(",\"stop\":[\"a\",\"\\n\"]", X)},
        {BODY(",\"stop_sequences\":[]"), OUT("", X)},
        {BODY(",\"stream\":true"), OUT(",\"stream\":true,\"stream_options\":{\"include_usage\":true}", X)},
        {BODY(",\"stream\":false,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}"), OUT("", X)},
        {BODY(",\"output_config\":{\"effort\":\"max\"}"), OUT(",\"reasoning_effort\":\"high\"", X)},
        {BODY(",\"output_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}"),
         OUT(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"answer\",\"strict\":true,"
             "\"schema\":{\"type\":\"object\"}}}",
             X)},
        {"{\"messages\":[" X "]}", "max_tokens"},
        {"{\"max_tokens\":0,\"messages\":[" X "]}", "max_tokens"},
        {"{\"max_tokens\":1.5,\"messages\":[" X "]}", "max_tokens"},
        {BODY(",\"temperature\":1.5"), "temperature"},
        {BODY(",\"temperature\":\"hot\""), "temperature"},
        {BODY(",\"stop_sequences\":\"a\""), "stop_sequences"},
        {BODY(",\"stop_sequences\":[\"\"]"), "stop_sequences"},
        {BODY(",\"stream\":1"), "stream"},
        {BODY(",\"thinking\":{\"type\":\"on\"}"), "thinking.type"},
        {BODY(",\"output_config\":{\"effort\":\"most\"}"), "output_config.effort"},
        {BODY(",\"output_config\":{\"format\":{\"type\":\"xml\"}}"), "output_config.format"},
        {BODY(",\"mcp_servers\":[{}]"), "mcp_servers"},
        {BODY(",\"mcp_servers\":[],\"container\":null"), OUT("", X)},
    };
    (void)state;
    CHECK_REQUESTS(rows);
}

static void tools_are_translated(void **state)
{
    static const struct row rows[] = {
        {BODY(",\"tools\":[" TOOL ",{\"name\":\"g\",\"type\":\"custom\",\"input_schema\":{},\"strict\":true}]"),
         OUT(",\"tools\":[" TOOL_OUT
             ",{\"type\":\"function\",\"function\":{\"name\":\"g\",\"strict\":true,\"parameters\":{}}}]",
             X)},
        {BODY(",\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"auto\"}"),
         OUT(",\"tools\":[" TOOL_OUT "],\"tool_choice\":\"auto\"", X)},
        {BODY(",\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true}"),
         OUT(",\"tools\":[" TOOL_OUT "],\"tool_choice\":\"required\",\"parallel_tool_calls\":false", X)},
        {BODY(",\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"none\"}"),
         OUT(",\"tools\":[" TOOL_OUT "],\"tool_choice\":\"none\"", X)},
        {BODY(",\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}"),
         OUT(",\"tools\":[" TOOL_OUT "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}", X)},
        {BODY(",\"tools\":[],\"tool_choice\":{\"type\":\"auto\"}"), OUT("", X)},
        {BODY(",\"tool_choice\":{\"type\":\"any\"}"), "tool_choice"},
        {BODY(",\"tools\":{}"), "tools"},
        {BODY(",\"tools\":[3]"), "tools[0]"},
        {BODY(",\"tools\":[" TOOL ",{\"type\":\"web_search_20250305\",\"name\":\"w\"}]"), "tools[1].type"},
        {BODY(",\"tools\":[{\"name\":\"\",\"input_schema\":{}}]"), "tools[0].name"},
        {BODY(",\"tools\":[{\"name\":\"f\"}]"), "tools[0].input_schema"},
        {BODY(",\"tools\":[" TOOL "],\"tool_choice\":{\"type\":\"tool\"}"), "tool_choice.name"},
        {BODY(",\"tools\":[" TOOL "],\"tool_choice\":\"auto\""), "tool_choice.type"},
    };
    (void)state;
    CHECK_REQUESTS(rows);
}

static void messages_are_translated(void **state)
{
    static const struct row rows[] = {
        {BODY(",\"system\":\"s\""), OUT("", "{\"role\":\"system\",\"content\":\"s\"}," X)},
        {BODY(",\"system\":[" TEXT("a") "," TEXT("b") "]"), OUT("", "{\"role\":\"system\",\"content\":\"a\\nb\"}," X)},
        {BODY(",\"system\":[" TEXT("x-anthropic-billing-header: cch=1;") "," TEXT("b") "]"),
         OUT("", "{\"role\":\"system\",\"content\":\"b\"}," X)},
        {BODY(",\"system\":\"x-anthropic-billing-header: cch=1;\\nrest\""),
         OUT("", "{\"role\":\"system\",\"content\":\"rest\"}," X)},
        {BODY(",\"system\":\"\""), OUT("", X)},
        {BODY(",\"system\":3"), "system"},
        {BODY(",\"system\":[" IMAGE "]"), "system"},
        {TURNS(U "[" TEXT("a") "," TEXT("b\\n") "]}"), OUT("", U "\"a\\nb\\n\"}")},
        {TURNS("{\"role\":\"system\",\"content\":\"s\"}," X), OUT("", "{\"role\":\"system\",\"content\":\"s\"}," X)},
        {TURNS(U "[" TEXT("look") "," IMAGE "]}"), OUT("", U "[" TEXT("look") "," IMAGE_OUT "]}")},
        {TURNS(U "[{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"https://e.x/a.png\"}}]}"),
         OUT("", U "[{\"type\":\"image_url\",\"image_url\":{\"url\":\"https://e.x/a.png\"}}]}")},
        /* calls and results; text that came before the result follows it */
        {TURNS(X "," A "[" TEXT("t") "," USE("1") "," USE("2") "]}," U "[" TEXT("go") "," RESULT(
             "1", ",\"content\":\"r\"") "," RESULT("2", "") "]}"),
         OUT("",
             X "," A "\"t\",\"tool_calls\":[" CALL("1") "," CALL(
                 "2") "]},{\"role\":\"tool\",\"tool_call_id\":\"1\","
                      "\"content\":\"r\"},{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"\"}," U "\"go\"}")},
        {TURNS(A
               "[{\"type\":\"thinking\",\"thinking\":\"h\",\"signature\":\"s\"},{\"type\":\"redacted_thinking\"}," USE(
                   "1") "]}," U "[" RESULT("1", ",\"is_error\":true,\"content\":[" TEXT("no") "," IMAGE "]") "]}"),
         OUT("", A "null,\"tool_calls\":[" CALL("1") "]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":"
                                                     "\"Error: no\"}," U "[" IMAGE_OUT "]}")},
        {TURNS(A "[" USE("1") "]}," U "[" RESULT("1", ",\"is_error\":true,\"content\":\"error 7\"") "]}"),
         OUT("", A "null,\"tool_calls\":[" CALL("1") "]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":"
                                                     "\"error 7\"}")},
        {"{\"max_tokens\":5}", "messages"},
        {TURNS(""), "messages"},
        {TURNS(X "," A "\"{\"}"), "messages"},
        {TURNS("{\"role\":\"tool\",\"content\":\"x\"}"), "messages[0].role"},
        {TURNS(U "3}"), "messages[0].content"},
        {TURNS(X "," U "[3]}"), "messages[1].content[0].type"},
        {TURNS(U "[{\"type\":\"document\",\"source\":{}}]}"), "messages[0].content[0].type"},
        {TURNS(U "[" USE("1") "]}"), "messages[0].content[0].type"},
        {TURNS(U "[{\"type\":\"text\"}]}"), "messages[0].content[0].text"},
        {TURNS(A "[{\"type\":\"tool_use\",\"name\":\"f\"}]}"), "messages[0].content[0].id"},
        {TURNS(A "[{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":\"s\"}]}"),
         "messages[0].content[0].input"},
        {TURNS(U "[" RESULT("", "") "]}"), "messages[0].content[0].tool_use_id"},
        {TURNS(U "[" RESULT("1", ",\"content\":[{\"type\":\"document\"}]") "]}"),
         "messages[0].content[0].content[0].type"},
        {TURNS(U "[{\"type\":\"image\",\"source\":{\"type\":\"file\"}}]}"), "messages[0].content[0].source.type"},
        {TURNS(U "[{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"file:///etc\"}}]}"),
         "messages[0].content[0].source.url"},
        {TURNS(U "[{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/x\",\"data\":\"\"}}]}"),
         "messages[0].content[0].source.media_type"},
    };
    (void)state;
    CHECK_REQUESTS(rows);
}

static void what_is_left_out_is_reported(void **state)
{
    static const struct {
        const char *body;
        struct translate_facts facts;
    } rows[] = {
        {BODY(""), {0}},
        {BODY(",\"stream\":true"), {.is_stream = true}},
        {BODY(",\"thinking\":{\"type\":\"adaptive\"}"), {.drops_thinking = true}},
        {BODY(",\"thinking\":{\"type\":\"disabled\"}"), {0}},
        {BODY(",\"cache_control\":{\"type\":\"ephemeral\"}"), {.drops_cache_marks = true}},
        {TURNS(U "[{\"type\":\"text\",\"text\":\"\",\"cache_control\":{\"type\":\"ephemeral\"}}]}"),
         {.drops_cache_marks = true}},
        {BODY(",\"tools\":[{\"name\":\"f\",\"input_schema\":{},\"eager_input_streaming\":true}]"), {.is_eager = true}},
        {BODY(",\"tools\":[{\"name\":\"f\",\"input_schema\":{},\"eager_input_streaming\":false}]"), {0}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buffer o = {0};
        struct api_error e;
        struct translate_facts facts;
        assert_true(translate(rows[i].body, &o, &facts, &e));
        assert_int_equal(facts.is_stream, rows[i].facts.is_stream);
        assert_int_equal(facts.is_eager, rows[i].facts.is_eager);
        assert_int_equal(facts.drops_thinking, rows[i].facts.drops_thinking);
        assert_int_equal(facts.drops_cache_marks, rows[i].facts.drops_cache_marks);
        buffer_free(&o);
    }
}

/* ---- whole replies -------------------------------------------------------------------------- */

#define REPLY(message, rest) \
    "{\"choices\":[{\"message\":" message rest "}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}"
#define MESSAGE(content, reason, stop) \
    "{\"id\":\"msg_r1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"mine\",\"content\":[" content \
    "],\"stop_reason\":\"" reason "\",\"stop_sequence\":" stop \
    ",\"usage\":{\"input_tokens\":9,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":4}}"
#define FUNCTION(name, arguments) "{\"id\":\"c1\",\"function\":{\"name\":\"" name "\",\"arguments\":" arguments "}}"

static void replies_are_translated(void **state)
{
    static const struct row rows[] = {
        {REPLY("{\"content\":\"h\\ni\"}", ",\"finish_reason\":\"stop\""), MESSAGE(TEXT("h\\ni"), "end_turn", "null")},
        {REPLY("{\"content\":\"a\"}", ",\"finish_reason\":\"length\""), MESSAGE(TEXT("a"), "max_tokens", "null")},
        {REPLY("{\"content\":null}", ",\"finish_reason\":\"content_filter\""), MESSAGE(TEXT(""), "refusal", "null")},
        {REPLY("{\"content\":\"\",\"refusal\":\"no\"}", ""), MESSAGE(TEXT("no"), "end_turn", "null")},
        {REPLY("{\"content\":\"a\"}", ",\"finish_reason\":\"stop\",\"stop_reason\":\"END\""),
         MESSAGE(TEXT("a"), "stop_sequence", "\"END\"")},
        {REPLY("{\"content\":\"a\"}", ",\"finish_reason\":\"stop\",\"stop_reason\":13"),
         MESSAGE(TEXT("a"), "end_turn", "null")},
        {REPLY("{\"content\":\"a\",\"reasoning_content\":\"r\"}", ""),
         MESSAGE("{\"type\":\"thinking\",\"signature\":\"quire\",\"thinking\":\"r\"}," TEXT("a"), "end_turn", "null")},
        {REPLY(
             "{\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":\"r\"}]}," TEXT("a") "]}",
             ""),
         MESSAGE("{\"type\":\"thinking\",\"signature\":\"quire\",\"thinking\":\"r\"}," TEXT("a"), "end_turn", "null")},
        {REPLY("{\"content\":null,\"tool_calls\":[" FUNCTION("f", "\"{\\\"a\\\": 1}\"") "]}",
               ",\"finish_reason\":\"stop\""),
         MESSAGE("{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"f\",\"input\":{\"a\": 1}}", "tool_use", "null")},
        {REPLY("{\"tool_calls\":[" FUNCTION("f", "\"\"") ",{\"function\":{\"name\":\"g\",\"arguments\":{\"a\":2}}}]}",
               ""),
         MESSAGE("{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"f\",\"input\":{}},"
                 "{\"type\":\"tool_use\",\"id\":\"toolu_r1_1\",\"name\":\"g\",\"input\":{\"a\":2}}",
                 "tool_use", "null")},
        {REPLY("{\"tool_calls\":[" FUNCTION("f", "\"{\\\"a\\\": \"") "]}", ",\"finish_reason\":\"length\""),
         MESSAGE(TEXT("{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": }"), "max_tokens", "null")},
        {"", "the upstream server's reply is not JSON"},
        {"[1]", "the upstream server's reply has no choices[0].message"},
        {"{\"choices\":[]}", "the upstream server's reply has no choices[0].message"},
        {"{\"choices\":[{\"text\":\"a\"}]}", "the upstream server's reply has no choices[0].message"},
        {"{\"error\":{\"message\":\"bad day\"}}", "the upstream server: bad day"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buffer o = {0};
        struct api_error e = {0};
        const bool ok = translate_reply(&o, rows[i].in, strlen(rows[i].in), "mine", "r1", &e);
        assert_string_equal(ok ? buffer_text(&o) : e.why.text, rows[i].expected);
        assert_true(ok || e.status == 502);
        buffer_free(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_translated), cmocka_unit_test(tools_are_translated),
        cmocka_unit_test(messages_are_translated),   cmocka_unit_test(what_is_left_out_is_reported),
        cmocka_unit_test(replies_are_translated),
    };
    if (quire_hash_init())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL) + run_translate_stream_tests();
}
