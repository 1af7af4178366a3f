#!/bin/sh
# Sends requests with the keys of ann and bob, with a wrong key and without one.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

echo "ann:$(for _ in 1 2 3 4 5 6 7 8 9 10 11; do ask -H 'x-api-key: key-of-ann' "$url/"; done)"
echo "bob:$(ask -H 'x-api-key: key-of-bob' "$url/")"
echo "a wrong key:$(ask -H 'x-api-key: guessed' "$url/")"
echo "no key:$(ask "$url/")"
echo "ann claims to be bob:$(ask -H 'x-api-key: key-of-ann' -H 'x-client: bob' "$url/")"
