/* The fields of a body that restrict its answer: which form and text each becomes, and which errors they cause. */
#include "server/front/grammar/grammar_request.h"
#include "server/front/grammar/tool_grammar.h"
#include "tests/front/front_unit_test.h"

#include <stdio.h>
#include <string.h>

#define SCHEMA "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}"
#define QUOTED "\"{\\\"type\\\":\\\"object\\\"}\""
#define COMPACT QUIRE_WHITESPACE_COMPACT
#define FLEXIBLE QUIRE_WHITESPACE_FLEXIBLE

struct row {
    const char *body;
    const char *field; /* that holds the restriction, or of the error; "": none */
    const char *text;  /* of the restriction, or a part of the error's message */
    int form;          /* BAD: an error */
    enum quire_grammar_whitespace whitespace;
};
#define BAD (-1)

static bool read_all(const char *text, enum quire_grammar_whitespace otherwise, struct grammar_request **out,
                     struct api_error *e)
{
    struct quire_doc *body;
    struct quire_error err;
    *out = NULL;
    assert_int_equal(quire_doc_open(text, strlen(text), 64, "body", &body, &err), QUIRE_OK);
    struct quire_value format = quire_doc_field(body, "response_format");
    bool ok = grammar_request_read(body, otherwise, out, e) &&
              grammar_request_format(format, "response_format", otherwise, out, e);
    quire_doc_close(body);
    return ok;
}

static void check(const struct row *row)
{
    struct grammar_request *r;
    struct api_error e;
    const bool ok = read_all(row->body, COMPACT, &r, &e);
    if (ok != (row->form != BAD))
        print_error("%s: %s\n", row->body, ok ? "accepted" : e.why.text);
    assert_int_equal(ok, row->form != BAD);
    if (!ok) {
        assert_string_equal(e.param, row->field);
        assert_int_equal(e.status, 400);
        if (strncmp(e.why.text, row->field, strlen(row->field)) != 0 || !strstr(e.why.text, row->text))
            fail_msg("%s: %s", row->body, e.why.text);
    } else if (!*row->field) {
        assert_null(r);
    } else {
        assert_non_null(r);
        assert_string_equal(r->field, row->field);
        assert_int_equal(r->source.form, row->form);
        assert_int_equal(r->source.whitespace, row->whitespace);
        assert_int_equal(r->source.n_bytes, strlen(row->text));
        assert_memory_equal(r->source.text, row->text, strlen(row->text));
    }
    grammar_request_free(r);
}

static const struct row formats[] = {
    {"{}", "", "", 0, COMPACT},
    {"{\"response_format\":{\"type\":\"text\"}}", "", "", 0, COMPACT},
    {"{\"response_format\":{\"type\":\"json_object\"}}", "response_format", "{}", QUIRE_FORM_JSON_OBJECT, COMPACT},
    {"{\"response_format\":{\"type\":\"json_object\",\"schema\":" SCHEMA "}}", "response_format.schema", SCHEMA,
     QUIRE_FORM_JSON_SCHEMA, COMPACT},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"strict\":true,\"description\":"
     "\"d\",\"schema\":" SCHEMA "}}}",
     "response_format.json_schema.schema", SCHEMA, QUIRE_FORM_JSON_SCHEMA, COMPACT},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":null,\"schema\":" SCHEMA "}}",
     "response_format.schema", SCHEMA, QUIRE_FORM_JSON_SCHEMA, COMPACT},
    {"{\"response_format\":{\"type\":\"structural_tag\",\"format\":{}}}", "response_format",
     "{\"type\":\"structural_tag\",\"format\":{}}", QUIRE_FORM_STRUCTURAL_TAG, COMPACT},
    {"{\"response_format\":{\"type\":\"grammar\",\"grammar\":\"root ::= \\\"a\\\"\"}}", "response_format.grammar",
     "root ::= \"a\"", QUIRE_FORM_GBNF, COMPACT},
    {"{\"response_format\":\"json\"}", "response_format", "must be an object with a \"type\"", BAD, COMPACT},
    {"{\"response_format\":{}}", "response_format", "must be an object with a \"type\"", BAD, COMPACT},
    {"{\"response_format\":{\"type\":\"xml\"}}", "response_format", "there is no type \"xml\"", BAD, COMPACT},
    {"{\"response_format\":{\"type\":\"json_schema\"}}", "response_format.json_schema.schema", "is missing", BAD,
     COMPACT},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":3}}", "response_format", "must be an object", BAD,
     COMPACT},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":[]}}}",
     "response_format.json_schema.schema", "must be an object", BAD, COMPACT},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":1,\"schema\":{}}}}", "response_format",
     "name must be a string", BAD, COMPACT},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"strict\":1,\"schema\":{}}}}", "response_format",
     "must be true or false", BAD, COMPACT},
    {"{\"response_format\":{\"type\":\"grammar\"}}", "response_format.grammar", "must be a string", BAD, COMPACT},
};

