#!/bin/sh
# Sends requests with tokens, which hold the plan and the subject until the year 2100.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

ann=eyJhbGciOiJIUzI1NiIsImtpZCI6InRyeSIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL3Nob3AuZXhhbXBsZS5vcmciLCJleHAiOjQxMDI0NDQ4MDAsInBsYW4iOiJmcmVlIiwic3ViIjoiYW5uIn0.1ip05VCQ4pGPi6LbAHvoWtcIOSQ0QhGygrx_6DEBHWY
bob=eyJhbGciOiJIUzI1NiIsImtpZCI6InRyeSIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL3Nob3AuZXhhbXBsZS5vcmciLCJleHAiOjQxMDI0NDQ4MDAsInBsYW4iOiJmcmVlIiwic3ViIjoiYm9iIn0.zGteaL7WfG0eoaw8a989ZcKwbCLSf-WAHlAJqBH7WOw
eve=eyJhbGciOiJIUzI1NiIsImtpZCI6InRyeSIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL3Nob3AuZXhhbXBsZS5vcmciLCJleHAiOjQxMDI0NDQ4MDAsInBsYW4iOiJwcm8iLCJzdWIiOiJldmUifQ.z_ej0i5zo-79e5q60gmfE5gdoPrTxoPVSyyOndoJbOg

as() { ask -H "authorization: Bearer $1" "$url/"; }

echo "ann, plan free:$(for _ in 1 2 3; do as $ann; done)"
echo "bob, plan free:$(as $bob)"
echo "eve, plan pro:$(for _ in 1 2 3 4 5; do as $eve; done)"
echo "a wrong token:$(as wrong)"
