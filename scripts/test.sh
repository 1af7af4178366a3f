#!/usr/bin/env bash
# scripts/test.sh GO_TEST...   runs all tests with the command GO_TEST
#
# The tests of the code run at once; those of the other modules of the repository, such as
# test/page, follow. The tests of the program against real servers run alone, because
# they measure time. The tools that render and check the manifests
# in deploy/ are built beside them, at the lowest priority so that tests of time
# keep the processors; the tests of the manifests follow. The exit code is 0 only
# if all tests pass.
#
# Tests that drive whole processes or a browser wait for a busy machine as long as they can. One that
# fails there runs once more, alone, and a line FLAKY names it if it then passes. A data race, a panic and
# a failed test of the code itself are never tried again.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
nice -n 19 make -s manifest-tools >"$log" 2>&1 &
tools=$!
trap 'kill "$tools" 2>/dev/null; rm -f "$log"' EXIT

# processes FOLDER PACKAGES GO_TEST... tests the packages of the module in a folder, with that second try.
processes() (
	cd "$1" && go list "$2" | grep -q . || { echo "FAIL	$1"; exit 1; }
	folder=$1 packages=$2 log=$(mktemp)
	shift 2
	trap 'rm -f "$log"' EXIT
	"$@" "$packages" 2>&1 | tee "$log" && exit 0
	failed=$(sed -n 's/^--- FAIL: \([A-Za-z0-9_]*\) .*/\1/p' "$log" | sort -u | paste -sd '|')
	# The log also has what the program has printed, which tests indent.
	if [ -z "$failed" ] || grep -qE 'WARNING: DATA RACE|^ *panic: ' "$log" || ! "$@" -run "^($failed)\$" "$packages"; then
		echo "FAIL	$folder"
		exit 1
	fi
	echo "FLAKY	$folder: $failed failed once, and passed alone"
)
export -f processes

status=0
packages=$(go list ./... | grep -v '/test/\(deploy\|integration\)$') || exit 1
# shellcheck disable=SC2086 # one word for each package
"$@" $packages || status=1
# The first module is the service itself, whose packages are tested here in three parts.
# Each of the others is one package or two; two modules are tested at once, but for test/exact:
# its callers keep the servers so busy that they seem silent beside other tests.
(cd test/exact && "$@" ./...) || { echo "FAIL	./test/exact"; status=1; }
# shellcheck disable=SC2016 # bash -c expands them
scripts/modules.sh | sed '1d; /\/exact$/d' | xargs -P 2 -I '{}' bash -o pipefail -c 'processes "$0" ./... "$@"' '{}' "$@" || status=1
processes . ./test/integration "$@" || status=1

# Once more, if a download has broken off.
if wait "$tools" || make -s manifest-tools >"$log" 2>&1; then
	"$@" ./test/deploy || status=1
else
	cat "$log"
	echo "FAIL	make manifest-tools"
	status=1
fi
exit "$status"
