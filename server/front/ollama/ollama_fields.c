/* Unknown fields of bodies that are parsed on the loop. Other bodies are checked where they are read. */
#include "server/front/ollama/ollama.h"

#include "server/front/fields/field_check.h"
#include "server/front/front_internal.h"

#include <stdlib.h>

bool ollama_check_fields(struct served_model *m, struct http_exchange *x, const struct field_shape *shape,
                         const struct quire_doc *body, struct api_error *e)
{
    struct field_notes *notes = NULL;
    field_check(shape, quire_doc_root(body), m->config->text, &notes);
    if (!notes)
        return true;
    m->counts->n_unknown_fields += notes->n;
    field_report(&m->front->field_log, x, notes);
    const bool ok = !m->config->strict_fields || field_notes_fail(notes, e);
    free(notes);
    return ok;
}
