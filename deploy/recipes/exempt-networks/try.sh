#!/bin/sh
# Sends 6 requests from an address of each network.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

six() { for _ in 1 2 3 4 5 6; do ask -H "x-forwarded-for: $1" "$url/"; done; }

echo "a customer, 203.0.113.7:$(six 203.0.113.7)"
echo "a partner, 192.0.2.7:$(six 192.0.2.7)"
echo "the company, 10.1.2.3:$(six 10.1.2.3)"
echo "a customer who forges the header:$(ask -H 'x-forwarded-for: 10.1.2.3, 203.0.113.7' "$url/")"
