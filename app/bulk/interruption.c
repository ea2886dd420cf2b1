#include "app/bulk/interruption.h"

#include "app/bulk/job.h"

#include <signal.h>
#include <unistd.h>

static void on_signal(int number)
{
    static const char text[] = "quire: interrupted; run the same command again to continue\n";
    const ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
    (void)n, (void)number;
    _exit(JOB_EXIT_INTERRUPTED);
}

void interruption_says_so(void)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    struct sigaction ours = {.sa_handler = on_signal}, old;
    sigemptyset(&ours.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(numbers[i], &ours, NULL);
}
