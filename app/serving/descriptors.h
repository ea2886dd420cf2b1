/* The limit of open descriptors. Main thread, before the process serves. */
#ifndef QUIRE_APP_SERVING_DESCRIPTORS_H
#define QUIRE_APP_SERVING_DESCRIPTORS_H

#include <stdint.h>

/* Raises the limit of open descriptors to n plus a reserve, as far as the system allows. */
void serving_allow_descriptors(uint32_t n);
/* The limit without the reserve. */
uint32_t serving_descriptors(void);

#endif
