#!/usr/bin/env bash
# scripts/test.sh GO_TEST...   runs all tests with the command GO_TEST
#
# The tests of the code run at once. The tests of the program against real servers
# follow alone, because they measure time. The tools that render and check the manifests
# in deploy/ are built beside them, at the lowest priority so that tests of time
# keep the processors; the tests of the manifests follow. The exit code is 0 only
# if all tests pass.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
nice -n 19 make -s manifest-tools >"$log" 2>&1 &
tools=$!
trap 'kill "$tools" 2>/dev/null; rm -f "$log"' EXIT

status=0
packages=$(go list ./... | grep -v '/test/\(deploy\|integration\)$') || exit 1
# shellcheck disable=SC2086 # one word for each package
"$@" $packages || status=1
"$@" ./test/integration || status=1

# Once more, if a download has broken off.
if wait "$tools" || make -s manifest-tools >"$log" 2>&1; then
	"$@" ./test/deploy || status=1
else
	cat "$log"
	echo "FAIL	make manifest-tools"
	status=1
fi
exit "$status"
