/* Tests how libquire_cuda.so is found and which errors unusable libraries give, with substitute libraries. The loader
 * caches names, so each case runs in its own process.
 *
 * cuda_library_test FOLDER: the folder of the libraries. The program must have a bin/ folder of its own. */
#include "kernels/backend.h"
#include "kernels/open.h"
#include "kernels/planner.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *fakes;
static char bin[PATH_MAX], lib[PATH_MAX]; /* the program's folder, and ../lib */

static void put(const char *folder, const char *fake)
{
    char from[2 * PATH_MAX], to[2 * PATH_MAX];
    snprintf(to, sizeof to, "%s/libquire_cuda.so", folder);
    unlink(to);
    if (!fake)
        return;
    snprintf(from, sizeof from, "%s/%s.so", fakes, fake);
    assert_int_equal(symlink(from, to), 0);
}

/* Returns 0, or 1 after printing a line. */
static int expect(const char *device, int status, const char *name, const char *text)
{
    struct k_backend *b;
    struct quire_error err = {.text = ""};
    const char *why = "";
    struct k_backend_options options = {.device = device, .n_threads = 1};
    int got = k_backend_open(&options, &b, &why, &err);
    const char *said = got == QUIRE_OK ? why : err.text;
    bool ok = got == status && strstr(said, text) && (got != QUIRE_OK || strcmp(b->ops->planner->name, name) == 0);
    if (!ok)
        printf("%s: %d, \"%s\", and not %d, \"%s\"\n", device, got, said, status, text);
    if (got == QUIRE_OK)
        b->ops->close(b);
    fflush(stdout);
    return ok ? 0 : 1;
}

/* Checks the results of `cuda` and `auto` with one library next to the program and one in ../lib. */
static void check(const char *beside, const char *in_lib, bool opens, const char *text)
{
    put(bin, beside);
    put(lib, in_lib);
    pid_t child = fork();
    if (child == 0) {
        char on_cuda[PATH_MAX + 64], on_auto[PATH_MAX + 64];
        snprintf(on_cuda, sizeof on_cuda, "device cuda:0: %s", text);
        const bool has_gpu = access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
        snprintf(on_auto, sizeof on_auto, "cpu: %s", has_gpu ? text : "this machine has no NVIDIA GPU");
        if (opens)
            _exit(expect("cuda:0", QUIRE_OK, "cuda", "cuda: requested") ||
                  expect("auto", QUIRE_OK, "cuda", "cuda: a GPU is available"));
        _exit(expect("cuda:0", QUIRE_UNSUPPORTED, "", on_cuda) || expect("auto", QUIRE_OK, "cpu", on_auto));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    put(bin, NULL);
    put(lib, NULL);
}

static void test_places(void **state)
{
    (void)state;
    check(NULL, NULL, false, "no libquire_cuda.so next to the program, in ../lib or on the loader's path");
    check("fake_opens", NULL, true, NULL);
    check(NULL, "fake_opens", true, NULL);
    check("fake_opens", "fake_old", true, NULL); /* the nearer one wins */
}

static void test_libraries_that_will_not_do(void **state)
{
    (void)state;
    check("fake_old", "fake_opens", false, "libquire_cuda.so is from Quire 0.0.1, but this is Quire " QUIRE_VERSION);
    check("fake_empty", NULL, false, "libquire_cuda.so is not a Quire library");
    check("fake_no_driver", NULL, false, "no NVIDIA driver on this machine");
    char text[PATH_MAX + 32];
    snprintf(text, sizeof text, "%s/libquire_cuda.so: ", bin); /* followed by the loader's message */
    check("fake_broken", "fake_opens", false, text);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    fakes = argv[1];
    ssize_t n = readlink("/proc/self/exe", bin, sizeof bin - 1);
    while (n > 0 && bin[n - 1] != '/')
        n--;
    if (n <= 0 || (size_t)n + sizeof "../lib" > sizeof lib)
        return 2;
    bin[n - 1] = '\0';
    memcpy(lib, bin, (size_t)n);
    strcpy(lib + n - 1, "/../lib");
    if (mkdir(lib, 0777) != 0 && errno != EEXIST)
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_libraries_that_will_not_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
