#!/bin/sh
# nvcc.sh LOG nvcc ARGUMENTS...: runs nvcc, saves its output in LOG and shows all lines except registers and spills.
# tools/check_ptxas.sh reads the logs.
log=$1
shift
"$@" >"$log" 2>&1
status=$?
grep -vE '^ptxas info|^ +[0-9]+ bytes stack frame' "$log" >&2
exit $status
