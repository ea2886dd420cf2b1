#include "server/front/ollama/ollama.h"

#include <stdio.h>
#include <time.h>

void ollama_time(char out[OLLAMA_TIME_BYTES])
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    const size_t n = strftime(out, OLLAMA_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out + n, OLLAMA_TIME_BYTES - n, ".%09ldZ", now.tv_nsec);
}
