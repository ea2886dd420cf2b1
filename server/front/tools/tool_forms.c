#include "server/front/tools/tool_work.h"

#include <string.h>

static const char *const hermes_specials[] = {"<tool_call>", "</tool_call>", NULL};
static const char *const llama3_specials[] = {"<|python_tag|>", NULL};
static const char *const llama4_specials[] = {"<|python_start|>", "<|python_end|>", NULL};
static const char *const mistral_specials[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", NULL};
static const char *const deepseek_specials[] = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                                                "<｜tool▁call▁end｜>",    "<｜tool▁calls▁end｜>",  NULL};
static const char *const glm_specials[] = {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
                                           "<arg_value>", "</arg_value>", NULL};
static const char *const kimi_specials[] = {
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>", "<|tool_call_end|>",          NULL};
static const char *const harmony_specials[] = {"<|channel|>",   "<|start|>", "<|message|>",
                                               "<|constrain|>", "<|call|>",  NULL};

static const struct tool_form forms[N_TOOL_FORMATS] = {
    [TOOL_NONE] = {.name = "none"},
    /* <tool_call>{"name":...,"arguments":{...}}</tool_call>, anywhere */
    [TOOL_HERMES] = {.name = "hermes",
                     .tag = "<tool_call>",
                     .begins = {"<tool_call>"},
                     .end = "</tool_call>",
                     .specials = hermes_specials,
                     .notation = TOOL_JSON_OBJECT},
    /* {"name":...,"parameters":{...}} at the start, with or without <|python_tag|>; more behind ; */
    [TOOL_LLAMA3_JSON] = {.name = "llama3_json",
                          .tag = "<|python_tag|>",
                          .lead = "<|python_tag|>",
                          .specials = llama3_specials,
                          .notation = TOOL_JSON_OBJECT},
    /* [name(key=value, ...), ...] at the start, with or without <|python_start|> */
    [TOOL_LLAMA4_PYTHONIC] = {.name = "llama4_pythonic",
                              .tag = "<|python_start|>",
                              .lead = "<|python_start|>",
                              .tail = "<|python_end|>",
                              .specials = llama4_specials,
                              .notation = TOOL_PYTHON},
    [TOOL_PYTHONIC] = {.name = "pythonic", .notation = TOOL_PYTHON},
    /* [TOOL_CALLS][{"name":...,"arguments":{...}}, ...]; or [TOOL_CALLS]name{...}, also name[CALL_ID]id[ARGS]{...} */
    [TOOL_MISTRAL] = {.name = "mistral",
                      .tag = "[TOOL_CALLS]",
                      .begins = {"[TOOL_CALLS]"},
                      .specials = mistral_specials,
                      .notation = TOOL_NAMED},
    /* <tool_call><function=name><parameter=key>value</parameter></function></tool_call>, with line breaks */
    [TOOL_QWEN3_CODER] = {.name = "qwen3_coder",
                          .alias = "qwen3_xml",
                          .tag = "<function=",
                          .begins = {"<tool_call>", "<function="},
                          .end = "</tool_call>",
                          .specials = hermes_specials,
                          .notation = TOOL_TAGGED},
    /* <｜tool▁call▁begin｜>function<｜tool▁sep｜>name, and the arguments as a block of code */
    [TOOL_DEEPSEEK_V3] = {.name = "deepseek_v3",
                          .tag = "<｜tool▁call▁begin｜>",
                          .lead = "<｜tool▁calls▁begin｜>",
                          .tail = "<｜tool▁calls▁end｜>",
                          .begins = {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>"},
                          .separator = "\n",
                          .fence = "```json",
                          .unfence = "```",
                          .end = "<｜tool▁call▁end｜>",
                          .specials = deepseek_specials,
                          .notation = TOOL_NAMED},
    /* <｜tool▁call▁begin｜>name<｜tool▁sep｜>{...} */
    [TOOL_DEEPSEEK_V31] = {.name = "deepseek_v31",
                           .tag = "<｜tool▁call▁begin｜>",
                           .lead = "<｜tool▁calls▁begin｜>",
                           .tail = "<｜tool▁calls▁end｜>",
                           .begins = {"<｜tool▁call▁begin｜>"},
                           .separator = "<｜tool▁sep｜>",
                           .end = "<｜tool▁call▁end｜>",
                           .specials = deepseek_specials,
                           .notation = TOOL_NAMED},
    /* <tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>, with line breaks */
    [TOOL_GLM45] = {.name = "glm45",
                    .alias = "glm47",
                    .tag = "<arg_key>",
                    .begins = {"<tool_call>"},
                    .end = "</tool_call>",
                    .specials = glm_specials,
                    .notation = TOOL_TAGGED},
    /* <|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}<|tool_call_end|> in a section */
    [TOOL_KIMI_K2] = {.name = "kimi_k2",
                      .tag = "<|tool_calls_section_begin|>",
                      .lead = "<|tool_calls_section_begin|>",
                      .tail = "<|tool_calls_section_end|>",
                      .begins = {"<|tool_call_begin|>"},
                      .separator = "<|tool_call_argument_begin|>",
                      .end = "<|tool_call_end|>",
                      .specials = kimi_specials,
                      .notation = TOOL_NAMED},
    /* <|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}<|call|>; the recipient may come first:
     * <|start|>assistant to=functions.name<|channel|>commentary json<|message|> */
    [TOOL_OPENAI] = {.name = "openai",
                     .alias = "harmony",
                     .tag = "<|channel|>",
                     .begins = {"<|channel|>", "<|start|>assistant"},
                     .separator = "<|message|>",
                     .end = "<|call|>",
                     .specials = harmony_specials,
                     .notation = TOOL_NAMED},
};

const struct tool_form *tool_form(enum tool_format format)
{
    return &forms[format];
}

bool tool_format_find(const char *name, enum tool_format *out)
{
    for (size_t i = 0; i < N_TOOL_FORMATS; i++) {
        if (strcmp(name, forms[i].name) == 0 || (forms[i].alias && strcmp(name, forms[i].alias) == 0)) {
            *out = (enum tool_format)i;
            return true;
        }
    }
    return false;
}

const char *tool_format_name(enum tool_format format)
{
    return forms[format].name;
}

const char *tool_format_tag(enum tool_format format)
{
    return forms[format].tag;
}

const char *tool_format_special(enum tool_format format, size_t i)
{
    return forms[format].specials ? forms[format].specials[i] : NULL;
}
