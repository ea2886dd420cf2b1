#include "server/front/body/tools_json.h"

#include "server/front/output/json_out.h"

#include <string.h>

static const char name_characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

bool tools_is_name(struct quire_value name)
{
    if (quire_value_kind(name) != QUIRE_STRING || name.n < 3 || name.n > TOOLS_MAX_NAME + 2)
        return false;
    for (size_t k = 1; k + 1 < name.n; k++)
        if (!strchr(name_characters, name.text[k]))
            return false;
    return true;
}

bool tools_has_name(const struct quire_value *names, size_t n, struct quire_value name)
{
    for (size_t i = 0; i < n; i++)
        if (names[i].n == name.n && memcmp(names[i].text, name.text, name.n) == 0)
            return true;
    return false;
}

void tools_put_function(struct buffer *o, struct quire_value name, struct quire_value description,
                        struct quire_value parameters, bool is_strict)
{
    if (o->n > 0 && o->data[o->n - 1] != '[')
        json_out_raw(o, ",");
    json_out_raw(o, "{\"type\":\"function\",\"function\":{\"name\":");
    buffer_append(o, name.text, name.n);
    if (description.n) {
        json_out_raw(o, ",\"description\":");
        buffer_append(o, description.text, description.n);
    }
    if (parameters.n) {
        json_out_raw(o, ",\"parameters\":");
        buffer_append(o, parameters.text, parameters.n);
    }
    json_out_raw(o, is_strict ? ",\"strict\":true}}" : "}}");
}

void tools_put_named_choice(struct buffer *o, struct quire_value name)
{
    json_out_raw(o, "{\"type\":\"function\",\"function\":{\"name\":");
    buffer_append(o, name.text, name.n);
    json_out_raw(o, "}}");
}
