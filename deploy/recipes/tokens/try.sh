#!/bin/sh
# Asks a model, whose answers cost 450 tokens each, until no tokens are left.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

# Each answer is charged when it is complete, just after the client has it.
question() { ask -H "x-user: $1" "$url/"; sleep 1; }

echo "ann asks 4 times:$(for _ in 1 2 3 4; do question ann; done)"
echo "bob asks:$(question bob)"
