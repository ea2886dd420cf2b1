/* quire cache warm: fills the prefix cache from a file of prompts, or every cache from requests that were asked. Main
 * thread. */
#ifndef QUIRE_TOOLS_CMD_WARM_H
#define QUIRE_TOOLS_CMD_WARM_H

/* argv: behind the action's name. The exit status. */
int cache_warm(int argc, char **argv);

#endif
