#!/usr/bin/env bash
# Checks who includes whom (docs/architecture.md draws it) and that no file outgrows one job.
set -u
cd "$(dirname "$0")/.." || exit 1
bad=0
complain() { printf 'rooms: %s\n' "$*" >&2; bad=1; }

# room: rooms it may include besides its own
allowed() {
    case $1 in
        base) echo "" ;;
        request | memory | kernels) echo "base" ;;
        scheduler) echo "memory base" ;;
        text) echo "base" ;;
        engine) echo "scheduler memory kernels text request base" ;;
        server/wire) echo "request base" ;;
        server/front) echo "text server/wire request base" ;;
        server/daemon) echo "engine server/wire request base" ;;
        *) echo "none" ;;
    esac
}
room_of() { case $1 in server/*) echo "$1" | cut -d/ -f1,2 ;; *) echo "${1%%/*}" ;; esac; }

for room in base request memory scheduler kernels text engine server/wire server/front server/daemon; do
    may=" $room $(allowed "$room") "
    while IFS=: read -r file include; do
        case $include in */*) ;; *) complain "$file includes \"$include\" without its room"; continue ;; esac
        other=$(room_of "$include")
        case $may in *" $other "*) ;; *) complain "$file ($room) may not include $include ($other)" ;; esac
    done < <(git ls-files "$room/*.c" "$room/*.h" "$room/*.cu" "$room/*.cuh" | xargs -r grep -HoE '^ *# *include +"[^"]+"' | sed -E 's/: *# *include +"([^"]+)"/:\1/')
done

# The pure rooms know no clock, thread, I/O or device.
for file in $(git ls-files 'memory/*.c' 'memory/*.h' 'scheduler/*.c' 'scheduler/*.h'); do
    if grep -nE '#include <(time|pthread|stdio|unistd|threads|sys/.*|fcntl|signal)\.h>' "$file" >&2; then
        complain "$file is in a pure room"
    fi
done

# CUDA, and the emulator behind its headers' names, are known in one folder.
if git ls-files '*.c' '*.h' '*.cu' '*.cuh' | grep -vE '^(kernels/cuda|tests)/' | xargs -r grep -nE '# *include +<(cuda|cublas|simt)' >&2; then
    complain "CUDA's headers are for kernels/cuda only"
fi

while read -r lines file; do
    [ "$file" = total ] || [ "$lines" -le 900 ] || complain "$file has $lines lines: more than one job?"
done < <(git ls-files '*.c' '*.h' '*.rs' '*.cu' '*.cuh' '*.cc' | xargs -r wc -l)

for entry in $(git ls-files | cut -d/ -f1 | sort -u); do
    case $entry in
        base | engine | kernels | memory | request | scheduler | server | text | tests | tools | docs | packaging) ;;
        README.md | LICENSE | CHANGELOG.md | CONTRIBUTING.md | CMakeLists.txt | CMakePresets.json | .gitignore | .dockerignore | .ci | .clang-format) ;;
        *) complain "$entry does not belong at the top" ;;
    esac
done
[ $bad = 0 ] && echo "rooms: every arrow points down"
exit $bad
