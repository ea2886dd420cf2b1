#include "server/front/fields/field_notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies the text, escaped, as far as it fits. */
static void put(char *out, size_t size, const char *text)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        const bool is_plain = *p >= ' ' && *p < 0x7f;
        if (n + (is_plain ? 1 : 4) >= size) {
            if (size > 4)
                memcpy(out + (n < size - 4 ? n : size - 4), "...", 4);
            return;
        }
        if (is_plain) {
            out[n++] = (char)*p;
        } else {
            const char shown[4] = {'\\', 'x', digits[*p >> 4], digits[*p & 15]};
            memcpy(out + n, shown, sizeof shown);
            n += sizeof shown;
        }
        out[n] = '\0';
    }
}

void field_notes_add(struct field_notes **notes, const char *field, const char *format, ...)
{
    char text[512];
    if (!*notes)
        *notes = calloc(1, sizeof **notes);
    struct field_notes *o = *notes;
    if (!o || o->n == FIELD_NOTES_MOST)
        return;
    const size_t i = o->n++;
    if (i >= FIELD_NOTES_SHOWN)
        return;
    size_t n = (size_t)snprintf(text, sizeof text, "%.160s: ", field);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + n, sizeof text - n, format, arguments);
    va_end(arguments);
    put(o->fields[i], sizeof o->fields[i], field);
    put(o->texts[i], sizeof o->texts[i], text);
}

bool field_notes_fail(const struct field_notes *notes, struct api_error *e)
{
    return api_fail(e, 400, notes->fields[0], "unknown_parameter", "%s", notes->texts[0]);
}
