/* quire cache calibrate: the effect of thresholds and guards on labelled pairs of questions. Main thread. */
#ifndef QUIRE_TOOLS_CMD_CALIBRATE_H
#define QUIRE_TOOLS_CMD_CALIBRATE_H

/* argv: after the action's name. Returns the exit status. */
int cache_calibrate(int argc, char **argv);

#endif
