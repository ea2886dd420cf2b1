#include "base/size.h"

#include <stdio.h>

struct quire_size quire_size(uint64_t n_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct quire_size out;
    double value = (double)n_bytes;
    unsigned unit = 0;
    /* A value that would print as 1024.0 becomes 1.0 of the next unit. */
    while (value >= (unit ? 1023.95 : 1024) && unit < 6) {
        value /= 1024;
        unit++;
    }
    snprintf(out.text, sizeof out.text, "%.*f %s", unit ? 1 : 0, value, units[unit]);
    return out;
}
