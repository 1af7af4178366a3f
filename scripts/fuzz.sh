#!/usr/bin/env bash
# Runs every fuzz target of every module for the time given: scripts/fuzz.sh 10s
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?how long each target runs}

# go test runs one fuzz target of one package at a time.
targets=$(scripts/modules.sh go list -f '{{.Dir}}{{range .TestGoFiles}} {{.}}{{end}}{{range .XTestGoFiles}} {{.}}{{end}}' ./... |
	while read -r dir files; do
		for file in $files; do
			sed -n "s|^func \(Fuzz[A-Za-z0-9_]*\)(.*|$dir \1|p" "$dir/$file"
		done
	done)
[ -n "$targets" ] || { echo "fuzz: no target found" >&2; exit 1; }

while read -r dir target; do
	echo "fuzz: $target in .${dir#"$PWD"} for $time"
	(cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" .)
done <<<"$targets"
