#include "app/command/command.h"
#include "app/command/commands.h"
#include "kernels/open.h"
#include "tools/doctor/commit.h"

#include <stdio.h>

/* The backends that device auto tries, in its order, and the reference. ref and cpu are part of every build that has
 * the instructions. */
static json_t *backends_json(void)
{
    struct k_instruction_set set;
    json_t *list = json_array();
    if (k_cuda_library(NULL))
        json_array_append_new(list, json_string("cuda"));
    if (k_instruction_set_at(0, &set) && !set.lacks)
        json_array_append_new(list, json_string("cpu"));
    json_array_append_new(list, json_string("ref"));
    return list;
}

static json_t *instruction_sets_json(void)
{
    struct k_instruction_set set;
    json_t *list = json_array();
    for (uint32_t i = 0; k_instruction_set_at(i, &set); i++)
        json_array_append_new(
            list, json_pack("{s:s, s:b, s:s?}", "name", set.name, "usable", !set.lacks, "lacks", set.lacks));
    return list;
}

static void print_text(void)
{
    struct quire_error why;
    struct k_instruction_set set;
    const bool has_cuda = k_cuda_library(&why);
    const bool has_cpu = k_instruction_set_at(0, &set) && !set.lacks;
    printf("quire %s\n", QUIRE_VERSION);
    printf("commit        %s%s\n", QUIRE_COMMIT, QUIRE_IS_MODIFIED ? ", with changes" : "");
    printf("backends      %s%sref\n", has_cuda ? "cuda, " : "", has_cpu ? "cpu, " : "");
    if (!has_cuda)
        printf("              no cuda: %s\n", why.text);
    if (!k_instruction_set_at(0, &set))
        puts("instructions  the cpu backend has no kernels for this architecture");
    for (uint32_t i = 0; k_instruction_set_at(i, &set); i++)
        printf("%-13s %s%s%s\n", i ? "" : "instructions", set.name, set.lacks ? ": no, " : "",
               set.lacks ? set.lacks : "");
}

int command_version(int argc, char **argv)
{
    bool as_json = false;
    const struct cli_option options[] = {
        {.names = "json", .kind = CLI_FLAG, .target = &as_json, .help = "Print JSON."},
        {0},
    };
    const struct cli_command command = {
        .name = "version",
        .usage = "quire version [options]",
        .about =
            "Prints the version, the commit, the backends of this installation, and the instruction sets of the cpu\n"
            "backend that this machine has. Does not start a GPU's driver: quire doctor does.",
        .options = options,
    };
    int code;
    if (!command_begin(&command, argc, argv, &code))
        return code;
    if (as_json)
        return command_print_json(json_pack("{s:s, s:s, s:b, s:o, s:o}", "version", QUIRE_VERSION, "commit",
                                            QUIRE_COMMIT, "modified", QUIRE_IS_MODIFIED, "backends", backends_json(),
                                            "instruction_sets", instruction_sets_json()));
    print_text();
    return 0;
}
