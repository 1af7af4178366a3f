#!/bin/sh
# Tries passwords: of one account from two addresses, and of several from one.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

login() { ask -X POST -H "x-forwarded-for: $1" -H "x-account: $2" "$url/login"; }

echo "ann tries 5 passwords:$(for _ in 1 2 3 4 5; do login 203.0.113.1 ann; done)"
echo "and one from another address:$(login 203.0.113.2 ann)"
echo "the first address tries 4 of bob:$(for _ in 1 2 3 4; do login 203.0.113.1 bob; done)"
echo "and 2 of eve:$(for _ in 1 2; do login 203.0.113.1 eve; done)"
echo "other pages have no limit:$(ask -H 'x-forwarded-for: 203.0.113.1' "$url/help")"
