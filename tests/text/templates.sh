#!/usr/bin/env bash
# Compares text/ with Jinja2 on the chat templates of public model families. They come with a package's source, and are not
# committed: their licences differ.
#
#   tests/text/templates.sh FOLDER COMMAND ...     COMMAND runs templates_test.rs; FOLDER keeps what was downloaded
#
# 77: could not run here, because a download failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
shift
package=llama_cpp_python-0.3.36

not_here() {
    echo "could not run here, because $1 cannot be downloaded" >&2
    exit 77
}

mkdir -p "$folder"
if [ ! -x "$folder/venv/bin/python" ]; then
    python3 -m venv "$folder/venv.part"
    "$folder/venv.part/bin/pip" install -q --no-compile --disable-pip-version-check transformers==5.23.0 jinja2==3.1.6 || not_here transformers
    # pip's own programs name the folder; python does not.
    mv "$folder/venv.part" "$folder/venv"
fi
if [ ! -f "$folder/$package.tar.gz" ]; then
    "$folder/venv/bin/python" -m pip download -q --disable-pip-version-check --no-deps --no-binary :all: -d "$folder" \
        "${package/-/==}" || not_here "the source of $package"
fi
rm -rf "$folder/templates"
mkdir "$folder/templates"
tar xzf "$folder/$package.tar.gz" -C "$folder/templates" --strip-components=5 "$package/vendor/llama.cpp/models/templates"
"$folder/venv/bin/python" "$here/make_templates.py" "$folder/templates" "$folder/cases.json"
QUIRE_TEMPLATES=$folder/cases.json "$@"
