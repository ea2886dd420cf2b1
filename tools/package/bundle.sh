# Makes an installed tree independent of the distribution's libraries. Source this file.

# Libraries that every distribution with a new enough C library has, in every installation (PEP 600's list is longer).
QUIRE_EVERYWHERE="ld-linux-*|libc.so.*|libm.so.*|libdl.so.*|libpthread.so.*|librt.so.*|libresolv.so.*|libgcc_s.so.*|libstdc++.so.*"

# quire_needed PREFIX: the paths of the libraries that PREFIX/bin/quire and PREFIX/lib/*.so load and not every
# distribution has, those of libraries included.
quire_needed() {
    ldd "$1"/bin/quire $(ls "$1"/lib/*.so 2>/dev/null) | awk '$3 ~ /^\// { print $3 }' | sort -u | while read -r library; do
        eval "case ${library##*/} in $QUIRE_EVERYWHERE) ;; *) echo '$library' ;; esac"
    done
}

# quire_bundle PREFIX LIBRARY...: copies the libraries into PREFIX/lib/quire, where the program finds them, wherever
# PREFIX is moved to.
quire_bundle() {
    local prefix=$1 library
    shift
    mkdir -p "$prefix/lib/quire"
    for library in "$@"; do
        cp -L "$library" "$prefix/lib/quire/"
        chmod 644 "$prefix/lib/quire/${library##*/}"
        patchelf --set-rpath '$ORIGIN' "$prefix/lib/quire/${library##*/}"
    done
    patchelf --set-rpath '$ORIGIN/../lib/quire' "$prefix/bin/quire"
}

# quire_glibc PREFIX: the version of the C library that the files of PREFIX need, such as 2.36.
quire_glibc() {
    find "$1" -type f \( -name quire -o -name '*.so*' \) -exec objdump -T {} + 2>/dev/null | grep -oE 'GLIBC_2\.[0-9]+' |
        sed 's/GLIBC_//' | sort -uV | tail -1
}
