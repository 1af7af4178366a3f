#!/bin/sh
# Sends requests until they are over the limit, and one more.
url=${1:-http://localhost:8000}
url=${url%/}/

for _ in 1 2 3 4 5; do
  echo "$ curl -i $url"
  curl -si "$url" | tr -d '\r'
  echo
done
