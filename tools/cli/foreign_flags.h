/* What the options of vLLM, SGLang and llama.cpp are here, for whoever brings a command line from there: taken where
 * they ask for what is so anyway, else refused with what to write instead, or with "not built yet". */
#ifndef QUIRE_TOOLS_FOREIGN_FLAGS_H
#define QUIRE_TOOLS_FOREIGN_FLAGS_H

#include "tools/cli/cli.h"

/* For the commands that have engine_flags(); ends with names = NULL. */
extern const struct cli_foreign foreign_flags[];

/* What other engines call MODEL. */
#define FOREIGN_MODEL_NAMES "model,model-path,model-id,m"

#endif
