/* quire cache calibrate: which threshold and what guards do for pairs of questions that people labelled. Main thread. */
#ifndef QUIRE_TOOLS_CMD_CALIBRATE_H
#define QUIRE_TOOLS_CMD_CALIBRATE_H

/* argv: behind the action's name. The exit status. */
int cache_calibrate(int argc, char **argv);

#endif
