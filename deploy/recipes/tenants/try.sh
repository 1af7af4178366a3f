#!/bin/sh
# Sends requests with tenants' tokens: acme's brings 4 per hour, globex's 1 per day, initech's none.
url=${1:-http://localhost:8000}
url=${url%/}

# The status of the answer to a request.
ask() { curl -s -o /dev/null -w ' %{http_code}' "$@"; }

acme=eyJhbGciOiJIUzI1NiIsImtpZCI6InRyeSIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL3Nob3AuZXhhbXBsZS5vcmciLCJleHAiOjQxMDI0NDQ4MDAsInRlbmFudCI6ImFjbWUiLCJsaW1pdCI6eyJyZXF1ZXN0c19wZXJfdW5pdCI6NCwidW5pdCI6IkhPVVIifX0.x7Rwf0A8Kaa7cfDkvFsHVZ5pkEQ8jfaqzoOwA5aqd-w
globex=eyJhbGciOiJIUzI1NiIsImtpZCI6InRyeSIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL3Nob3AuZXhhbXBsZS5vcmciLCJleHAiOjQxMDI0NDQ4MDAsInRlbmFudCI6Imdsb2JleCIsImxpbWl0Ijp7InJlcXVlc3RzX3Blcl91bml0IjoxLCJ1bml0IjoiREFZIn19.lxTBsv1vJnM5ehszgTr3tgr_VG0Gzag1-f1iFm25dYE
initech=eyJhbGciOiJIUzI1NiIsImtpZCI6InRyeSIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL3Nob3AuZXhhbXBsZS5vcmciLCJleHAiOjQxMDI0NDQ4MDAsInRlbmFudCI6ImluaXRlY2gifQ.K_OcUZz5wevVLWeSgywf4tQvd7vvJcFFnGcxB48UpVM

five() { for _ in 1 2 3 4 5; do ask -H "authorization: Bearer $1" "$url/"; done; }

echo "acme, 4 per hour:$(five $acme)"
echo "globex, 1 per day:$(five $globex)"
echo "initech, the rule's 2 per hour:$(five $initech)"
