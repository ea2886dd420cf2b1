#!/usr/bin/env bash
# Checks which modules include and call each other (docs/internals/architecture.md draws it), and the sizes of folders
# and files.
exec python3 -B "$(dirname "$0")/modules.py"
