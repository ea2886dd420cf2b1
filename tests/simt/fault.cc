/* The list of faults. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tests/simt/image.h"
#include "tests/simt/state.h"

namespace simt
{

static std::mutex fault_mutex;
static std::vector<std::string> faults;
static std::set<std::pair<std::string, const void *>> reported;

/* Returns file:line of a return address, and where it was inlined, from binutils' addr2line if it is installed. */
static std::string place_of(const void *code)
{
    if (!code)
        return "-";
    char command[160], line[512];
    uintptr_t address = (uintptr_t)code - 1 - image().base;
    snprintf(command, sizeof command, "addr2line -s -i -e /proc/%d/exe %#lx 2>/dev/null", (int)getpid(), address);
    std::string place;
    FILE *f = popen(command, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n (")] = 0;
        place += (place.empty() ? "" : " in ") + std::string(line);
    }
    if (f)
        pclose(f);
    snprintf(line, sizeof line, "code %#lx", address);
    return place.empty() ? line : place;
}

void fault(const char *kind, bool fatal, const void *code, const char *format, ...)
{
    Fiber *f = this_fiber();
    {
        std::lock_guard<std::mutex> lock(fault_mutex);
        bool is_new = reported.insert({kind, code}).second;
        if (is_new || fatal) {
            char text[512], who[96] = "host";
            va_list args;
            va_start(args, format);
            vsnprintf(text, sizeof text, format, args);
            va_end(args);
            if (f) {
                const uint3 &b = f->block->block_idx;
                snprintf(who, sizeof who, "block (%u,%u,%u) thread %u", b.x, b.y, b.z, f->index);
            }
            faults.push_back(std::string(kind) + " at " + place_of(code) + " by " + who + ": " + text);
        }
    }
    if (!fatal)
        return;
    if (!f) {
        fprintf(stderr, "%s\n", faults.back().c_str());
        abort();
    }
    abandon_block(f->block);
}

std::vector<std::string> take_faults()
{
    std::lock_guard<std::mutex> lock(fault_mutex);
    reported.clear();
    return std::exchange(faults, {});
}

} // namespace simt
