#include "base/encoding/number.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

bool quire_take_number(const char **text, double most, double *out)
{
    const char *at = *text;
    char *end;
    if (!isdigit((unsigned char)at[at[0] == '.']) ||
        tolower((unsigned char)at[1]) == 'x') /* strtod also accepts 0x5 and leading blanks */
        return false;
    errno = 0;
    *out = strtod(at, &end);
    *text = end;
    return errno == 0 && *out <= most;
}
