#include "tests/fault.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The linker redirects the program's allocations to these (--wrap). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
char *__wrap_strdup(const char *text);
int __wrap_asprintf(char **out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static atomic_long countdown = -1; /* the allocation that finds 0 fails; negative: none fails */
static atomic_bool failed;
static atomic_long n_allocations;

static bool fails_now(void)
{
    atomic_fetch_add(&n_allocations, 1);
    if (atomic_load(&countdown) < 0 || atomic_fetch_sub(&countdown, 1) != 0)
        return false;
    atomic_store(&failed, true);
    return true;
}

void fault_at(long n)
{
    atomic_store(&failed, false);
    atomic_store(&countdown, n);
}

bool fault_end(void)
{
    atomic_store(&countdown, -1);
    return atomic_load(&failed);
}

long fault_n_allocations(void)
{
    return atomic_load(&n_allocations);
}

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    return fails_now() ? NULL : __real_realloc(p, size);
}

char *__wrap_strdup(const char *text)
{
    return fails_now() ? NULL : __real_strdup(text);
}

int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = fails_now() ? -1 : vasprintf(out, format, args);
    va_end(args);
    return n;
}
