#!/bin/sh
# Asks a model, whose answers cost 1,200 tokens each.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a question of a user.
ask() {
  curl -s -o /dev/null -w ' %{http_code}' -H "x-user: $1" "$url/v1/chat/completions" \
    -H 'content-type: application/json' -d '{"messages":[],"stream":true,"stream_options":{"include_usage":true}}'
  sleep 1 # the answer is settled when it is complete, just after the client has it
}

echo "ann asks 4 times:$(for _ in 1 2 3 4; do ask ann; done)"
echo "bob asks:$(ask bob)"
