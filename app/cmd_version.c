#include "app/command/commands.h"

#include <stdio.h>

int command_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("quire %s\n", QUIRE_VERSION);
    return 0;
}
