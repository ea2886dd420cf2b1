/* Streams of chat completions → events of Messages. An event is shown as its type, its index and its content. */
#include "server/gateway/messages/translate.h"
#include "tests/gateway/translate_test.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void show_delta(struct buffer *out, const json_t *delta)
{
    static const char *const keys[] = {"text", "thinking", "partial_json", "signature", "stop_reason"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(delta, keys[i]))
            json_out_raw(out, json_string_value(json_object_get(delta, keys[i])));
    const char *stop = json_string_value(json_object_get(delta, "stop_sequence"));
    if (stop)
        json_out_raw(out, stop);
}

static void show_event(struct buffer *out, const char *name, const json_t *event)
{
    char text[64];
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *block = json_object_get(event, "content_block"), *usage = json_object_get(event, "usage");
    assert_string_equal(name, type);
    if (strcmp(type, "content_block_start") == 0) {
        snprintf(text, sizeof text, "[%d %s %s%s", (int)json_integer_value(json_object_get(event, "index")),
                 json_string_value(json_object_get(block, "type")),
                 json_object_get(block, "name") ? json_string_value(json_object_get(block, "name")) : "",
                 json_object_get(block, "id") ? json_string_value(json_object_get(block, "id")) : "");
        json_out_raw(out, text);
    } else if (strcmp(type, "content_block_delta") == 0) {
        json_out_raw(out, "|");
        show_delta(out, json_object_get(event, "delta"));
    } else if (strcmp(type, "content_block_stop") == 0) {
        json_out_raw(out, "]");
    } else if (strcmp(type, "message_delta") == 0) {
        json_out_raw(out, " ");
        show_delta(out, json_object_get(event, "delta"));
        snprintf(text, sizeof text, " %d+%d>%d", (int)json_integer_value(json_object_get(usage, "input_tokens")),
                 (int)json_integer_value(json_object_get(usage, "cache_read_input_tokens")),
                 (int)json_integer_value(json_object_get(usage, "output_tokens")));
        json_out_raw(out, text);
    } else if (strcmp(type, "message_start") == 0) {
        json_out_raw(out, "<");
    } else if (strcmp(type, "message_stop") == 0) {
        json_out_raw(out, ">");
    }
}

/* "event: NAME\ndata: JSON\n\n", repeated. */
static void show(struct buffer *out, const struct buffer *events)
{
    const char *at = events->data, *end = at + events->n;
    while (at < end) {
        char name[32];
        assert_int_equal(sscanf(at, "event: %31s", name), 1);
        const char *data = strchr(at, '\n') + 1, *last = strstr(data, "\n\n");
        assert_non_null(last);
        assert_memory_equal(data, "data: ", 6);
        json_t *event = json_loadb(data + 6, (size_t)(last - data) - 6, 0, NULL);
        assert_non_null(event);
        show_event(out, name, event);
        json_decref(event);
        at = last + 2;
    }
}

struct stream_row {
    const char *chunks[8];
    const char *expected; /* the events, or the words of the error after "!" */
    bool is_eager, is_cut;
};

static void run_row(const struct stream_row *row)
{
    struct translate_stream t;
    struct buffer events = {0}, out = {0};
    struct api_error e = {0};
    bool ok = true;
    translate_stream_begin(&t, "r1", "mine", row->is_eager);
    for (size_t i = 0; ok && i < 8 && row->chunks[i]; i++)
        ok = translate_stream_event(&t, row->chunks[i], strlen(row->chunks[i]), &events, &e);
    ok = ok && translate_stream_end(&t, !row->is_cut, NULL, &events, &e);
    buffer_text(&events);
    show(&out, &events);
    if (!ok) {
        json_out_raw(&out, "!");
        json_out_raw(&out, e.why.text);
        assert_int_equal(e.status, 502);
    }
    assert_string_equal(buffer_text(&out), row->expected);
    translate_stream_free(&t);
    buffer_free(&events);
    buffer_free(&out);
}

