#!/bin/sh
# Sends requests from two addresses, as a load balancer passes them on.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

from() { ask -H "x-forwarded-for: $1" "$url/"; }

echo "203.0.113.7:$(for _ in 1 2 3 4 5 6; do from 203.0.113.7; done)"
echo "203.0.113.7, with a forged entry before it:$(from '198.51.100.1, 203.0.113.7')"
echo "203.0.113.8:$(from 203.0.113.8)"
