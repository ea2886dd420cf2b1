/* Runs a fuzz target over every file of a directory: regression tests without libFuzzer. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each input in a block of exactly its size, so that a sanitizer sees a read past its end. */
static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        return 1;
    }
    long n = ftell(file);
    rewind(file);
    uint8_t *data = n < 0 ? NULL : malloc(n > 0 ? (size_t)n : 1);
    if (!data || fread(data, 1, (size_t)n, file) != (size_t)n) {
        perror(path);
        return 1;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, (size_t)n);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int n = 0, failed = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS-DIRECTORY\n", argv[0]);
        return 2;
    }
    DIR *dir = opendir(argv[1]);
    if (!dir) {
        perror(argv[1]);
        return 1;
    }
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        failed |= replay(path);
        n++;
    }
    closedir(dir);
    printf("%d inputs\n", n);
    return failed || n == 0;
}
