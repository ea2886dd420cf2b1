/* One stage: prompts in, answers out, by a job in a folder. Main thread. */
#ifndef QUIRE_APP_MAP_REDUCE_STAGE_H
#define QUIRE_APP_MAP_REDUCE_STAGE_H

#include "app/map_reduce/texts.h"
#include "app/map_reduce/work.h"

/* number: of the stage, from 0; its files are "stage-0.jsonl" and others in report->folder. Adds to the report. QUIRE_INVALID:
 * a request failed; err has the server's message, and *failed its index. */
int stage_run(const struct work_options *options, unsigned number, const struct texts *prompts, struct texts *answers,
              size_t *failed, struct work_report *report, struct quire_error *err);
/* Removes the files of stages 0 to n - 1, and the folder. */
void stages_remove(const char *folder, unsigned n);

#endif
