#!/bin/sh
# Keeps 2 requests under way, sends others meanwhile, and one after they have ended.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

slow() { ask -H 'x-user: ann' -H 'x-slow: yes' "$url/" >/dev/null; }

slow & slow &
sleep 1
echo "ann, while 2 requests are under way:$(for _ in 1 2; do ask -H 'x-user: ann' "$url/"; done)"
echo "bob, meanwhile:$(ask -H 'x-user: bob' "$url/")"
wait
sleep 1
echo "ann, when they have ended:$(ask -H 'x-user: ann' "$url/")"