static const struct row structured[] = {
    {"{\"structured_outputs\":null}", "", "", 0, COMPACT},
    {"{\"structured_outputs\":{\"json\":" SCHEMA ",\"regex\":null}}", "structured_outputs.json", SCHEMA,
     QUIRE_FORM_JSON_SCHEMA, COMPACT},
    {"{\"structured_outputs\":{\"json\":" QUOTED "}}", "structured_outputs.json", "{\"type\":\"object\"}",
     QUIRE_FORM_JSON_SCHEMA, COMPACT},
    {"{\"structured_outputs\":{\"regex\":\"a+\"}}", "structured_outputs.regex", "a+", QUIRE_FORM_REGEX, COMPACT},
    {"{\"structured_outputs\":{\"choice\":[\"a\",\"b\"]}}", "structured_outputs.choice", "[\"a\",\"b\"]",
     QUIRE_FORM_CHOICE, COMPACT},
    {"{\"structured_outputs\":{\"grammar\":\"# ::=\\nstart: \\\"a\\\"\"}}", "structured_outputs.grammar",
     "# ::=\nstart: \"a\"", QUIRE_FORM_LARK, COMPACT},
    {"{\"structured_outputs\":{\"grammar\":\"root ::= \\\"a\\\"\"}}", "structured_outputs.grammar", "root ::= \"a\"",
     QUIRE_FORM_GBNF, COMPACT},
    {"{\"structured_outputs\":{\"json_object\":true}}", "structured_outputs.json_object", "{}", QUIRE_FORM_JSON_OBJECT,
     COMPACT},
    {"{\"structured_outputs\":{\"structural_tag\":" QUOTED "}}", "structured_outputs.structural_tag",
     "{\"type\":\"object\"}", QUIRE_FORM_STRUCTURAL_TAG, COMPACT},
    {"{\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":false}}", "structured_outputs.json", "{}",
     QUIRE_FORM_JSON_SCHEMA, FLEXIBLE},
    {"{\"structured_outputs\":{\"json\":{},\"whitespace_pattern\":\"[ ]?\",\"disable_additional_properties\":false}}",
     "structured_outputs.json", "{}", QUIRE_FORM_JSON_SCHEMA, COMPACT},
    {"{\"structured_outputs\":[]}", "structured_outputs", "must be an object", BAD, COMPACT},
    {"{\"structured_outputs\":{}}", "structured_outputs", "needs one of", BAD, COMPACT},
    {"{\"structured_outputs\":{\"json_object\":false}}", "structured_outputs", "needs one of", BAD, COMPACT},
    {"{\"structured_outputs\":{\"yaml\":\"x\"}}", "structured_outputs", "has no member \"yaml\"", BAD, COMPACT},
    {"{\"structured_outputs\":{\"regex\":1}}", "structured_outputs.regex", "must be a string", BAD, COMPACT},
    {"{\"structured_outputs\":{\"json\":1}}", "structured_outputs.json", "must be an object, or a string", BAD,
     COMPACT},
    {"{\"structured_outputs\":{\"choice\":[]}}", "structured_outputs.choice", "non-empty", BAD, COMPACT},
    {"{\"structured_outputs\":{\"choice\":\"a\"}}", "structured_outputs.choice", "non-empty", BAD, COMPACT},
    {"{\"structured_outputs\":{\"choice\":[\"a\",1]}}", "structured_outputs.choice", "item 1", BAD, COMPACT},
    {"{\"structured_outputs\":{\"json_object\":1}}", "structured_outputs.json_object", "true or false", BAD, COMPACT},
    {"{\"structured_outputs\":{\"json\":{},\"whitespace_pattern\":\"x+\"}}", "structured_outputs.whitespace_pattern",
     "is not supported", BAD, COMPACT},
    {"{\"structured_outputs\":{\"json\":{},\"disable_additional_properties\":true}}",
     "structured_outputs.disable_additional_properties", "additionalProperties", BAD, COMPACT},
};

