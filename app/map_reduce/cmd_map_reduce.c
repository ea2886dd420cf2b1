#include "app/command/commands.h"
int command_map_reduce(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return 2;
}
