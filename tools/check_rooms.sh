#!/usr/bin/env bash
# Checks who sees and who calls whom (docs/internals/architecture.md draws it), and that no folder and no file outgrows one job.
exec python3 -B "$(dirname "$0")/rooms.py"
