#!/bin/sh
# Sends exports, and then other requests.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

get() { ask -H "x-user: $1" "$url$2"; }

echo "4 exports of ann:$(for _ in 1 2 3 4; do get ann /export; done)"
echo "7 other requests of ann:$(for _ in 1 2 3 4 5 6 7; do get ann /; done)"
echo "an export of bob:$(get bob /export)"