static const struct row older[] = {
    {"{\"guided_json\":null,\"guided_regex\":\"\",\"guided_choice\":[],\"guided_decoding_backend\":\"xgrammar\"}", "",
     "", 0, COMPACT},
    {"{\"guided_json\":" SCHEMA "}", "guided_json", SCHEMA, QUIRE_FORM_JSON_SCHEMA, COMPACT},
    {"{\"guided_json\":" QUOTED ",\"guided_whitespace_pattern\":\" ?\"}", "guided_json", "{\"type\":\"object\"}",
     QUIRE_FORM_JSON_SCHEMA, COMPACT},
    {"{\"guided_regex\":\"[ab]\"}", "guided_regex", "[ab]", QUIRE_FORM_REGEX, COMPACT},
    {"{\"guided_choice\":[\"a\"]}", "guided_choice", "[\"a\"]", QUIRE_FORM_CHOICE, COMPACT},
    {"{\"guided_grammar\":\"start: \\\"a\\\"\"}", "guided_grammar", "start: \"a\"", QUIRE_FORM_LARK, COMPACT},
    {"{\"guided_json_object\":true}", "guided_json_object", "{}", QUIRE_FORM_JSON_OBJECT, COMPACT},
    {"{\"grammar\":\"root ::= \\\"a\\\"\"}", "grammar", "root ::= \"a\"", QUIRE_FORM_GBNF, COMPACT},
    {"{\"json_schema\":" SCHEMA "}", "json_schema", SCHEMA, QUIRE_FORM_JSON_SCHEMA, COMPACT},
    {"{\"structural_tag\":{\"format\":{}}}", "structural_tag", "{\"format\":{}}", QUIRE_FORM_STRUCTURAL_TAG, COMPACT},
    {"{\"guided_json\":7}", "guided_json", "must be an object, or a string", BAD, COMPACT},
    {"{\"guided_regex\":{\"a\":1}}", "guided_regex", "must be a string", BAD, COMPACT},
    {"{\"guided_whitespace_pattern\":\"x\"}", "guided_whitespace_pattern", "is not supported", BAD, COMPACT},
};

static const struct row conflicts[] = {
    {"{\"guided_json\":{},\"guided_regex\":\"a\"}", "guided_regex", "conflicts with guided_json", BAD, COMPACT},
    {"{\"structured_outputs\":{\"json\":{},\"regex\":\"a\"}}", "structured_outputs.regex",
     "conflicts with structured_outputs.json", BAD, COMPACT},
    {"{\"structured_outputs\":{\"json\":{}},\"grammar\":\"x\"}", "grammar", "conflicts with structured_outputs.json",
     BAD, COMPACT},
    {"{\"guided_choice\":[\"a\"],\"response_format\":{\"type\":\"json_object\"}}", "response_format",
     "conflicts with guided_choice", BAD, COMPACT},
};

static void check_all(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check(&rows[i]);
}

static void each_form(void **state)
{
    (void)state;
    check_all(formats, sizeof formats / sizeof *formats);
    check_all(structured, sizeof structured / sizeof *structured);
    check_all(older, sizeof older / sizeof *older);
}

static void two_restrictions_conflict(void **state)
{
    (void)state;
    check_all(conflicts, sizeof conflicts / sizeof *conflicts);
}

