/* Reads prompts, each ended by a NUL, and prints "complexity|words|indicator" for each: for rule_test.py. */
#include "server/gateway/route/route.h"

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    static const char *const names[] = {
        [ROUTE_SIMPLE] = "simple", [ROUTE_MODERATE] = "moderate", [ROUTE_COMPLEX] = "complex"};
    char *prompt = NULL;
    size_t capacity = 0;
    for (ssize_t n; (n = getdelim(&prompt, &capacity, '\0', stdin)) > 0;) {
        struct route_reading r;
        route_read(prompt, (size_t)n - 1, &r);
        printf("%s|%u|%s\n", names[r.complexity], r.n_words, r.indicator ? r.indicator : "");
    }
    free(prompt);
    return 0;
}
