#!/usr/bin/env bash
# scripts/vulncheck.sh   reports known vulnerabilities that the code can reach
#
# govulncheck reads the Go vulnerability database at GOVULNDB: https://vuln.go.dev, or
# a copy of it in a folder (file:///path, with the files of data/osv in
# golang.org/x/vulndb). It checks the code, the modules and the standard library. The
# exit code is not 0 if there is a vulnerability. Without the database nothing can be
# checked: the last line of the output then begins with SKIPPED, and the exit code is
# 0, or with VULNCHECK=required 1.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
scripts/modules.sh go tool -modfile="$PWD/tools/vuln.mod" govulncheck ${GOVULNDB:+-db "$GOVULNDB"} ./... >"$log" 2>&1 || status=$?
cat "$log"
if [ "$status" = 1 ] && grep -q '^govulncheck: fetching vulnerabilities: ' "$log"; then
	echo "SKIPPED	govulncheck: the vulnerability database cannot be reached, so NOTHING IS KNOWN about vulnerabilities; run make lint where it can be, or set GOVULNDB=file:///a/copy"
	[ "${VULNCHECK:-}" = required ] || status=0
fi
exit "$status"
