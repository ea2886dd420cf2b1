/* Bodies of /v1/messages → messages, tools and variables of a chat. The expected texts are written by hand. */
#include "server/front/messages/messages_read.h"
#include "tests/front/front_unit_test.h"

#include <string.h>

static struct quire_doc *open_body(const char *text)
{
    struct quire_doc *body;
    assert_int_equal(quire_doc_open(text, strlen(text), 64, text, &body, NULL), QUIRE_OK);
    return body;
}

static void check_text(struct buffer *o, bool ok, const char *expected, const struct api_error *e)
{
    const char *got = ok ? buffer_text(o) : e->param;
    if (strcmp(got, expected) != 0 && !ok)
        print_error("%s\n", e->why.text);
    assert_string_equal(got, expected);
    assert_true(ok || strncmp(e->why.text, e->param, strlen(e->param)) == 0);
    buffer_free(o);
}

struct row {
    const char *body, *expected; /* the chat's text, or the path of the error */
};

#define U "{\"role\":\"user\",\"content\":"
#define A "{\"role\":\"assistant\",\"content\":"
#define T "{\"role\":\"tool\",\"content\":"
#define TEXT(t) "{\"type\":\"text\",\"text\":\"" t "\"}"
#define USE(id) "{\"type\":\"tool_use\",\"id\":\"" id "\",\"name\":\"f\",\"input\":{\"a\":1}}"
#define RESULT(id, rest) "{\"type\":\"tool_result\",\"tool_use_id\":\"" id "\"" rest "}"
#define CALL(id) "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}}"

static void messages(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"[" U "\"x\"}]", U "\"x\"}"},
        {"[" U "[" TEXT("a") "," TEXT("b\\n") "]}]", U "\"a\\nb\\n\"}"},
        {"[" U "[]}]", U "\"\"}"},
        {"[{\"content\":\"x\",\"role\":\"system\"}," U "\"y\"}]",
         "{\"role\":\"system\",\"content\":\"x\"}," U "\"y\"}"},
        /* a call, its result, and text that came before the result */
        {"[" A "[" TEXT("t") "," USE("1") "]}," U "[" TEXT("go") "," RESULT("1", ",\"content\":\"r\"") "]}]",
         A "\"t\",\"tool_calls\":[" CALL("1") "]}," T "\"r\",\"tool_call_id\":\"1\"}," U "\"go\"}"},
        /* results in another order, in two messages, over two messages of the assistant */
        {"[" A "[" USE("1") "]}," A "[" USE("2") "]}," U "[" RESULT("2", "") "]}," U "[" RESULT("1", "") "]}," A
                                                                                                         "\"k\"}]",
         A "\"\",\"tool_calls\":[" CALL("1") "]}," A "\"\",\"tool_calls\":[" CALL(
             "2") "]}," T "\"\",\"tool_call_id\":\"2\"}," T "\"\",\"tool_call_id\":\"1\"}," A "\"k\"}"},
        {"[" A "[" USE("1") "]}," U "[" RESULT("1", ",\"is_error\":true,\"content\":[" TEXT("no") "]") "]}]",
         A "\"\",\"tool_calls\":[" CALL("1") "]}," T "\"Error: no\",\"tool_call_id\":\"1\"}"},
        {"[" A "[" USE("1") "]}," U "[" RESULT("1", ",\"is_error\":true,\"content\":\"error 7\"") "]}]",
         A "\"\",\"tool_calls\":[" CALL("1") "]}," T "\"error 7\",\"tool_call_id\":\"1\"}"},
        {"[" A "[{\"type\":\"thinking\",\"thinking\":\"h\",\"signature\":\"s\"},{\"type\":\"redacted_thinking\"}," TEXT(
             "t") "]}]",
         A "\"t\",\"reasoning_content\":\"h\"}"},
        {"[]", "messages"},
        {"3", "messages"},
        {"[" U "3}]", "messages[0].content"},
        {"[" U "[3]}]", "messages[0].content[0].type"},
        {"[" U "[{\"type\":\"video\"}]}]", "messages[0].content[0].type"},
        {"[" U "[" USE("1") "]}]", "messages[0].content[0].type"},
        {"[" A "[" USE("1") "]}]", "messages[0].content[0]"},
        {"[" A "[" USE("1") "]}," U "\"x\"}," A "\"y\"}]", "messages[0].content[0]"},
        {"[" U "[" RESULT("1", "") "]}]", "messages[0].content[0].tool_use_id"},
        {"[" A "[" USE("1") "]}," U "[" RESULT("1", ",\"content\":[3]") "]}]",
         "messages[1].content[0].content[0].type"},
        {"[" U "[{\"type\":\"text\",\"text\":\"\",\"cache_control\":{}}]}]", "messages[0].content[0].cache_control"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct quire_doc *body = open_body(rows[i].body);
        struct buffer o = {0};
        struct api_error e;
        uint32_t ttl_s = 0;
        bool continues;
        bool ok = messages_turns_add(&o, quire_doc_root(body), &continues, &ttl_s, &e);
        check_text(&o, ok, rows[i].expected, &e);
        quire_doc_close(body);
    }
}

