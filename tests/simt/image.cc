/* Finds the bytes of the thread-local segment that are kernels' shared memory, from the executable's symbol table. A
 * __shared__ variable is a thread_local in a function, whose mangled name begins with _ZZ. So is a thread_local in any
 * C++ function, so the executable must contain none outside kernels. Kernels in shared libraries are not supported. */
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simt/image.h"
#include "tests/simt/state.h"

namespace simt
{

[[noreturn]] static void give_up(const char *why)
{
    fprintf(stderr, "simt: %s\n", why);
    abort();
}

static int visit_executable(dl_phdr_info *info, size_t, void *out)
{
    Image *image = (Image *)out;
    image->base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &segment = info->dlpi_phdr[i];
        if (segment.p_type == PT_TLS)
            image->tls.resize(segment.p_memsz);
        if (segment.p_type == PT_LOAD) {
            uintptr_t begin = image->base + segment.p_vaddr;
            image->low = image->low ? image->low : begin;
            image->high = begin + segment.p_memsz;
        }
    }
    return 1; /* the first one is the executable; others are not needed */
}

static std::vector<char> read_executable()
{
    FILE *f = fopen("/proc/self/exe", "rb");
    if (!f || fseek(f, 0, SEEK_END))
        give_up("/proc/self/exe cannot be read");
    std::vector<char> bytes((size_t)ftell(f));
    rewind(f);
    if (fread(bytes.data(), 1, bytes.size(), f) != bytes.size())
        give_up("/proc/self/exe cannot be read");
    fclose(f);
    return bytes;
}

static void note_symbol(Image *image, const char *name, const Elf64_Sym &symbol)
{
    TlsKind kind = !strcmp(name, "k_shared")  ? TLS_DYNAMIC_SHARED
                   : !strncmp(name, "_ZZ", 3) ? TLS_STATIC_SHARED
                                              : TLS_HOST;
    memset(&image->tls[symbol.st_value], kind, symbol.st_size);
    if (kind == TLS_STATIC_SHARED)
        image->static_shared.push_back({symbol.st_value, symbol.st_size});
}

static Image read_image()
{
    Image image = {};
    dl_iterate_phdr(visit_executable, &image);
    std::vector<char> file = read_executable();
    auto *header = (const Elf64_Ehdr *)file.data();
    auto *sections = (const Elf64_Shdr *)(file.data() + header->e_shoff);
    bool has_symbols = false;
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB)
            continue;
        auto *symbols = (const Elf64_Sym *)(file.data() + sections[i].sh_offset);
        const char *names = file.data() + sections[sections[i].sh_link].sh_offset;
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++)
            if (ELF64_ST_TYPE(symbols[k].st_info) == STT_TLS && symbols[k].st_size)
                note_symbol(&image, names + symbols[k].st_name, symbols[k]);
        has_symbols = true;
    }
    if (!has_symbols)
        give_up("the executable has no symbol table: do not strip it");
    return image;
}

const Image &image()
{
    static const Image the_image = read_image();
    return the_image;
}

char *image_tls()
{
    void *tls = nullptr;
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *out) {
            *(void **)out = info->dlpi_tls_data;
            return 1;
        },
        &tls);
    return (char *)tls;
}

} // namespace simt
