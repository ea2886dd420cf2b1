#include "app/serving/listen.h"

#include <string.h>

int serving_check_listen(const char *const *addresses, size_t n, const char *key_file, struct quire_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(addresses[i], "tcp:", 4) == 0 && !key_file)
            return quire_fail(err, QUIRE_INVALID,
                              "--listen %s: needs --engine-key-file PATH, a file with a secret shared with front "
                              "ends: head -c 32 /dev/urandom | base64 > PATH; chmod 600 PATH",
                              addresses[i]);
    return QUIRE_OK;
}
