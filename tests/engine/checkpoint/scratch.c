#include "scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        abort();
    }
}

static void path_of(const struct scratch *s, const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", s->dir, name);
}

void scratch_open(struct scratch *s)
{
    snprintf(s->dir, sizeof s->dir, "/tmp/quire-checkpoint-XXXXXX");
    must(mkdtemp(s->dir) != NULL, "mkdtemp");
}

void scratch_write(const struct scratch *s, const char *name, const void *data, size_t n)
{
    char path[512];
    path_of(s, name, path);
    FILE *file = fopen(path, "wb");
    must(file != NULL, path);
    must(n == 0 || fwrite(data, 1, n, file) == n, path);
    must(fclose(file) == 0, path);
}

void scratch_remove(const struct scratch *s, const char *name)
{
    char path[512];
    path_of(s, name, path);
    must(unlink(path) == 0, path);
}

void scratch_close(struct scratch *s)
{
    DIR *dir = opendir(s->dir);
    must(dir != NULL, s->dir);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            scratch_remove(s, entry->d_name);
    closedir(dir);
    must(rmdir(s->dir) == 0, s->dir);
}

unsigned char *scratch_image(const char *header, size_t n_data, size_t *n)
{
    size_t n_header = strlen(header), padded = (n_header + 7) / 8 * 8;
    *n = 8 + padded + n_data;
    unsigned char *image = malloc(*n);
    must(image != NULL, "malloc");
    for (size_t i = 0; i < 8; i++)
        image[i] = (unsigned char)(padded >> 8 * i);
    memset(image + 8, ' ', padded);
    memcpy(image + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++)
        image[8 + padded + i] = (unsigned char)i;
    return image;
}
