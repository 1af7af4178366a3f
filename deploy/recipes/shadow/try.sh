#!/bin/sh
# Sends more requests than the limit, and asks what remains of it.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

# What Envoy says of the limit in the headers of an answer.
remaining() {
	curl -s -o /dev/null -D - "$@" | while IFS=": $(printf '\r')" read -r name value; do
		case $name in x-ratelimit-remaining) echo " $value" ;; esac
	done
}

echo "3 requests of ann:$(for _ in 1 2 3; do ask -H 'x-user: ann' "$url/"; done)"
echo "2 more, over the limit:$(for _ in 1 2; do ask -H 'x-user: ann' "$url/"; done)"
echo "x-ratelimit-remaining:$(remaining -H 'x-user: ann' "$url/")"
