# A Python wheel from an installed tree with its libraries. Source this file.

# quire_wheel PREFIX LICENCES OUT_DIR: quire_llm-VERSION-py3-none-manylinux_2_NN_ARCH.whl. `pip install` puts `quire` on
# the PATH, and `python -m quire` is the same. The program replaces the interpreter, so signals and status are its own.
quire_wheel() {
    local work info tag
    work=$(mktemp -d)
    info=$work/quire_llm-$version.dist-info
    tag=manylinux_$(quire_glibc "$1" | tr . _)_$(uname -m)
    mkdir -p "$work/quire/share" "$info" "$work/quire_llm-$version.data/data/share"
    cp -a "$1/bin" "$work/quire/bin"
    cp -a "$1/lib" "$work/quire/lib"
    rm -rf "$work/quire/lib/systemd"
    cp -a "$1/share/quire/demo" "$work/quire/share/demo"
    cp -a "$1/share/man" "$1/share/doc" "$1/share/bash-completion" "$1/share/zsh" "$1/share/fish" "$work/quire_llm-$version.data/data/share/"
    cat >"$work/quire/__init__.py" <<'END'
"""The program quire, an LLM inference server: `python -m quire`, or `quire` on the PATH."""

import pathlib

_HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = str(_HERE / "bin" / "quire")
DEMO_MODEL = str(_HERE / "share" / "demo")  # a few million parameters: quire generate DEMO_MODEL
END
    cat >"$work/quire/__main__.py" <<'END'
"""Runs the program in place of the interpreter."""

import os
import sys

from quire import PROGRAM


def main():
    os.execv(PROGRAM, ["quire", *sys.argv[1:]])


if __name__ == "__main__":
    main()
END
    printf '[console_scripts]\nquire = quire.__main__:main\n' >"$info/entry_points.txt"
    cp LICENSE "$info/LICENSE"
    cp "$2" "$info/THIRD-PARTY.txt"
    printf 'Wheel-Version: 1.0\nGenerator: tools/package.sh\nRoot-Is-Purelib: false\nTag: py3-none-%s\n' "$tag" >"$info/WHEEL"
    {
        printf 'Metadata-Version: 2.1\nName: quire-llm\nVersion: %s\n' "$version"
        printf 'Summary: LLM inference server in C, bit-reproducible under load\nLicense: Apache-2.0\nRequires-Python: >=3.8\n'
        printf 'Classifier: Operating System :: POSIX :: Linux\nDescription-Content-Type: text/markdown\n\n'
        sed '/^<!-- performance/,/^<!-- end/d; /<img /d' README.md
    } >"$info/METADATA"
    quire_set_times "$work"
    /usr/bin/python3 -m wheel pack -d "$3" "$work" >/dev/null
    rm -rf "$work"
}