/* The server's default counts unless the request states another white space. */
static void default_whitespace(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        enum quire_grammar_whitespace expected;
    } rows[] = {
        {"{\"response_format\":{\"type\":\"json_object\"}}", FLEXIBLE},
        {"{\"guided_json\":{}}", FLEXIBLE},
        {"{\"structured_outputs\":{\"json\":{}}}", FLEXIBLE},
        {"{\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":true}}", COMPACT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grammar_request *r;
        struct api_error e;
        assert_true(read_all(rows[i].body, FLEXIBLE, &r, &e));
        assert_int_equal(r->source.whitespace, rows[i].expected);
        grammar_request_free(r);
    }
}

static void digests_differ(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{\"guided_regex\":\"a\"}",
        "{\"guided_regex\":\"b\"}",
        "{\"guided_grammar\":\"a\"}",
        "{\"structured_outputs\":{\"json\":{}}}",
        "{\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":false}}",
    };
    enum { N = sizeof bodies / sizeof *bodies };
    struct key256 digests[N];
    for (size_t i = 0; i < N; i++) {
        struct grammar_request *r;
        struct api_error e;
        assert_true(read_all(bodies[i], COMPACT, &r, &e));
        digests[i] = r->digest;
        grammar_request_free(r);
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(&digests[i], &digests[j], sizeof *digests);
    }
}

/* The budget, the format and the place of a reasoning are part of a grammar's identity. */
static void digests_of_reasonings_differ(void **state)
{
    (void)state;
    static const struct {
        enum reasoning_format format;
        int64_t budget;
        enum reasoning_place place;
    } rows[] = {{REASONING_QWEN3, -1, REASONING_IS_BEFORE}, {REASONING_QWEN3, -1, REASONING_IS_OPEN},
                {REASONING_QWEN3, 5, REASONING_IS_OPEN},    {REASONING_QWEN3, 6, REASONING_IS_OPEN},
                {REASONING_QWEN3, 6, REASONING_IS_BEFORE},  {REASONING_OPENAI_GPTOSS, 6, REASONING_IS_BEFORE}};
    enum { N = sizeof rows / sizeof *rows };
    struct key256 digests[2 * N];
    for (size_t i = 0; i < 2 * N; i++) {
        const size_t k = i / 2;
        struct grammar_request *r = NULL;
        struct api_error e;
        assert_true(i % 2 == 0 || read_all("{\"guided_regex\":\"a\"}", COMPACT, &r, &e));
        assert_true(grammar_request_reason(&r, rows[k].format, rows[k].budget, "thinking_token_budget", &e));
        const struct key256 before = r->digest;
        grammar_request_place(&r, rows[k].place);
        assert_memory_not_equal(&before, &r->digest, sizeof before);
        assert_int_equal(r->source.reasoning->budget, rows[k].budget);
        digests[i] = r->digest;
        grammar_request_free(r);
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(&digests[i], &digests[j], sizeof *digests);
    }
}

/* Behind a reasoning that the prompt has closed, a free answer has no grammar, and another has its own only. */
static void a_closed_reasoning(void **state)
{
    (void)state;
    struct grammar_request *r = NULL;
    struct api_error e;
    assert_true(grammar_request_reason(&r, REASONING_QWEN3, 5, "thinking_token_budget", &e));
    assert_int_equal(r->source.form, QUIRE_FORM_FREE);
    grammar_request_place(&r, REASONING_IS_OVER);
    assert_null(r);
    assert_true(read_all("{\"guided_regex\":\"a\"}", COMPACT, &r, &e));
    assert_true(grammar_request_reason(&r, REASONING_QWEN3, 5, "thinking_token_budget", &e));
    grammar_request_place(&r, REASONING_IS_OVER);
    assert_non_null(r);
    assert_null(r->source.reasoning);
    grammar_request_free(r);
}

/* ---- forced calls ---- */

#define F_TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"a\":1}}}"
#define TOOLS \
    "\"tools\":[" F_TOOL "," \
    "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"strict\":true,\"parameters\":{\"properties\":{}}}}]"
