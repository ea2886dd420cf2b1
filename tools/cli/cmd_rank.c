/* A rank of an engine of several: no command that anybody types; rank 0 starts it. */
#include "engine/engine.h"
#include "tools/cli/command.h"
#include "tools/cli/commands.h"

#include <signal.h>

int command_rank(void)
{
    struct quire_error err;
    /* A terminal's Ctrl-C reaches all processes at once, as its end and a service manager's reload may. What they mean rank 0
     * knows, and it ends the others when its requests have ended. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    return engine_work(&err) == QUIRE_OK ? 0 : command_fail(1, err.text);
}