static void run_rows(const struct stream_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        run_row(&rows[i]);
}
#define RUN_ROWS(rows) run_rows(rows, sizeof(rows) / sizeof *(rows))

#define DELTA(delta) "{\"choices\":[{\"index\":0,\"delta\":{" delta "},\"finish_reason\":null}]}"
#define FINISH(reason) "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"" reason "\"}]}"
#define USAGE \
    "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":3}}}"
#define CALL(index, id, name, arguments) \
    "{\"index\":" index ",\"id\":\"" id "\",\"function\":{\"name\":\"" name "\",\"arguments\":\"" arguments "\"}}"
#define MORE(index, arguments) "{\"index\":" index ",\"function\":{\"arguments\":\"" arguments "\"}}"
#define CALLS(calls) DELTA("\"tool_calls\":[" calls "]")

static void text_is_streamed(void **state)
{
    static const struct stream_row rows[] = {
        {.chunks = {DELTA("\"role\":\"assistant\",\"content\":\"\""), DELTA("\"content\":\"a\""),
                    DELTA("\"content\":\"b\""), FINISH("stop"), USAGE},
         .expected = "<[0 text |a|b] end_turn 6+3>4>"},
        /* no role, usage in the last chunk, null content, other choices */
        {.chunks = {DELTA("\"content\":null"), DELTA("\"content\":\"a\""),
                    "{\"choices\":[{\"delta\":{\"content\":\"z\"},\"finish_reason\":\"length\"}],\"usage\":"
                    "{\"prompt_tokens\":2,\"completion_tokens\":1}}"},
         .expected = "<[0 text |a|z] max_tokens 2+0>1>"},
        {.chunks = {FINISH("stop")}, .expected = "<[0 text ] end_turn 0+0>0>"},
        {.chunks = {0}, .expected = "<[0 text ] end_turn 0+0>0>"},
        {.chunks = {DELTA("\"content\":\"a\""), FINISH("stop"), DELTA("\"content\":\"late\"")},
         .expected = "<[0 text |a] end_turn 0+0>0>"},
        {.chunks = {DELTA("\"reasoning_content\":\"r\""), DELTA("\"reasoning\":\"s\""), DELTA("\"content\":\"a\""),
                    FINISH("stop")},
         .expected = "<[0 thinking |r|s|quire][1 text |a] end_turn 0+0>0>"},
        {.chunks = {DELTA("\"content\":\"\\u0000\\ud83d\""), FINISH("stop")},
         .expected = "<[0 text |\xef\xbf\xbd\xef\xbf\xbd] end_turn 0+0>0>"},
        {.chunks = {DELTA("\"content\":\"\xf0\x9f\""), DELTA("\"content\":\"\x99\x82\""), FINISH("stop")},
         .expected = "<[0 text |\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd] end_turn 0+0>0>"},
        {.chunks = {DELTA("\"content\":\"a\""),
                    "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\",\"stop_reason\":\"END\"}]}"},
         .expected = "<[0 text |a] stop_sequenceEND 0+0>0>"},
        {.chunks = {"{\"id\":\"x\",\"choices\":[],\"prompt_filter_results\":[]}", DELTA("\"content\":\"a\""),
                    FINISH("stop")},
         .expected = "<[0 text |a] end_turn 0+0>0>"},
        {.chunks = {DELTA("\"content\":\"a\""), FINISH("stop")},
         .expected = "<[0 text |a] end_turn 0+0>0>",
         .is_cut = true},
    };
    (void)state;
    RUN_ROWS(rows);
}

