#!/bin/sh
# Sends requests until one is denied, and shows the answer to it.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

echo "allowed:$(for _ in 1 2; do ask -H 'x-user: ann' "$url/orders"; done)"
echo 'denied:'
curl -s -w '\n%{http_code} %{content_type}\n' -H 'x-user: ann' "$url/orders"
