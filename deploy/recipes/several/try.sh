#!/bin/sh
# Sends 6 requests, and shows the limit that denied the last one.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

# The service's headers of an answer. They are of the limit with the least left.
limit() {
	curl -s -o /dev/null -D - "$@" | while IFS=": $(printf '\r')" read -r name value; do
		case $name in ratelimit-limit | ratelimit-remaining) echo "$name: $value" ;; esac
	done
}

echo "6 requests of ann:$(for _ in 1 2 3 4 5 6; do ask -H 'x-api-key: ann' "$url/"; done)"
limit -H 'x-api-key: ann' "$url/"