static void calls_are_sent_when_complete(void **state)
{
    static const struct stream_row rows[] = {
        {.chunks = {DELTA("\"content\":\"t\""), CALLS(CALL("0", "c1", "f", "")), CALLS(MORE("0", "{\\\"a\\\"")),
                    CALLS(MORE("0", ":\\\"}\\\"}")), FINISH("tool_calls"), USAGE},
         .expected = "<[0 text |t][1 tool_use fc1|{\"a\":\"}\"}] tool_use 6+3>4>"},
        /* two calls in turn, and two heads first */
        {.chunks = {CALLS(CALL("0", "c1", "f", "{}")), CALLS(CALL("1", "c2", "g", "{\\\"b\\\":[{}]}")),
                    FINISH("tool_calls")},
         .expected = "<[0 tool_use fc1|{}][1 tool_use gc2|{\"b\":[{}]}] tool_use 0+0>0>"},
        {.chunks = {CALLS(CALL("0", "c1", "f", "") "," CALL("1", "c2", "g", "")), CALLS(MORE("1", "{\\\"b\\\":")),
                    CALLS(MORE("0", "{\\\"a\\\":1}")), CALLS(MORE("1", "2}")), FINISH("tool_calls")},
         .expected = "<[0 tool_use fc1|{\"a\":1}][1 tool_use gc2|{\"b\":2}] tool_use 0+0>0>"},
        /* all with the number 0, and without numbers */
        {.chunks = {CALLS(CALL("0", "c1", "f", "{}")), CALLS(CALL("0", "c2", "g", "{}")), FINISH("stop")},
         .expected = "<[0 tool_use fc1|{}][1 tool_use gc2|{}] tool_use 0+0>0>"},
        {.chunks = {CALLS("{\"function\":{\"name\":\"f\",\"arguments\":{}}}"),
                    CALLS("{\"function\":{\"name\":\"g\",\"arguments\":\"{\"}}"),
                    CALLS("{\"function\":{\"arguments\":\"}\"}}"), FINISH("tool_calls")},
         .expected = "<[0 tool_use ftoolu_r1_0|{}][1 tool_use gtoolu_r1_1|{}] tool_use 0+0>0>"},
        /* no arguments; the name repeated; blanks after the end */
        {.chunks = {CALLS(CALL("0", "c1", "f", "")), FINISH("tool_calls")},
         .expected = "<[0 tool_use fc1|{}] tool_use 0+0>0>"},
        {.chunks = {CALLS(CALL("0", "c1", "f", "{")), CALLS(CALL("0", "c1", "f", "}")), CALLS(MORE("0", "\\n ")),
                    FINISH("tool_calls")},
         .expected = "<[0 tool_use fc1|{}] tool_use 0+0>0>"},
        /* not an object, and cut: text */
        {.chunks = {CALLS(CALL("0", "c1", "f", "[1]")), FINISH("tool_calls")},
         .expected = "<[0 text |{\"name\": \"f\", \"arguments\": [1]}] end_turn 0+0>0>"},
        {.chunks = {CALLS(CALL("0", "c1", "f", "{\\\"a\\\":")), FINISH("length")},
         .expected = "<[0 text |{\"name\": \"f\", \"arguments\": {\"a\":}] max_tokens 0+0>0>"},
        {.chunks = {CALLS(CALL("0", "c1", "f", "{}")), CALLS(MORE("0", "x"))},
         .expected = "<[0 tool_use fc1|{}]!the upstream server continued a tool call after its end"},
        {.chunks = {CALLS(CALL("0", "c1", "f", "{}"))}, .expected = "<[0 tool_use fc1|{}] tool_use 0+0>0>"},
    };
    (void)state;
    RUN_ROWS(rows);
}

