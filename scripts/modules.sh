#!/usr/bin/env bash
# scripts/modules.sh COMMAND...   runs a command in the folder of each module
# scripts/modules.sh              prints these folders
#
# Every folder with a go.mod is a module, so that none is left out: the service, and the
# tests and tools that need libraries which the service does not. The command runs in
# all of them; the exit code is the highest of its exit codes.
set -uo pipefail
cd "$(dirname "$0")/.."

modules=$(find . -path './.?*' -prune -o -name go.mod -exec dirname {} \; | sort)
[ -n "$modules" ] || { echo "modules: no go.mod found" >&2; exit 1; }
[ $# -gt 0 ] || { echo "$modules"; exit; }

status=0
for module in $modules; do
	code=0
	(cd "$module" && "$@") || code=$?
	[ "$code" -eq 0 ] || echo "modules: exit code $code in $module: $*" >&2
	[ "$code" -le "$status" ] || status=$code
done
exit "$status"
