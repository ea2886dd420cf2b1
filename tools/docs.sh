#!/usr/bin/env bash
# Builds the documentation's site into build/site; build/site/index.html opens without a server and without a network.
#
#   bash tools/docs.sh            build; a broken link or heading is an error
#   bash tools/docs.sh serve      build again at every change, and serve on http://127.0.0.1:8008
#
# The generator is mkdocs-material from PyPI, pinned in tools/docs/requirements.txt, in build/docs-venv.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh
quire_setup_docs
export NO_MKDOCS_2_WARNING=1
if [ "${1:-}" = serve ]; then
    exec build/docs-venv/bin/mkdocs serve -q -f tools/docs/mkdocs.yml -a 127.0.0.1:8008
fi
build/docs-venv/bin/mkdocs build -q --strict --clean -f tools/docs/mkdocs.yml
quire_say "the site is in build/site: open build/site/index.html"
