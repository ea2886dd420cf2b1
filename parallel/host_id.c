#include "parallel/host_id.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void quire_host_id(char out[QUIRE_HOST_ID_BYTES])
{
    char name[HOST_NAME_MAX + 1] = "", boot[40] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file && !fgets(boot, sizeof boot, file))
        boot[0] = '\0';
    if (file)
        fclose(file);
    boot[strcspn(boot, "\n")] = '\0';
    if (gethostname(name, sizeof name) != 0)
        name[0] = '\0';
    snprintf(out, QUIRE_HOST_ID_BYTES, "%s %s", name, boot);
}
