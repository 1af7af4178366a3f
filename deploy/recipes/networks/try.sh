#!/bin/sh
# Sends requests from addresses of several networks, and counts the answers of each status.
url=${1:-http://localhost:8000}
url=${url%/}

# Sends $1 requests from each of the other addresses, and prints how many answers have which status.
ask() {
    n=$1
    shift
    for address in "$@"; do
        curl -s -o /dev/null -w '%{http_code}\n' -H "x-forwarded-for: $address" "$url/?[1-$n]"
    done | sort | uniq -c | awk '{ printf " %s: %d", $2, $1 }'
}

echo "the company, 120 from 10.1.2.3:$(ask 120 10.1.2.3)"
echo "a /24, 60 from 203.0.113.7 and 60 from 203.0.113.8:$(ask 60 203.0.113.7 203.0.113.8)"
echo "another /24, 60 from 203.0.112.7:$(ask 60 203.0.112.7)"
echo "the country, 160 from 192.0.2.7 and 160 from 198.51.100.7:$(ask 160 192.0.2.7 198.51.100.7)"
