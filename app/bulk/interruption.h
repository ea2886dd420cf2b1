/* SIGINT and SIGTERM outside job_run(): while a model is loading or results are being written. */
#ifndef QUIRE_APP_BULK_INTERRUPTION_H
#define QUIRE_APP_BULK_INTERRUPTION_H

/* From now on they end the process with JOB_EXIT_INTERRUPTED and a line on standard error. Those that the parent process
 * ignores stay ignored. Main thread. */
void interruption_says_so(void);

#endif