#define H_F \
    "{\"name\":\"f\",\"begin\":\"<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": \",\"schema\":{\"type\":" \
    "\"object\",\"a\":1},\"end\":\"}\\n</tool_call>\"}"
#define H_LOOSE \
    "{\"name\":\"f\",\"begin\":\"<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": \",\"loose\":true,\"end\":" \
    "\"}\\n</tool_call>\"}"
#define H_G \
    "{\"name\":\"g\",\"begin\":\"<tool_call>\\n{\\\"name\\\": \\\"g\\\", \\\"arguments\\\": \",\"schema\":{\"type\":" \
    "\"object\",\"properties\":{}},\"end\":\"}\\n</tool_call>\"}"

struct tool_row {
    const char *choice; /* and further members of the body */
    const char *text;   /* of the grammar; of an error: its message */
    bool is_single, is_bad;
    enum tool_format format;
    uint32_t first;
    struct special_tags tags;
};

static void check_tools(const struct tool_row *row)
{
    char body_text[1024];
    struct grammar_request *r = NULL;
    struct api_error e;
    struct quire_doc *body;
    struct quire_error err;
    snprintf(body_text, sizeof body_text, "{%s}", row->choice);
    assert_int_equal(quire_doc_open(body_text, strlen(body_text), 64, "body", &body, &err), QUIRE_OK);
    bool ok = grammar_request_read(body, COMPACT, &r, &e) &&
              tool_grammar_read(&(struct tool_calls){quire_doc_field(body, "tools"),
                                                     quire_doc_field(body, "tool_choice"), row->is_single, row->format,
                                                     &row->tags},
                                &r, &e);
    if (ok == row->is_bad)
        fail_msg("%s: %s", body_text, ok ? "accepted" : e.why.text);
    if (!ok)
        assert_string_equal(e.why.text, row->text);
    else if (!row->text)
        assert_null(r);
    else {
        assert_int_equal(r->source.form, QUIRE_FORM_TOOLS);
        assert_int_equal(r->source.whitespace, QUIRE_WHITESPACE_SPACED);
        assert_int_equal(r->first_tool, row->first);
        if (r->source.n_bytes != strlen(row->text) || memcmp(r->source.text, row->text, r->source.n_bytes) != 0)
            fail_msg("%.*s, not %s", (int)r->source.n_bytes, r->source.text, row->text);
    }
    grammar_request_free(r);
    quire_doc_close(body);
}

