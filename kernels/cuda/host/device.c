/* Selects a GPU, checks its requirements and describes it. */
#include "kernels/cuda/host/device.h"
#include "kernels/cuda/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_CAPABILITY 80 /* mma.m16n8k16 and cp.async: Ampere and later */

static int parse_device(const char *device, int *out, struct quire_error *err)
{
    *out = 0;
    if (strncmp(device, "cuda:", 5) != 0)
        return QUIRE_OK;
    const char *digits = device + 5;
    char *end;
    long n = strtol(digits, &end, 10);
    if (digits[0] < '0' || digits[0] > '9' || *end != '\0' || n > 1023)
        return quire_fail(err, QUIRE_INVALID, "the number of a GPU must follow the colon, as in cuda:0");
    *out = (int)n;
    return QUIRE_OK;
}

/* The kernel module's version, "580.65.06"; CUDA itself does not tell it. Empty where it cannot be read. */
static void read_driver_version(char *out, size_t bytes)
{
    char line[256];
    FILE *file = fopen("/proc/driver/nvidia/version", "r");
    out[0] = '\0';
    if (!file)
        return;
    if (fgets(line, sizeof line, file)) {
        char *rest = line;
        for (char *word; (word = strtok_r(rest, " \t\n", &rest)) && out[0] == '\0';) {
            size_t n = strspn(word, "0123456789.");
            if (n >= 5 && word[n] == '\0' && strchr(word, '.'))
                snprintf(out, bytes, "%s", word);
        }
    }
    fclose(file);
}

/* "580.65.06 / CUDA 13.0" */
static void name_driver(int version, char *out, size_t bytes)
{
    char module[32];
    read_driver_version(module, sizeof module);
    snprintf(out, bytes, "%s%sCUDA %d.%d", module, module[0] ? " / " : "", version / 1000, version % 1000 / 10);
}

/* The first call that needs the driver: it says whether there is one, and whether it is new enough. */
static int count_devices(int *n, int *driver, struct quire_error *err)
{
    int runtime = CUDART_VERSION;
    char name[64];
    *driver = 0;
    cudaError_t error = cudaDriverGetVersion(driver);
    if (error != cudaSuccess || *driver == 0)
        return quire_fail(err, QUIRE_UNSUPPORTED, "no NVIDIA driver on this machine");
    name_driver(*driver, name, sizeof name);
    error = cudaGetDeviceCount(n);
    if (error == cudaErrorInsufficientDriver)
        return quire_fail(err, QUIRE_UNSUPPORTED,
                          "the NVIDIA driver is too old: it is %s, and this build needs one of CUDA %d.%d", name,
                          runtime / 1000, runtime % 1000 / 10);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && *n == 0)) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        return quire_fail(err, QUIRE_UNSUPPORTED, "no NVIDIA GPU on this machine%s%.40s (driver %s)",
                          visible ? " within CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "", name);
    }
    if (error != cudaSuccess)
        return quire_fail(err, QUIRE_UNSUPPORTED, "the NVIDIA driver (%s) does not answer: %s", name,
                          cudaGetErrorString(error));
    return QUIRE_OK;
}

static int ask(int device, struct cudaDeviceProp *prop, struct quire_error *err)
{
    cudaError_t error = cudaGetDeviceProperties(prop, device);
    return error == cudaSuccess ? QUIRE_OK
                                : quire_fail(err, QUIRE_UNSUPPORTED, "GPU %d: cannot be asked what it is: %s", device,
                                             cudaGetErrorString(error));
}

/* The caller's choice among GPUs [*device, n). */
static int have_chosen(const struct k_gpu_choice *choice, int n, int *device, struct quire_error *err)
{
    struct k_gpu_id seen[K_MAX_GPUS];
    struct cudaDeviceProp prop;
    uint32_t n_seen = 0, chosen;
    _Static_assert(sizeof prop.uuid.bytes == sizeof seen[0].bytes, "an id of 16 bytes");
    for (int d = *device; d < n && n_seen < K_MAX_GPUS; d++, n_seen++) {
        int status = ask(d, &prop, err);
        if (status != QUIRE_OK)
            return status;
        memcpy(seen[n_seen].bytes, prop.uuid.bytes, sizeof seen[n_seen].bytes);
    }
    int status = choice->choose(choice->context, seen, n_seen, &chosen, err);
    if (status == QUIRE_OK)
        *device += (int)chosen;
    return status;
}

/* The kernel's name in a text like "... k_loadable_of<kernel>::name() [with auto kernel = NAME]". */
static const char *name_of_kernel(const char *text)
{
    const char *at = strstr(text, "kernel = ");
    return at ? at + strlen("kernel = ") : text;
}