static void calls_are_sent_as_they_come(void **state)
{
    static const struct stream_row rows[] = {
        {.is_eager = true,
         .chunks = {CALLS(CALL("0", "c1", "f", "")), CALLS(MORE("0", "{\\\"a\\\"")), CALLS(MORE("0", ":1}")),
                    CALLS(CALL("1", "c2", "g", "{\\\"b")), FINISH("length")},
         .expected = "<[0 tool_use fc1|{\"a\"|:1}][1 tool_use gc2|{\"b] max_tokens 0+0>0>"},
        {.is_eager = true,
         .chunks = {CALLS(CALL("0", "c1", "f", "") "," CALL("1", "c2", "g", "{}")), CALLS(MORE("0", "{")),
                    CALLS(MORE("0", "}")), FINISH("tool_calls")},
         .expected = "<[0 tool_use fc1|{|}][1 tool_use gc2|{}] tool_use 0+0>0>"},
        {.is_eager = true,
         .chunks = {CALLS(CALL("0", "c1", "f", "{")), DELTA("\"content\":\"t\""), FINISH("stop")},
         .expected = "<[0 tool_use fc1|{][1 text |t] tool_use 0+0>0>"},
    };
    (void)state;
    RUN_ROWS(rows);
}

static void streams_fail_with_a_reason(void **state)
{
    static const struct stream_row rows[] = {
        {.chunks = {"x"}, .expected = "!the upstream server sent an event that is not JSON"},
        {.chunks = {"[]"}, .expected = "!the upstream server sent an event that is not an object"},
        {.chunks = {DELTA("\"content\":\"a\""), "{\"error\":{\"message\":\"out of memory\",\"code\":500}}"},
         .expected = "<[0 text |a!the upstream server: out of memory"},
        {.chunks = {"{\"error\":\"gone\"}"}, .expected = "!the upstream server: gone"},
        {.chunks = {"{\"object\":\"error\",\"message\":\"old\"}"}, .expected = "!the upstream server: old"},
        {.chunks = {DELTA("\"content\":\"a\"")},
         .expected = "<[0 text |a!the upstream server ended its stream in the middle of the answer",
         .is_cut = true},
    };
    (void)state;
    RUN_ROWS(rows);
}

static void held_calls_are_bounded(void **state)
{
    static char chunk[70000];
    struct translate_stream t;
    struct buffer events = {0};
    struct api_error e = {0};
    uint32_t n = 0;
    (void)state;
    int len = snprintf(chunk, sizeof chunk,
                       "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":"
                       "\"f\",\"arguments\":\"%065536d\"}}]}}]}",
                       0);
    translate_stream_begin(&t, "r1", "mine", false);
    while (n < 100 && translate_stream_event(&t, chunk, (size_t)len, &events, &e))
        n++;
    assert_int_equal(n, (TRANSLATE_MAX_HELD_BYTES - 1) / 65536);
    assert_int_equal(e.status, 502);
    translate_stream_free(&t);

    translate_stream_begin(&t, "r1", "mine", false);
    for (n = 0; n < 1000; n++) {
        len = snprintf(chunk, sizeof chunk, "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":%u}]}}]}", n);
        if (!translate_stream_event(&t, chunk, (size_t)len, &events, &e))
            break;
    }
    assert_int_equal(n, TRANSLATE_MAX_CALLS);
    translate_stream_free(&t);
    assert_int_equal(events.n, 0);
    buffer_free(&events);
}

static void an_error_is_an_event(void **state)
{
    struct translate_stream t;
    struct buffer o = {0};
    struct api_error e = {0};
    (void)state;
    translate_stream_begin(&t, "r1", "mine", false);
    api_fail(&e, 503, NULL, NULL, "busy");
    translate_stream_error(&t, &e, &o);
    assert_string_equal(buffer_text(&o),
                        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
                        "\"message\":\"busy\"},\"request_id\":\"r1\"}\n\n");
    translate_stream_free(&t);
    buffer_free(&o);
}

int run_translate_stream_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_streamed),
        cmocka_unit_test(calls_are_sent_when_complete),
        cmocka_unit_test(calls_are_sent_as_they_come),
        cmocka_unit_test(streams_fail_with_a_reason),
        cmocka_unit_test(held_calls_are_bounded),
        cmocka_unit_test(an_error_is_an_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
