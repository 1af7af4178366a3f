#!/usr/bin/env bash
# scripts/check.sh   answers whether a change holds, in minutes: builds all code, vets it,
# lints the packages that differ from BASE (a commit, HEAD by default), and runs the fast
# tests: those of pkg, internal and cmd that start no real server. Packages whose results
# are in Go's cache are not tested again.
set -euo pipefail
cd "$(dirname "$0")/.."

go build -pgo=off ./...
go vet ./...
changed=$({ git diff --name-only "${BASE:-HEAD}"; git ls-files --others --exclude-standard; } |
	sed -n 's|/[^/]*\.go$||p' | sort -u)
folders=()
for folder in $changed; do # not of other modules, nor of packages that have gone
	[ -d "$folder" ] && go list "./$folder" >/dev/null 2>&1 && folders+=("./$folder")
done
[ ${#folders[@]} -eq 0 ] || $GOLANGCI_LINT run "${folders[@]}"
go test -short -vet=off ./pkg/... ./internal/... ./cmd/... | { grep -v '\[no test files\]' || true; }
echo "check: ok, without the tests that start redis-server, redis-sentinel, valkey-server, memcached or envoy, those of test/ and the other modules, and the race detector: make test runs all"