/* A kernel that does not load makes the GPU unusable: an answer would fail in the middle. QUIRE_CUDA_LOAD=lenient opens it all
 * the same, and its description names the kernel, so that tools/gpu_check.sh can test the others. */
static int load_kernels(struct cuda_backend *c, const struct cudaDeviceProp *prop, struct quire_error *err)
{
    const char *name = "", *wish = getenv("QUIRE_CUDA_LOAD");
    cudaError_t error = launch_load_all(&name);
    if (error == cudaSuccess)
        return QUIRE_OK;
    name = name_of_kernel(name);
    if (!wish || strcmp(wish, "lenient") != 0)
        return quire_fail(err, QUIRE_UNSUPPORTED, "GPU %d, %s, does not load the kernel %.80s of this build: %s",
                          c->device, prop->name, name, cudaGetErrorString(error));
    cudaGetLastError(); /* reported here, and not by the next call */
    snprintf(c->not_loaded, sizeof c->not_loaded, ", NOT LOADED: %.40s (%s)", name, cudaGetErrorName(error));
    return QUIRE_OK;
}

static int choose(struct cuda_backend *c, const struct k_backend_options *options, struct cudaDeviceProp *prop,
                  int *driver, struct quire_error *err)
{
    int n;
    int status = parse_device(options->device, &c->device, err);
    if (status == QUIRE_OK)
        status = count_devices(&n, driver, err);
    if (status != QUIRE_OK)
        return status;
    if (c->device >= n)
        return quire_fail(err, QUIRE_UNSUPPORTED, "this machine shows %d GPU%s, numbered from 0", n, n == 1 ? "" : "s");
    if (options->choice)
        status = have_chosen(options->choice, n, &c->device, err);
    if (status == QUIRE_OK)
        status = ask(c->device, prop, err);
    if (status != QUIRE_OK)
        return status;
    c->compute_capability = prop->major * 10 + prop->minor;
    c->n_sms = (uint32_t)prop->multiProcessorCount;
    c->shared_bytes = (uint32_t)prop->sharedMemPerBlockOptin;
    if (c->compute_capability < LEAST_CAPABILITY)
        return quire_fail(err, QUIRE_UNSUPPORTED, "GPU %d, %s, is sm_%d: the kernels need sm_%d or later", c->device,
                          prop->name, c->compute_capability, LEAST_CAPABILITY);
    /* Makes the context: where another process has the GPU for itself, or its memory is full, it shows here. */
    cudaError_t error = cudaSetDevice(c->device);
    if (error != cudaSuccess)
        return quire_fail(err, QUIRE_UNSUPPORTED, "GPU %d, %s, cannot be used: %s", c->device, prop->name,
                          cudaGetErrorString(error));
    return load_kernels(c, prop, err);
}

int cuda_device_open(struct cuda_backend *c, const struct k_backend_options *options, struct quire_error *err)
{
    struct cudaDeviceProp prop = {0};
    size_t available, total;
    char name[64];
    int driver;
    int status = choose(c, options, &prop, &driver, err);
    cudaError_t error = cudaSuccess;
    if (status == QUIRE_OK)
        error = cudaMemGetInfo(&available, &total);
    if (error != cudaSuccess)
        status = quire_fail(err, QUIRE_UNSUPPORTED, "GPU %d, %s, does not tell its memory: %s", c->device, prop.name,
                            cudaGetErrorString(error));
    if (status != QUIRE_OK) {
        cudaGetLastError(); /* refused, and not the next caller's error */
        return status;
    }
    name_driver(driver, name, sizeof name);
    snprintf(c->description, sizeof c->description, "%s, sm_%d, %u SMs, %.1f GiB, driver %s%s", prop.name,
             c->compute_capability, c->n_sms, (double)total / (1 << 30), name, c->not_loaded);
    snprintf(c->placement, sizeof c->placement, "GPU %d at %04x:%02x:%02x", c->device, (unsigned)prop.pciDomainID,
             (unsigned)prop.pciBusID, (unsigned)prop.pciDeviceID);
    return QUIRE_OK;
}

int cuda_memory(struct k_backend *b, uint64_t *total, uint64_t *available, struct quire_error *err)
{
    size_t n_available, n_total;
    int status = cuda_eager(b, "memory", err);
    if (status == QUIRE_OK)
        status = cuda_check(b, cudaMemGetInfo(&n_available, &n_total), "asking for the GPU's memory", err);
    if (status != QUIRE_OK)
        return status;
    *available = n_available;
    *total = n_total;
    return QUIRE_OK;
}
