#!/usr/bin/env bash
# scripts/versions.sh   checks that all modules of the repository require the same version
# of a library, so that tests and tools see the libraries that the service is built with
set -euo pipefail
cd "$(dirname "$0")/.."

# A line has the module, the library and its version.
scripts/modules.sh awk '$1 == "module" { module = $2 } { sub("^require ", "") } $2 ~ "^v[0-9]" { print module, $1, $2 }' go.mod |
	awk '
		$2 in version && version[$2] != $3 { print $2 ": " version[$2] " in " module[$2] ", " $3 " in " $1 ": go get the newer one in both"; status = 1 }
		!($2 in version) { version[$2] = $3; module[$2] = $1 }
		END { if (NR < 20) { print "versions: only " NR " requirements found"; status = 1 }; exit status }'
