/* quire cache warm: fills the prefix cache from a file of prompts, or every cache from earlier requests. Main thread.
 */
#ifndef QUIRE_TOOLS_CMD_WARM_H
#define QUIRE_TOOLS_CMD_WARM_H

/* argv: after the action's name. Returns the exit status. */
int cache_warm(int argc, char **argv);

#endif