static void tools(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{}", ""},
        {"{\"tools\":[],\"tool_choice\":{\"type\":\"auto\"}}", ""},
        {"{\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"},\"x\":1,\"strict\":true}]}",
         "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"},\"strict\":true}}]"},
        {"{\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],\"tool_choice\":{\"type\":\"none\"}}", ""},
        {"{\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}}",
         "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]"
         "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"},
        {"{\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],\"tool_choice\":{\"type\":\"any\"}}",
         "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]\"required\""},
        {"{\"tools\":3}", "tools"},
        {"{\"tools\":[3]}", "tools[0]"},
        {"{\"tools\":[{\"name\":\"\",\"input_schema\":{}}]}", "tools[0].name"},
        {"{\"tools\":[{\"name\":\"f g\",\"input_schema\":{}}]}", "tools[0].name"},
        {"{\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"}]}", "tools[0].type"},
        {"{\"tool_choice\":{\"type\":\"any\"}}", "tool_choice"},
        {"{\"tool_choice\":\"any\"}", "tool_choice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct quire_doc *body = open_body(rows[i].body);
        struct messages_tools t = {0};
        struct buffer o = {0};
        struct api_error e;
        uint32_t ttl_s = 0;
        bool ok = messages_tools_read(body, &t, &ttl_s, &e);
        buffer_append(&o, t.tools.data, t.tools.n);
        if (t.forces_calls)
            buffer_append(&o, t.choice.data, t.choice.n);
        check_text(&o, ok, rows[i].expected, &e);
        messages_tools_free(&t);
        quire_doc_close(body);
    }
}

static void variables(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{}", ""},
        {"{\"thinking\":{\"type\":\"adaptive\"}}", "{\"enable_thinking\":true,\"thinking\":true}"},
        {"{\"thinking\":{\"type\":\"disabled\"},\"chat_template_kwargs\":{ }}",
         "{\"enable_thinking\":false,\"thinking\":false}"},
        {"{\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024},\"chat_template_kwargs\":{\"thinking\":3 }}",
         "{\"enable_thinking\":true,\"thinking\":3}"},
        {"{\"enable_thinking\":false,\"reasoning_effort\":\"high\"}",
         "{\"reasoning_effort\":\"high\",\"enable_thinking\":false}"},
        {"{\"enable_thinking\":false,\"thinking\":{\"type\":\"adaptive\"}}",
         "{\"enable_thinking\":true,\"thinking\":true}"},
        {"{\"enable_thinking\":1}", "enable_thinking"},
        {"{\"output_config\":{\"effort\":\"max\"}}", "{\"reasoning_effort\":\"high\"}"},
        {"{\"thinking\":{\"type\":\"enabled\"}}", "thinking.budget_tokens"},
        {"{\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":100}}", "thinking.budget_tokens"},
        {"{\"thinking\":true}", "thinking"},
        {"{\"output_config\":{\"effort\":3}}", "output_config.effort"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct quire_doc *body = open_body(rows[i].body);
        struct messages_thinking thinking;
        struct buffer o = {0};
        struct api_error e;
        bool ok = messages_thinking_read(body, &thinking, &e) && messages_variables_add(&o, body, &thinking, &e);
        check_text(&o, ok, rows[i].expected, &e);
        quire_doc_close(body);
    }
}

static void cache_control(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        uint32_t ttl_s; /* 1: an error */
    } rows[] = {
        {"{}", 0},
        {"{\"cache_control\":null}", 0},
        {"{\"cache_control\":{\"type\":\"ephemeral\"}}", 300},
        {"{\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}}", 3600},
        {"{\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"2h\"}}", 1},
        {"{\"cache_control\":3}", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct quire_doc *body = open_body(rows[i].body);
        struct api_error e;
        uint32_t ttl_s = 0;
        if (messages_cache_control(quire_doc_root(body), "", &ttl_s, &e))
            assert_int_equal(ttl_s, rows[i].ttl_s);
        else
            assert_int_equal(rows[i].ttl_s, 1);
        quire_doc_close(body);
    }
}

int run_messages_tests(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(messages), cmocka_unit_test(tools), cmocka_unit_test(variables),
                                       cmocka_unit_test(cache_control)};
    return cmocka_run_group_tests_name("messages", tests, NULL, NULL);
}