static void forced_calls(void **state)
{
    (void)state;
    static const struct tool_row rows[] = {
        {"\"tools\":[" F_TOOL "]", NULL, false, false, TOOL_HERMES, 0, {0}},
        {TOOLS, NULL, false, false, TOOL_NONE, 0, {0}},
        {TOOLS ",\"tool_choice\":\"auto\"",
         "{\"calls\":[" H_LOOSE "," H_G "],\"between\":\"\\n\",\"trigger\":\"<tool_call>\"}",
         false,
         false,
         TOOL_HERMES,
         0,
         {0}},
        {TOOLS,
         "tools: function.strict: arguments in the format openai are restricted only if tool_choice forces a call",
         false,
         true,
         TOOL_OPENAI,
         0,
         {0}},
        {"\"tools\":[" F_TOOL "],\"tool_choice\":\"required\"",
         "{\"calls\":[{\"name\":\"f\",\"begin\":\"[TOOL_CALLS]f[ARGS]\",\"schema\":{\"type\":\"object\",\"a\":1}}],"
         "\"specials\":{\"[ARGS]\":9}}",
         false,
         false,
         TOOL_MISTRAL,
         0,
         {1, {9}, {"[ARGS]"}}},
        {"\"tools\":[" F_TOOL "],\"tool_choice\":\"required\"",
         "{\"calls\":[{\"name\":\"f\",\"begin\":\"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": \",\"schema\":{\"type\":"
         "\"object\",\"a\":1},\"end\":\"}\"}],\"before\":\"[TOOL_CALLS][\",\"between\":\", \",\"after\":\"]\"}",
         false,
         false,
         TOOL_MISTRAL,
         0,
         {0}},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a-b\"}}],\"tool_choice\":\"required\"",
         "tools: item 0: function.name is empty or has a control character, or one that calls in the format pythonic "
         "cannot have",
         false,
         true,
         TOOL_PYTHONIC,
         0,
         {0}},
        {TOOLS ",\"tool_choice\":\"required\"",
         "{\"calls\":[" H_F "," H_G "],\"between\":\"\\n\"}",
         false,
         false,
         TOOL_HERMES,
         0,
         {0}},
        {TOOLS ",\"tool_choice\":\"required\"",
         "{\"calls\":[" H_F "," H_G "],\"between\":\"\\n\",\"at_most\":1}",
         true,
         false,
         TOOL_HERMES,
         0,
         {0}},
        {TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}",
         "{\"calls\":[" H_G "],\"between\":\"\\n\",\"at_most\":1}",
         false,
         false,
         TOOL_HERMES,
         1,
         {0}},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"h\"}}],\"tool_choice\":\"required\"",
         "{\"calls\":[{\"name\":\"h\",\"begin\":\"{\\\"name\\\": \\\"h\\\", \\\"parameters\\\": \",\"end\":\"}\"}],"
         "\"between\":\"; \"}",
         false,
         false,
         TOOL_LLAMA3_JSON,
         0,
         {0}},
        {"\"tool_choice\":\"required\"", "tool_choice: needs tools", false, true, TOOL_HERMES, 0, {0}},
        {TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"x\"}}",
         "tool_choice: no tool has the name \"x\"",
         false,
         true,
         TOOL_HERMES,
         0,
         {0}},
        {TOOLS ",\"tool_choice\":\"required\"",
         "tool_choice: calls cannot be forced: the format of this model's calls is not known (--tool-call-parser)",
         false,
         true,
         TOOL_NONE,
         0,
         {0}},
        {TOOLS ",\"tool_choice\":\"required\",\"guided_regex\":\"a\"",
         "tool_choice: conflicts with guided_regex: an answer has one form",
         false,
         true,
         TOOL_HERMES,
         0,
         {0}},
        {TOOLS ",\"tool_choice\":{\"type\":\"x\"}",
         "tool_choice: must be \"none\", \"auto\", \"required\" or "
         "{\"type\":\"function\",\"function\":{\"name\":...}}",
         false,
         true,
         TOOL_HERMES,
         0,
         {0}},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\\u0007\"}}],\"tool_choice\":\"required\"",
         "tools: item 0: function.name is empty or has a control character, or one that calls in the format hermes cannot "
         "have",
         false,
         true,
         TOOL_HERMES,
         0,
         {0}},
        {"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":[]}}],\"tool_choice\":"
         "\"required\"",
         "tools: item 0: function.parameters must be an object",
         false,
         true,
         TOOL_HERMES,
         0,
         {0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_tools(&rows[i]);
}

/* A place in the grammar's text becomes the place in the client's tools. */
static void places_of_tools(void **state)
{
    (void)state;
    static const struct {
        const char *why, *message;
    } rows[] = {
        {"/calls/1/schema/properties/a: no", "tools: item 4: function.parameters: /properties/a: no"},
        {"/calls/0/schema: no", "tools: item 3: function.parameters: no"},
        {"/: no", "tools: /: no"},
    };
    struct grammar_request r = {.source = {.form = QUIRE_FORM_TOOLS}, .field = "tools", .first_tool = 3};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct api_error e;
        api_fail(&e, 400, NULL, NULL, "%s", rows[i].why);
        grammar_request_name(&r, &e);
        assert_string_equal(e.why.text, rows[i].message);
        assert_string_equal(e.param, "tools");
    }
}

int run_grammar_fields_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_form),
        cmocka_unit_test(two_restrictions_conflict),
        cmocka_unit_test(default_whitespace),
        cmocka_unit_test(digests_differ),
        cmocka_unit_test(digests_of_reasonings_differ),
        cmocka_unit_test(a_closed_reasoning),
        cmocka_unit_test(forced_calls),
        cmocka_unit_test(places_of_tools),
    };
    return cmocka_run_group_tests_name("grammar_fields", tests, NULL, NULL);
}
